//! Time by hand: deadlines, late answers, and turns that come too late. Leases here end when the test says so.

use crate::support::cause;
use crate::support::crew::{Member, eventually, spawn, spawn_with, wait_by};
use crate::support::lab::config;
use crate::support::watched::{Kind, Watch, Watched, When};
use parking_lot::Mutex;
use redis_dlock::{
    BackendFailure, CancelToken, DLockConfig, DLockGenerator, DistributedReentrantLock, Error, LossCause, ManualClock,
    MemoryLockProcessor,
};
use std::sync::Arc;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(1000);

struct Scene {
    clock: Arc<ManualClock>,
    watch: Arc<Watch>,
    store: MemoryLockProcessor,
    lock: DistributedReentrantLock,
}

fn scene() -> Scene {
    scene_with(true, DLockConfig::new("TEST", "x"))
}

/// A scene where no hold is passed on, so that each unlock gives the next thread its turn to ask.
fn scene_of_turns() -> Scene {
    scene_with(false, DLockConfig::new("TEST", "x").with_local_passes(0))
}

fn scene_with(listener: bool, settings: DLockConfig) -> Scene {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryLockProcessor::with_clock(clock.clone());
    let (processor, watch) = Watched::new(Arc::new(store.clone()));
    let generator = DLockGenerator::builder().clock(clock.clone()).listener(listener).build(processor).unwrap();
    Scene { clock, watch, store, lock: generator.generate_with(settings.with_lease(LEASE)).unwrap() }
}

/// Shows: G5.
#[test]
fn what_remains_is_the_lease_less_a_margin_and_what_has_passed() {
    let scene = scene();
    let guard = scene.lock.lock().unwrap();
    assert_eq!(guard.remaining(), LEASE - LEASE / 100);
    scene.clock.advance(Duration::from_secs(90));
    assert_eq!(guard.remaining(), Duration::from_secs(900));
    assert!(guard.is_valid());
    guard.unlock().unwrap();
}

/// A release of it was under way, and is not repeated.
/// Shows: G1.
#[test]
fn what_a_client_has_given_up_is_left_to_a_twin_that_it_has_met_since() {
    let scene = scene();
    let unanswered = |lock: &DistributedReentrantLock| {
        scene.watch.fail(BackendFailure::Unknown);
        assert!(lock.try_lock().is_err());
        scene.watch.calls_of(Kind::Acquire).pop().unwrap().locker
    };
    scene.lock.lock().unwrap().unlock().unwrap();
    let releasing = scene.watch.stop_next(Kind::Release, When::Going);
    let given_up = unanswered(&scene.lock);
    releasing.wait();
    scene.watch.heal();
    let (client, _) = given_up.rsplit_once('-').unwrap();
    scene.store.overwrite(scene.lock.key(), &format!("{client}-4711"), None);
    assert!(matches!(scene.lock.try_lock(), Err(Error::Cloned { .. })));
    let releases =
        |locker: &str| scene.watch.calls_of(Kind::Release).iter().filter(|call| call.locker == locker).count();
    let before = releases(&given_up);
    releasing.open();
    let next = unanswered(&scene.lock);
    scene.watch.heal();
    // The one before would be due as often.
    for _ in 0..3 {
        let of_next = releases(&next);
        scene.clock.advance(LEASE / 6);
        eventually("it is repeated", || releases(&next) > of_next);
    }
    assert_eq!(releases(&given_up), before);
}

