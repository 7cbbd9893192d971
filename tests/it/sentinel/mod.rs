//! A service that Sentinels watch, on real servers: who is found, what is refused, and how a failover is followed.

mod failover;
mod fakes;
mod limits;
mod naming;
mod rights;
#[cfg(feature = "tls")]
mod tls;
