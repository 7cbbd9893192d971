//! Reentry: a hold count for each thread, kept without the store.

use crate::support::crew::{eventually, spawn, spawn_with, wait_by};
use crate::support::lab::{Lab, config, on_both_stores};
use crate::support::watched::Kind;
use redis_dlock::{CancelToken, DistributedReentrantLock, Error};
use std::time::{Duration, Instant};

on_both_stores!(
    every_lock_counts_up_and_every_unlock_down,
    reentry_never_asks_the_store,
    every_way_to_lock_reenters,
    a_count_is_its_threads_own,
    a_waiting_thread_gets_in_only_after_the_last_unlock,
    a_cancelled_token_comes_before_reentry,
    a_hold_without_reentry_is_not_entered_again_whoever_gave_it,
);

fn every_lock_counts_up_and_every_unlock_down(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    assert_eq!(lock.hold_count(), 0);
    let mut guards = Vec::new();
    for count in 1..=100 {
        guards.push(lock.lock().unwrap());
        assert_eq!(lock.hold_count(), count);
    }
    while let Some(guard) = guards.pop() {
        assert!(lock.is_held_by_current_thread() && lab.holder(lock.key()).is_some());
        guard.unlock().unwrap();
        assert_eq!(lock.hold_count(), guards.len());
    }
    assert!(!lock.is_held_by_current_thread());
    assert_eq!(lab.leftovers(), [""; 0]);
}

/// Shows: G9.
fn reentry_never_asks_the_store(lab: &Lab) {
    let (lock, watch) = lab.watched_lock(config("x", 600_000));
    let outer = lock.lock().unwrap();
    assert_eq!(watch.count(), 1);
    let inner: Vec<_> = (0..1000).map(|_| lock.lock().unwrap()).collect();
    assert!(inner.iter().all(|guard| guard.fencing_token() == outer.fencing_token()));
    drop(inner);
    assert_eq!(watch.count(), 1, "{:?}", watch.calls());
    outer.unlock().unwrap();
    assert_eq!((watch.count_of(Kind::Acquire), watch.count_of(Kind::Release), watch.count()), (1, 1, 2));
}

fn every_way_to_lock_reenters(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let unguarded = lock.unguarded();
    let past = Instant::now();
    let guards = [
        lock.lock().unwrap(),
        lock.try_lock().unwrap().unwrap(),
        lock.try_lock_for(Duration::ZERO).unwrap().unwrap(),
        lock.try_lock_for(Duration::MAX).unwrap().unwrap(),
        lock.try_lock_until(past).unwrap().unwrap(),
        lock.lock_cancellable(&CancelToken::new()).unwrap().unwrap(),
    ];
    unguarded.lock().unwrap();
    assert!(unguarded.try_lock().unwrap());
    assert!(unguarded.try_lock_for(Duration::ZERO).unwrap());
    assert_eq!(lock.hold_count(), guards.len() + 3);
    drop(guards);
    assert_eq!(lock.hold_count(), 3);
    for _ in 0..3 {
        unguarded.unlock().unwrap();
    }
    assert_eq!(lab.leftovers(), [""; 0]);
}

fn a_count_is_its_threads_own(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let _guards = [lock.lock().unwrap(), lock.lock().unwrap()];
    let other = lock.clone();
    let seen =
        spawn(move || (other.hold_count(), other.is_held_by_current_thread(), other.is_locked().unwrap())).join();
    assert_eq!(seen, (0, false, true));
    assert_eq!(lock.hold_count(), 2);
}

/// Shows: G1, G7.
fn a_waiting_thread_gets_in_only_after_the_last_unlock(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let (outer, inner) = (lock.lock().unwrap(), lock.lock().unwrap());
    let waiter = wait_by(&lock, move |other| other.lock().unwrap().fencing_token());
    let token = outer.fencing_token();
    inner.unlock().unwrap();
    assert_eq!((lock.queue_length(), lock.hold_count()), (1, 1));
    assert!(!waiter.is_finished());
    outer.unlock().unwrap();
    assert!(waiter.join() > token);
}

/// `lockInterruptibly` prefers the interrupt to the reentry, too.
fn a_cancelled_token_comes_before_reentry(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let _guard = lock.lock().unwrap();
    let cancel = CancelToken::new();
    cancel.cancel();
    assert!(lock.lock_cancellable(&cancel).unwrap().is_none());
    assert_eq!(lock.hold_count(), 1);
}

/// Tries every way to lock as the thread that holds already.
fn is_refused_everywhere(lock: &DistributedReentrantLock) {
    fn refused<T>(result: Result<T, Error>) -> bool {
        matches!(result, Err(Error::AlreadyHeld { key, .. }) if key.ends_with("_x"))
    }
    let (second, cancel) = (Duration::from_secs(1), CancelToken::new());
    assert!(refused(lock.lock()));
    assert!(refused(lock.try_lock()));
    assert!(refused(lock.try_lock_for(second)));
    assert!(refused(lock.try_lock_until(Instant::now() + second)));
    assert!(refused(lock.lock_cancellable(&cancel)));
    assert!(refused(lock.lock_owned()));
    assert!(refused(lock.try_lock_owned()));
    assert!(refused(lock.unguarded().lock()));
    assert!(refused(lock.with(|_| ())));
    assert!(refused(lock.try_with(|_| ())));
    assert_eq!(lock.hold_count(), 1);
}

/// A hold begins in four ways: by the store, by another thread of this process, by another process, and as one that lingers.
fn a_hold_without_reentry_is_not_entered_again_whoever_gave_it(lab: &Lab) {
    let (generator, _watch) = lab.listening_generator();
    let once = || config("x", 30_000).with_reentry(false).with_linger(Duration::from_secs(30));
    let lock = generator.generate_with(once()).unwrap();
    let hold = || {
        let guard = lock.lock().unwrap();
        is_refused_everywhere(&lock);
        guard
    };
    let (stored, other) = (hold(), lab.generator().generate_with(config("x", 30_000)).unwrap());
    let waiter = |lock: &DistributedReentrantLock| {
        spawn_with(lock, move |lock| lock.with(|_| is_refused_everywhere(lock)).unwrap())
    };
    let next = waiter(&lock);
    eventually("it waits", || lock.queue_length() == 1);
    stored.unlock().unwrap();
    next.join();
    let lingered = hold();
    lingered.unlock().unwrap();
    let foreign = other.lock().unwrap();
    let next = waiter(&lock);
    eventually("it waits", || lab.waiting(lock.key()) == 1);
    foreign.unlock().unwrap();
    next.join();
    // The other handle's hold is not bound to it.
    let reentrant = generator.generate_with(config("x", 30_000)).unwrap();
    let guard = reentrant.lock().unwrap();
    assert!(reentrant.try_lock().unwrap().is_some());
    guard.unlock().unwrap();
}