/// Shows: G5, G6.
#[test]
fn a_passed_deadline_is_seen_by_whoever_looks_first() {
    type Look = fn(&redis_dlock::DLockGuard<'_>) -> bool;
    let looks: [Look; 3] = [
        |guard| guard.is_valid(),
        |guard| !guard.remaining().is_zero(),
        |guard| guard.ensure_valid().map_err(|error| cause(Err::<(), _>(error))) != Err(LossCause::Deadline),
    ];
    for look in looks {
        let scene = scene();
        // The lease thread, which the clock wakes, does not renew the lease.
        let _bar = scene.watch.bar(Kind::Extend);
        let guard = scene.lock.lock().unwrap();
        let lost = guard.lost();
        scene.clock.advance(LEASE - LEASE / 100 - Duration::from_nanos(1));
        assert!(look(&guard));
        scene.clock.advance(Duration::from_nanos(1));
        assert!(!look(&guard));
        assert_eq!(lost.recv(), Ok(()), "and from then on everybody knows");
        assert_eq!(cause(scene.lock.lock()), LossCause::Deadline);
        assert_eq!(cause(guard.unlock()), LossCause::Deadline);
    }
}

/// Shows: G6.
#[test]
fn unlocking_after_the_deadline_says_so_even_if_nobody_looked() {
    let scene = scene();
    let guard = scene.lock.lock().unwrap();
    let lost = guard.lost();
    scene.clock.advance(LEASE);
    assert_eq!(cause(guard.unlock()), LossCause::Deadline);
    assert_eq!(lost.recv(), Ok(()));
    assert!(scene.lock.try_lock().unwrap().is_some());
}

#[test]
fn a_hold_that_comes_with_little_lease_left_is_extended_first() {
    for (age, waits) in [(LEASE / 3, false), (LEASE * 2 / 3, true)] {
        let scene = scene();
        // The lease thread would extend it, too.
        let _bar = scene.watch.bar(Kind::Extend);
        let asking = scene.watch.stop_next(Kind::Acquire, When::Coming);
        let extending = scene.watch.stop_next(Kind::Extend, When::Going);
        let locker = spawn_with(&scene.lock, |lock| lock.lock().unwrap().remaining());
        asking.wait();
        scene.clock.advance(age);
        asking.open();
        if waits {
            // With the extension under way it has not returned.
            extending.wait();
            assert!(!locker.is_finished());
            extending.open();
        }
        assert!(locker.join() >= LEASE / 2, "without waiting for an extension where the lease is good enough");
    }
}

/// Its lease would end before another extension could be answered.
/// Shows: G3.
#[test]
fn a_hold_that_cannot_be_extended_in_time_is_given_back_and_asked_for_anew() {
    let scene = scene();
    let _bar = scene.watch.bar(Kind::Extend);
    let asking = scene.watch.stop_next(Kind::Acquire, When::Coming);
    scene.watch.lose_next_answer(Kind::Extend);
    let locker = spawn_with(&scene.lock, |lock| {
        let guard = lock.lock().unwrap();
        (guard.remaining(), guard.unlock().is_ok())
    });
    asking.wait();
    // A round trip takes two thirds of a lease.
    scene.clock.advance(LEASE * 2 / 3);
    asking.open();
    // After a failure it pauses.
    eventually("it has the lock", || {
        scene.clock.advance(Duration::from_millis(10));
        locker.is_finished()
    });
    let (remaining, is_released) = locker.join();
    assert!(remaining > LEASE / 2 && is_released, "{remaining:?}");
}

/// Shows: L2.
#[test]
fn a_hold_that_a_panic_of_the_store_kept_from_its_thread_is_given_back() {
    let scene = scene();
    let _bar = scene.watch.bar(Kind::Extend);
    let asking = scene.watch.stop_next(Kind::Acquire, When::Coming);
    scene.watch.panic_at_next(Kind::Extend);
    let locker = spawn_with(&scene.lock, |lock| {
        let locked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(lock.lock())));
        (locked.is_err(), lock.hold_count())
    });
    asking.wait();
    scene.clock.advance(LEASE * 2 / 3);
    asking.open();
    assert_eq!(locker.join(), (true, 0));
    eventually("the lock is free", || scene.lock.holder().unwrap().is_none());
    scene.lock.lock().unwrap().unlock().unwrap();
}

