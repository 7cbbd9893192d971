//! `try_lock` and its timed forms.

use crate::support::crew::{answered, spawn, spawn_with, wait_by};
use crate::support::lab::{Lab, config, on_both_stores};
use crate::support::watched::Kind;
use redis_dlock::{DLockGuard, DistributedReentrantLock, Error};
use std::time::{Duration, Instant};

on_both_stores!(
    one_attempt_gets_a_free_lock,
    one_attempt_on_a_lock_held_elsewhere_asks_once,
    one_attempt_on_a_lock_held_by_a_local_thread_does_not_ask,
    a_timed_attempt_gets_a_free_lock_without_waiting,
    a_timed_attempt_waits_its_time_out,
    a_timed_attempt_gets_what_is_unlocked_in_time,
    an_endless_attempt_does_not_overflow,
    unguarded_attempts_tell_the_same,
);

/// All ways to try once, one after another: which of them got the lock.
fn attempts(lock: &DistributedReentrantLock) -> [bool; 4] {
    type Attempt = fn(&DistributedReentrantLock) -> Result<Option<DLockGuard<'_>>, Error>;
    let ways: [Attempt; 4] = [
        |lock| lock.try_lock(),
        |lock| lock.try_lock_for(Duration::ZERO),
        |lock| lock.try_lock_until(Instant::now()),
        |lock| lock.try_lock_until(Instant::now().checked_sub(Duration::from_secs(1)).unwrap()),
    ];
    ways.map(|attempt| attempt(lock).unwrap().is_some())
}

fn one_attempt_gets_a_free_lock(lab: &Lab) {
    let (lock, watch) = lab.watched_lock(config("x", 30_000));
    assert_eq!(attempts(&lock), [true; 4]);
    assert_eq!((watch.count_of(Kind::Acquire), watch.count_of(Kind::Release)), (4, 4));
    // None of them is a wait that ends at once: the store gets its time to answer.
    let asked = watch.calls_of(Kind::Acquire);
    assert!(asked.iter().all(|call| call.limit == lab.processor().limits().command), "{asked:?}");
    assert_eq!(lab.leftovers(), [""; 0]);
}

/// Shows: G1, L2.
fn one_attempt_on_a_lock_held_elsewhere_asks_once(lab: &Lab) {
    let elsewhere = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let guard = elsewhere.lock().unwrap();
    let (lock, watch) = lab.watched_lock(config("x", 30_000));
    assert_eq!(attempts(&lock), [false; 4]);
    assert_eq!((watch.count_of(Kind::Acquire), watch.count()), (4, 4));
    assert_eq!(lock.queue_length(), 0);
    guard.unlock().unwrap();
    assert_eq!(lab.leftovers(), [""; 0], "an attempt does not stand in the store's queue");
}

/// Shows: G1.
fn one_attempt_on_a_lock_held_by_a_local_thread_does_not_ask(lab: &Lab) {
    let (lock, watch) = lab.watched_lock(config("x", 600_000));
    let _guard = lock.lock().unwrap();
    let other = lock.clone();
    assert_eq!(spawn(move || attempts(&other)).join(), [false; 4]);
    assert_eq!(watch.count(), 1);
}

fn a_timed_attempt_gets_a_free_lock_without_waiting(lab: &Lab) {
    let (lock, watch) = lab.watched_lock(config("x", 30_000));
    for limit in [Duration::from_secs(1), Duration::from_secs(3600), Duration::MAX] {
        lock.try_lock_for(limit).unwrap().unwrap().unlock().unwrap();
        let guard = lock.try_lock_until(Instant::now() + limit.min(Duration::from_secs(1_000_000_000)));
        guard.unwrap().unwrap().unlock().unwrap();
    }
    assert_eq!((watch.count_of(Kind::Acquire), watch.count()), (6, 12));
}

/// Shows: G12, L3.
fn a_timed_attempt_waits_its_time_out(lab: &Lab) {
    const LIMIT: Duration = Duration::from_millis(60);
    let [lock, elsewhere] = [(); 2].map(|()| lab.generator().generate_with(config("x", 30_000)).unwrap());
    let guard = elsewhere.lock().unwrap();
    let (local, remote) = (elsewhere.clone(), lock.clone());
    // Both a thread that waits for its own process, and one that waits for another.
    let waiters = [local, remote].map(|lock| {
        spawn_with(&lab.time, move |time| {
            let first = answered(|| {
                let start = time.now();
                Ok(lock.try_lock_for(LIMIT)?.is_none() && time.now().since(start) >= LIMIT)
            });
            let second = answered(|| {
                let (start, begun) = (time.now(), Instant::now());
                let is_over = lock.try_lock_until(begun + LIMIT)?.is_none();
                // Of a time that is moved by hand, what is left of the limit when the call begins.
                let began_late = if time.is_by_hand() { begun.elapsed() } else { Duration::ZERO };
                Ok(is_over && time.now().since(start) + began_late >= LIMIT)
            });
            first && second
        })
    });
    assert_eq!(waiters.map(|waiter| lab.time.join(waiter)), [true; 2]);
    assert_eq!(lock.queue_length() + elsewhere.queue_length(), 0);
    assert!(guard.is_valid());
}

fn a_timed_attempt_gets_what_is_unlocked_in_time(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let guard = lock.lock().unwrap();
    let waiters = [0, 1].map(|place| {
        wait_by(&lock, move |other| {
            let limit = Duration::from_secs(1000);
            let guard = match place {
                0 => other.try_lock_for(limit),
                _ => other.try_lock_until(Instant::now() + limit),
            };
            guard.unwrap().is_some()
        })
    });
    guard.unlock().unwrap();
    assert_eq!(waiters.map(crate::support::crew::Member::join), [true; 2]);
}

fn an_endless_attempt_does_not_overflow(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let guard = lock.lock().unwrap();
    let limits = [Duration::MAX, Duration::MAX / 2, Duration::from_secs(u64::MAX / 1_000_000_000)];
    let waiters =
        [0, 1, 2].map(|place| wait_by(&lock, move |other| other.try_lock_for(limits[place]).unwrap().is_some()));
    guard.unlock().unwrap();
    assert_eq!(waiters.map(crate::support::crew::Member::join), [true; 3]);
}

/// Shows: G1.
fn unguarded_attempts_tell_the_same(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap().unguarded();
    let elsewhere = lab.generator().generate_with(config("x", 30_000)).unwrap().unguarded();
    assert!(elsewhere.try_lock().unwrap());
    assert!(elsewhere.is_valid() && !lock.is_valid());
    assert!(!lock.try_lock().unwrap());
    assert!(!lock.try_lock_for(Duration::ZERO).unwrap());
    assert!(!lab.time.during(|| answered(|| lock.try_lock_for(Duration::from_millis(5)))));
    assert_eq!(lock.fencing_token(), None);
    elsewhere.unlock().unwrap();
    assert!(lock.try_lock_for(Duration::from_secs(1000)).unwrap());
    lock.unlock().unwrap();
}
