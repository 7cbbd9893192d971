//! Stores that vote, on real servers.

#![allow(clippy::unwrap_used, missing_docs)]

mod etcd_store;
mod faults;
mod lock;

/// The parts of the kit that know no Redis.
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "."]
mod support {
    #[path = "../support/crew.rs"]
    pub(crate) mod crew;
    #[path = "../support/etcd.rs"]
    pub(crate) mod etcd;
    #[path = "../support/process.rs"]
    pub(crate) mod process;
}

use etcd_store::EtcdStore;

redis_dlock::conformance_tests!(etcd, EtcdStore::start());
