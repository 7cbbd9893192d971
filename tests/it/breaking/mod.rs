//! A lock is taken from its holder by force: what becomes of the holder, of those who wait, and of the operator who is too late.

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
