//! Consensus stores, on real servers.

#![allow(clippy::unwrap_used, missing_docs)]

#[macro_use]
#[path = "../../../../tests/faults/each_store.rs"]
mod each;

/// What one store has and the other one has not.
mod alone {
    mod consul;
}

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/support/consensus/mod.rs"]
mod consensus;
mod costs;
mod faults;
mod fresh;
#[allow(dead_code, reason = "other tests use more of it")]
mod lab;
mod lock;
mod secure;
mod seeing;
mod strangers;
mod twins;
mod wrong;

#[path = "../../../../tests/support/certificates.rs"]
mod certificates;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/support/without_redis.rs"]
mod support;

// What the tests of the lock, of forced breaks and of descriptions ask of a store.
#[allow(dead_code, reason = "some ask what these stores do not have: lab.rs names them")]
#[path = "../../../../tests/it/lock/elsewhere.rs"]
mod all;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/it/breaking/elsewhere.rs"]
mod breaking;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/it/describe/elsewhere.rs"]
mod describe;

use consensus::{Consul, Etcd};
use fresh::Fresh;

dlock_conformance::conformance_tests!(etcd, Fresh::<Etcd>::start(), lacks Gaps DeadAtOnce Keeps Denials Posting);
dlock_conformance::conformance_tests!(consul, Fresh::<Consul>::start(), lacks Gaps DeadAtOnce Keeps Denials Posting);
