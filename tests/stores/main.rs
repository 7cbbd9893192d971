//! Stores that vote, on real servers.

#![allow(clippy::unwrap_used, missing_docs)]

#[macro_use]
mod each;

mod beside;
mod costs;
mod faults;
mod kit;
mod lock;

/// The parts of the kit of all tests that know no Redis.
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "."]
mod support {
    #[path = "../support/crew.rs"]
    pub(crate) mod crew;
    #[path = "../support/process.rs"]
    pub(crate) mod process;
}

use kit::{Consul, Etcd, Fresh};

redis_dlock::conformance_tests!(etcd, Fresh::<Etcd>::start());
redis_dlock::conformance_tests!(consul, Fresh::<Consul>::start());
