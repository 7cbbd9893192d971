//! What never leaves the process, in nanoseconds: `cargo bench --bench local`. The report has the ratios, of interleaved rounds.
#![allow(missing_docs, clippy::unwrap_used)]

use divan::{Bencher, Divan};
use parking_lot::{Mutex, ReentrantMutex};
use redis_dlock::{DLockConfig, DLockGenerator, DistributedReentrantLock, MemoryLockProcessor};
use std::time::Duration;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    // As in the report: a short round when asked for, and for `cargo test`. What the report alone understands is not for here.
    if arguments.iter().any(|argument| argument == "--smoke") || !arguments.iter().any(|argument| argument == "--bench")
    {
        Divan::default().test_benches();
    } else {
        Divan::from_args().main();
    }
}

fn lock(config: DLockConfig) -> (DLockGenerator, DistributedReentrantLock) {
    let generator = DLockGenerator::new(MemoryLockProcessor::new()).unwrap();
    let lock = generator.generate_with(config).unwrap();
    (generator, lock)
}

#[divan::bench_group]
mod reentry {
    use super::*;

    #[divan::bench]
    fn parking_lot_reentrant_mutex(bencher: Bencher<'_, '_>) {
        let mutex = ReentrantMutex::new(());
        let _held = mutex.lock();
        bencher.bench_local(|| drop(mutex.lock()));
    }

    #[divan::bench]
    fn lock_and_drop(bencher: Bencher<'_, '_>) {
        let (_generator, lock) = lock(DLockConfig::new("BENCH", "x"));
        let _held = lock.lock().unwrap();
        bencher.bench_local(|| drop(lock.lock().unwrap()));
    }

    #[divan::bench]
    fn lock_and_unlock(bencher: Bencher<'_, '_>) {
        let (_generator, lock) = lock(DLockConfig::new("BENCH", "x"));
        let _held = lock.lock().unwrap();
        bencher.bench_local(|| lock.lock().unwrap().unlock().unwrap());
    }

    #[divan::bench]
    fn is_valid(bencher: Bencher<'_, '_>) {
        let (_generator, lock) = lock(DLockConfig::new("BENCH", "x"));
        let held = lock.lock().unwrap();
        bencher.bench_local(|| held.is_valid());
    }
}

#[divan::bench_group]
mod first_hold {
    use super::*;

    #[divan::bench]
    fn parking_lot_mutex(bencher: Bencher<'_, '_>) {
        let mutex = Mutex::new(());
        bencher.bench_local(|| drop(mutex.lock()));
    }

    #[divan::bench]
    fn lingering(bencher: Bencher<'_, '_>) {
        let (_generator, lock) = lock(DLockConfig::new("BENCH", "x").with_linger(Duration::from_secs(60)));
        // It lingers once grants are heard, which the first wait sees to.
        let held = lock.lock().unwrap();
        let wait = || assert!(lock.try_lock_for(Duration::from_millis(5)).unwrap().is_none());
        std::thread::scope(|scope| drop(scope.spawn(wait)));
        held.unlock().unwrap();
        while !lock.is_locked().unwrap() {
            lock.lock().unwrap().unlock().unwrap();
        }
        bencher.bench_local(|| drop(lock.lock().unwrap()));
    }

    #[divan::bench]
    fn embedded_store(bencher: Bencher<'_, '_>) {
        let (_generator, lock) = lock(DLockConfig::new("BENCH", "x"));
        bencher.bench_local(|| drop(lock.lock().unwrap()));
    }
}
