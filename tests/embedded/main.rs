//! What is left without Redis: the lock on the embedded store, in a build without the feature `redis`.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../it/conformance/memory_store.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod memory_store;

use memory_store::MemoryStore;
use redis_dlock::{DEFAULT_LEASE, DLockGenerator, LossCause, ManualClock, MemoryLockProcessor};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

dlock_conformance::conformance_tests!(memory, MemoryStore::start(), lacks Posting Settling);

/// Two clients with four threads each: the counter is exact, and the tokens rise.
#[test]
fn threads_of_two_clients_exclude_one_another() {
    const ROUNDS: u32 = 200;
    let store = MemoryLockProcessor::new();
    let log = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let clients = [(); 2].map(|()| DLockGenerator::new(store.clone()).unwrap());
    let threads: Vec<_> = (0..8)
        .map(|n| {
            let (lock, log) = (clients[n % 2].generate("EMBEDDED", "x").unwrap(), Arc::clone(&log));
            thread::spawn(move || {
                for _ in 0..ROUNDS {
                    let guard = lock.lock().unwrap();
                    let mut inside = log.try_lock().expect("nobody else is inside");
                    inside.push(guard.fencing_token());
                    drop(inside);
                    guard.unlock().unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let tokens = log.lock();
    assert_eq!(tokens.len(), 8 * ROUNDS as usize);
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later));
}

#[test]
fn a_lost_lease_is_told() {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryLockProcessor::with_clock(clock.clone());
    let generator = DLockGenerator::builder().clock(clock.clone()).build(store.clone()).unwrap();
    let lock = generator.generate("EMBEDDED", "y").unwrap();
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    store.delete(lock.key());
    // The next probe finds it.
    clock.advance(DEFAULT_LEASE / 5);
    lost.recv_timeout(Duration::from_secs(20)).expect("told of the loss");
    assert_eq!(guard.loss().map(|loss| loss.cause), Some(LossCause::Deleted));
}
