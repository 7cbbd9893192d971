//! A lock is taken from its holder by force: what becomes of the holder, of those who wait, and of the operator who is too late.
//!
//! | file | holds |
//! |---|---|
//! | `orders.rs` | what they have in common |
//! | `holder.rs` | how the holder is told, and by whom |
//! | `waiters.rs` | who has the lock next, in this process and in others |
//! | `racing.rs` | a holder that releases in the same moment, two operators, a view that is out of date |
//! | `processes.rs` | real processes: one that stands still, one that is killed |
//! | `server.rs` | what is in Redis: forged messages, foreign values, a server that forgot the scripts, replicas that do not answer, a Cluster |

mod holder;
mod orders;
mod processes;
mod racing;
mod server;
mod waiters;

use crate::conformance::minimal_store::MinimalProcessor;
use orders::{WHY, ms, seen, unlooked};
use redis_dlock::{DLockGenerator, Error, SystemClock};
use std::sync::Arc;

#[test]
fn a_store_that_cannot_break_a_hold_says_so() {
    let generator = DLockGenerator::new(MinimalProcessor::new(Arc::new(SystemClock))).unwrap();
    let lock = generator.generate_with(unlooked()).unwrap();
    let guard = lock.lock().unwrap();
    let error = generator.break_lock("TEST", "x", &seen(&lock), WHY).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(guard.is_valid() && guard.remaining() > ms(1));
}
