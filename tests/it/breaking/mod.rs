//! A lock is taken from its holder by force: what becomes of the holder, of those who wait, and of the operator who is too late.
//!
//! | file | holds |
//! |---|---|
//! | `holder.rs` | how the holder is told, and by whom |
//! | `waiters.rs` | who has the lock next, in this process and in others |
//! | `racing.rs` | a holder that releases in the same moment, two operators, a view that is out of date |
//! | `processes.rs` | real processes: one that stands still, one that is killed |
//! | `server.rs` | what is in Redis: forged messages, foreign values, a server that forgot the scripts, replicas that do not answer, a Cluster |

mod holder;
mod processes;
mod racing;
mod server;
mod waiters;

use crate::support::lab::{Lab, config};
use redis_dlock::{BreakOutcome, DLockConfig, DLockGenerator, DistributedReentrantLock, LossCause};
use std::time::Duration;

const WHY: &str = "hangs since noon";

/// So long that neither a probe nor an extension comes within a test.
const HOUR: u64 = 3_600_000;

/// The locker that holds the lock, as an operator sees it.
fn seen(lock: &DistributedReentrantLock) -> String {
    lock.holder().unwrap().expect("it is held").locker
}

/// An operator: another client.
fn operator(lab: &Lab) -> DLockGenerator {
    lab.generator()
}

fn break_lock(operator: &DLockGenerator, lock: &DistributedReentrantLock, locker: &str) -> BreakOutcome {
    operator.break_lock(lock.lock_type(), lock.target(), locker, WHY).unwrap()
}

/// Takes the lock from whoever has it; tells who has it next.
#[track_caller]
fn take_from_holder(lab: &Lab, lock: &DistributedReentrantLock) -> Option<String> {
    match break_lock(&operator(lab), lock, &seen(lock)) {
        BreakOutcome::Broken { next, .. } => next,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_broken(cause: &LossCause) {
    assert!(matches!(cause, LossCause::Broken { reason, .. } if reason == WHY), "{cause:?}");
}

/// A lock that is probed within a test.
fn probed() -> DLockConfig {
    config("x", 3000)
}

/// One that is not.
fn unlooked() -> DLockConfig {
    config("x", HOUR)
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