/// Shows: G5, S12.
#[test]
fn a_hold_that_comes_after_its_deadline_is_given_back_and_asked_for_anew() {
    let scene = scene();
    let asking = scene.watch.stop_next(Kind::Acquire, When::Coming);
    let locker = spawn_with(&scene.lock, move |lock| {
        let guard = lock.lock().unwrap();
        (guard.is_valid(), guard.remaining(), guard.unlock().is_ok())
    });
    asking.wait();
    scene.clock.advance(LEASE * 2);
    asking.open();
    assert_eq!(locker.join(), (true, LEASE - LEASE / 100, true));
    let lockers: Vec<_> = scene.watch.calls_of(Kind::Acquire).into_iter().map(|call| call.locker).collect();
    assert_eq!(lockers.len(), 2);
    assert_ne!(lockers[0], lockers[1], "a locker is sent once");
    eventually("the late one is released", || {
        scene.watch.calls_of(Kind::Release).iter().any(|call| call.locker == lockers[0])
    });
}

/// Shows: G8, L3.
#[test]
fn a_turn_that_comes_too_late_is_passed_on() {
    const LIMIT: Duration = Duration::from_secs(500);
    let scene = scene_of_turns();
    let guard = scene.lock.lock().unwrap();
    let entered = Arc::new(Mutex::new(Vec::new()));
    let crew: Vec<_> = (0..5)
        .map(|number| {
            let entered = Arc::clone(&entered);
            wait_by(&scene.lock, move |lock| {
                let guard =
                    if number % 2 == 0 { lock.try_lock_for(LIMIT).unwrap() } else { Some(lock.lock().unwrap()) };
                if guard.is_some() {
                    entered.lock().push(number);
                }
            })
        })
        .collect();
    // The time of every other waiter is over; the unlock wakes them before their own alarms do.
    scene.clock.advance(LIMIT);
    guard.unlock().unwrap();
    crew.into_iter().for_each(Member::join);
    assert_eq!(*entered.lock(), [1, 3]);
    assert_eq!(scene.lock.queue_length(), 0);
    assert_eq!(scene.watch.count_of(Kind::Acquire), 3, "who is late does not ask");
}

/// Shows: L3.
#[test]
fn a_late_turn_with_nobody_behind_leaves_the_lock_free() {
    let scene = scene_of_turns();
    let guard = scene.lock.lock().unwrap();
    let waiter = wait_by(&scene.lock, move |lock| lock.try_lock_for(Duration::from_secs(500)).unwrap().is_some());
    scene.clock.advance(Duration::from_secs(500));
    guard.unlock().unwrap();
    assert!(!waiter.join());
    assert!(!scene.lock.is_locked().unwrap());
    assert!(scene.lock.try_lock().unwrap().is_some());
}

/// Shows: L3.
#[test]
fn a_turn_for_a_cancelled_thread_is_passed_on() {
    // Cancelled while it is on its way from being chosen to asking: whichever comes first, the other gets the lock.
    for _ in 0..200 {
        let scene = scene_of_turns();
        let guard = scene.lock.lock().unwrap();
        let cancel = CancelToken::new();
        let (second, token) = (scene.lock.clone(), cancel.clone());
        let first = wait_by(&scene.lock, move |first| drop(first.lock_cancellable(&token).unwrap()));
        let second = spawn(move || drop(second.lock().unwrap()));
        eventually("both wait", || scene.lock.queue_length() == 2);
        let canceller = spawn(move || cancel.cancel());
        guard.unlock().unwrap();
        canceller.join();
        first.join();
        second.join();
        assert!(!scene.lock.is_locked().unwrap());
    }
}

#[test]
fn a_clock_that_stands_still_never_ends_a_lease() {
    let clock = Arc::new(ManualClock::new());
    let generator =
        DLockGenerator::builder().clock(clock.clone()).build(MemoryLockProcessor::with_clock(clock)).unwrap();
    let lock = generator.generate_with(config("x", 20)).unwrap();
    let guard = lock.lock().unwrap();
    std::thread::sleep(Duration::from_millis(60));
    assert!(guard.is_valid());
    guard.unlock().unwrap();
}
