//! What the events say of times: by a clock that is moved by hand, to the nanosecond.

use super::{next, next_acquired, next_released, told};
use crate::support::crew::{eventually, wait_for};
use crate::support::watched::{Kind, Watched};
use crossbeam_channel::Receiver;
use redis_dlock::event::{HoldEnd, How};
use redis_dlock::{DLockConfig, DLockGenerator, DistributedReentrantLock, Event, ManualClock, MemoryLockProcessor};
use std::sync::Arc;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(1000);

struct Scene {
    clock: Arc<ManualClock>,
    store: MemoryLockProcessor,
    events: Receiver<Event>,
    lock: DistributedReentrantLock,
}

fn settings() -> DLockConfig {
    DLockConfig::new("TEST", "x").with_lease(LEASE)
}

fn scene() -> Scene {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryLockProcessor::with_clock(clock.clone());
    let (builder, events) = told();
    let generator = builder.clock(clock.clone()).build(store.clone()).unwrap();
    Scene { clock, store, events, lock: generator.generate_with(settings()).unwrap() }
}

#[test]
fn a_hold_counts_from_the_grant_to_the_release_and_a_wait_from_the_call() {
    let Scene { clock, store, events, lock } = scene();
    let guard = lock.lock().unwrap();
    assert_eq!(next_acquired(&events, How::Free).waited, Duration::ZERO);
    clock.advance(Duration::from_secs(5));
    guard.unlock().unwrap();
    assert_eq!(next_released(&events, HoldEnd::GivenBack).held, Duration::from_secs(5));

    let holder = DLockGenerator::builder().clock(clock.clone()).build(store).unwrap();
    let holder = holder.generate_with(settings()).unwrap();
    let guard = holder.lock().unwrap();
    let waiter = wait_for(&lock);
    clock.advance(Duration::from_secs(7));
    guard.unlock().unwrap();
    waiter.join();
    assert_eq!(next_acquired(&events, How::Granted).waited, Duration::from_secs(7));
    assert_eq!(next_released(&events, HoldEnd::Sent).held, Duration::ZERO);
}

/// An extension is due at three quarters of the lease, and the deadline is at 99 %. So it is late from 87 % on.
///
/// Shows: G3.
#[test]
fn only_a_late_renewal_is_told() {
    for (at, is_late) in [(760, false), (880, true)] {
        let clock = Arc::new(ManualClock::new());
        let store = MemoryLockProcessor::with_clock(clock.clone());
        let (processor, watch) = Watched::new(Arc::new(store));
        let (builder, events) = told();
        let generator = builder.clock(clock.clone()).build(processor).unwrap();
        let lock = generator.generate_with(settings()).unwrap();
        let guard = lock.lock().unwrap();
        next_acquired(&events, How::Free);
        clock.advance(Duration::from_secs(at));
        eventually("the lease is extended", || watch.count_of(Kind::Extend) > 0);
        if is_late {
            let Event::RenewedLate(late) = next(&events) else { panic!("not late") };
            assert_eq!((late.left, late.lock.unique_key()), (Duration::from_secs(990 - at), lock.key()));
        }
        guard.unlock().unwrap();
        next_released(&events, HoldEnd::GivenBack);
    }
}
