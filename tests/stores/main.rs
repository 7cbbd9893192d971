//! Stores that vote, on real servers.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../support/etcd.rs"]
mod etcd;
mod etcd_store;

use etcd_store::EtcdStore;

redis_dlock::conformance_tests!(etcd_conformance, EtcdStore::start());
