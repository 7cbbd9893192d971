//! A clock that is moved by hand wakes all who sleep by it: what a program's own tests of locks rest on.
//!
//! The leases here are so long that no real time ends one. Each test repeats its scene on a fresh store and a fresh clock, without a sleep.
//!
//! | file | holds |
//! |---|---|
//! | `waking.rs` | losses, waits, lingering and retries that end when the clock is moved |
//! | `passing.rs` | time that passes from one wake-up to the next |
//! | `jumping.rs` | a clock that is moved while a question is under way, or by several threads |
//! | `records.rs` | client records, which are refreshed by the client's clock and end by the store's |
//! | `on_redis.rs` | the same with a real server, whose own time goes on |
//! | `unreachable.rs` | the embedded store is set unreachable, and comes back |

mod jumping;
mod on_redis;
mod passing;
mod records;
mod unreachable;
mod waking;

use crate::support::crew::{HANG, Member, spawn_with};
use crate::support::lab::builder;
use crate::support::watched::{Watch, Watched};
use crate::support::{cause, is_long};
use redis_dlock::{
    DLockConfig, DLockGenerator, DistributedReentrantLock, GeneratorBuilder, ManualClock, MemoryLockProcessor,
};
use std::sync::Arc;
use std::thread::yield_now;
use std::time::{Duration, Instant};

const LEASE: Duration = Duration::from_secs(1000);

/// How often a scene is repeated.
fn rounds() -> usize {
    if is_long() { 1000 } else { 250 }
}

/// A store and its clients, all by one clock.
struct Scene {
    clock: Arc<ManualClock>,
    store: MemoryLockProcessor,
}

impl Scene {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new());
        Self { store: MemoryLockProcessor::with_clock(clock.clone()), clock }
    }

    fn generator(&self) -> DLockGenerator {
        builder().clock(self.clock.clone()).build(self.store.clone()).unwrap()
    }

    /// A client that always hears of grants, built in some way.
    fn built(&self, build: impl FnOnce(GeneratorBuilder) -> GeneratorBuilder) -> DLockGenerator {
        build(DLockGenerator::builder().clock(self.clock.clone())).build(self.store.clone()).unwrap()
    }

    /// The lock of a client with a connection of its own, and that.
    fn lock_on_a_wire(&self) -> (DistributedReentrantLock, MemoryLockProcessor) {
        let wire = self.store.another_connection();
        let generator = DLockGenerator::builder().clock(self.clock.clone()).build(wire.clone()).unwrap();
        (generator.generate_with(settings()).unwrap(), wire)
    }

    fn lock(&self) -> DistributedReentrantLock {
        self.generator().generate_with(settings()).unwrap()
    }

    /// The lock of a client that only asks, and what it asks.
    fn watched_lock(&self) -> (DistributedReentrantLock, Arc<Watch>) {
        let (processor, watch) = Watched::new(Arc::new(self.store.clone()));
        let generator = DLockGenerator::builder().clock(self.clock.clone()).listener(false).build(processor).unwrap();
        (generator.generate_with(settings()).unwrap(), watch)
    }
}

fn settings() -> DLockConfig {
    DLockConfig::new("TEST", "x").with_lease(LEASE)
}

/// Waits, without sleeping, until something is so.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < HANG, "waited in vain: {what}");
        yield_now();
    }
}

/// Lets the threads of a client fall asleep before the clock is moved: in some rounds they are asleep then, in some they are about to be.
/// Without giving up the processor, which costs milliseconds on a busy machine.
fn let_sleep(round: usize) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_micros(round as u64 % 64) {
        std::hint::spin_loop();
    }
}

/// Starts a thread that does something with a lock, and returns when it is one of so many that wait in its client.
#[track_caller]
fn waits<T: Send + 'static>(
    lock: &DistributedReentrantLock,
    threads: usize,
    work: impl FnOnce(&DistributedReentrantLock) -> T + Send + 'static,
) -> Member<T> {
    let member = spawn_with(lock, work);
    until("threads wait", || lock.queue_length() == threads);
    member
}
