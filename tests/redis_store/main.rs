//! The Redis store against real servers: what every script does, what every failure becomes, and the transport's time.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod errors;
mod outcomes;
mod server;
mod slots;
mod transport;
