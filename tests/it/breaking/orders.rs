//! What the tests of forced breaks have in common.

use crate::support::lab::{Lab, config};
use redis_dlock::{BreakOutcome, DLockConfig, DLockGenerator, DistributedReentrantLock, LossCause};
use std::time::Duration;

pub(super) const WHY: &str = "hangs since noon";

/// So long that neither a probe nor an extension comes within a test.
pub(super) const HOUR: u64 = 3_600_000;

/// The locker that holds the lock, as an operator sees it.
pub(super) fn seen(lock: &DistributedReentrantLock) -> String {
    lock.holder().unwrap().expect("it is held").locker
}

/// An operator: another client.
pub(super) fn operator(lab: &Lab) -> DLockGenerator {
    lab.generator()
}

pub(super) fn break_lock(operator: &DLockGenerator, lock: &DistributedReentrantLock, locker: &str) -> BreakOutcome {
    operator.break_lock(lock.lock_type(), lock.target(), locker, WHY).unwrap()
}

/// Takes the lock from whoever has it; tells who has it next.
#[track_caller]
pub(super) fn take_from_holder(lab: &Lab, lock: &DistributedReentrantLock) -> Option<String> {
    match break_lock(&operator(lab), lock, &seen(lock)) {
        BreakOutcome::Broken { next, .. } => next,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub(super) fn assert_broken(cause: &LossCause) {
    assert!(matches!(cause, LossCause::Broken { reason, .. } if reason == WHY), "{cause:?}");
}

/// A lock that is probed within a test.
pub(super) fn probed() -> DLockConfig {
    config("x", 3000)
}

/// One that is not.
pub(super) fn unlooked() -> DLockConfig {
    config("x", HOUR)
}

pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
