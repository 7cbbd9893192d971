//! The suite over a service that Sentinels watch.

use super::suite::RedisStore;
use crate::support::sentinels::{Plan, Service};
use dlock_conformance::{cases, run, skipped};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// All cases in one test, one after another: the servers take seconds to know each other, so the cases share them.
#[test]
fn every_case_holds_on_a_master_that_sentinels_name() {
    // However slow the machine is, nobody fails over.
    let service = Arc::new(Service::start_as(&Plan { down_after_ms: 600_000, ..Plan::default() }));
    let store = || RedisStore::behind(&service);
    let missing: Vec<_> = skipped(store()).into_iter().filter(|case| !case.starts_with("settling::")).collect();
    assert_eq!(missing, [""; 0]);
    let fails = |case: &&str| catch_unwind(AssertUnwindSafe(|| run(case, store()))).is_err();
    let failed: Vec<_> = cases().filter(fails).collect();
    assert_eq!(failed, [""; 0], "each has said above why");
    assert_eq!(service.named(0), Some(0), "the master has stayed the same");
}
