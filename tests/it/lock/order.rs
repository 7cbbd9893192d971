//! Fairness: the threads of one process get the lock strictly in order of arrival.

use crate::support::crew::{Member, eventually, spawn_with};
use crate::support::lab::{Lab, config, on_both_stores};
use crate::support::watched::{Kind, When};
use parking_lot::Mutex;
use redis_dlock::{CancelToken, DistributedReentrantLock};
use std::sync::Arc;
use std::time::Duration;

on_both_stores!(
    ten_local_threads_get_it_in_order_of_arrival,
    every_way_to_wait_stands_in_the_same_queue,
    who_unlocks_and_locks_again_stands_behind_those_who_wait,
    who_came_while_another_asked_stands_behind_it,
    try_lock_does_not_overtake,
);

type Entered = Arc<Mutex<Vec<usize>>>;

/// Starts a thread that locks, notes its number, and unlocks; returns when it waits as the `place`-th.
fn queue_up(lock: &DistributedReentrantLock, entered: &Entered, number: usize, place: usize) -> Member<()> {
    let entered = Arc::clone(entered);
    let member = spawn_with(lock, move |lock| {
        let guard = lock.lock().unwrap();
        entered.lock().push(number);
        guard.unlock().unwrap();
    });
    eventually("the thread waits", || lock.queue_length() == place);
    member
}

/// Shows: G8.
fn ten_local_threads_get_it_in_order_of_arrival(lab: &Lab) {
    for (is_held_here, case) in [(true, "this process lets go"), (false, "another process lets go")] {
        let lock = lab.generator().generate_with(config(case, 3000)).unwrap();
        let elsewhere = lab.generator().generate_with(config(case, 30_000)).unwrap();
        let guard = if is_held_here { lock.lock().unwrap() } else { elsewhere.lock().unwrap() };
        let entered = Entered::default();
        let crew: Vec<_> = (0..10).map(|number| queue_up(&lock, &entered, number, number + 1)).collect();
        guard.unlock().unwrap();
        crew.into_iter().for_each(|member| lab.join(member));
        assert_eq!(*entered.lock(), (0..10).collect::<Vec<_>>(), "{case}");
        assert_eq!(lock.queue_length(), 0, "{case}");
    }
}

/// Shows: G8.
fn every_way_to_wait_stands_in_the_same_queue(lab: &Lab) {
    const FOR_EVER: Duration = Duration::from_secs(1000);
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let guard = lock.lock().unwrap();
    let entered = Entered::default();
    let crew: Vec<_> = (0..8)
        .map(|number| {
            let entered = Arc::clone(&entered);
            let member = spawn_with(&lock, move |lock| {
                let unguarded = lock.unguarded();
                let never = CancelToken::new();
                let held = match number {
                    0 | 7 => Some(lock.lock().unwrap()),
                    1 => lock.try_lock_for(FOR_EVER).unwrap(),
                    2 => lock.try_lock_for(Duration::MAX).unwrap(),
                    3 => lock.try_lock_until(std::time::Instant::now() + FOR_EVER).unwrap(),
                    4 => lock.lock_cancellable(&never).unwrap(),
                    5 => {
                        unguarded.lock().unwrap();
                        None
                    }
                    _ => {
                        assert!(unguarded.try_lock_for(FOR_EVER).unwrap());
                        None
                    }
                };
                entered.lock().push(number);
                assert_eq!(lock.hold_count(), 1);
                if held.is_none() {
                    unguarded.unlock().unwrap();
                }
            });
            eventually("the thread waits", || lock.queue_length() == number + 1);
            member
        })
        .collect();
    guard.unlock().unwrap();
    crew.into_iter().for_each(Member::join);
    assert_eq!(*entered.lock(), (0..8).collect::<Vec<_>>());
}

/// Shows: G8.
fn who_unlocks_and_locks_again_stands_behind_those_who_wait(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let mut guard = lock.lock().unwrap();
    let entered = Entered::default();
    let mut expected = Vec::new();
    for round in 0..30 {
        let waiter = queue_up(&lock, &entered, 2 * round, 1);
        guard.unlock().unwrap();
        guard = lock.lock().unwrap();
        entered.lock().push(2 * round + 1);
        waiter.join();
        expected.extend([2 * round, 2 * round + 1]);
    }
    assert_eq!(*entered.lock(), expected);
    guard.unlock().unwrap();
}

/// Shows: G8, S7.
fn who_came_while_another_asked_stands_behind_it(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let lock = generator.generate_with(config("x", 3000)).unwrap();
    let elsewhere = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let guard = elsewhere.lock().unwrap();

    let asking = watch.stop_next(Kind::Acquire, When::Coming);
    let entered = Entered::default();
    let first = queue_up(&lock, &entered, 0, 0);
    asking.wait();
    let others: Vec<_> = (1..5).map(|number| queue_up(&lock, &entered, number, number)).collect();
    // It hears that the lock is busy, and stands before those who came later.
    asking.open();
    eventually("the first waits", || lock.queue_length() == 5);
    guard.unlock().unwrap();
    lab.join(first);
    others.into_iter().for_each(|member| lab.join(member));
    assert_eq!(*entered.lock(), [0, 1, 2, 3, 4]);
}

/// Shows: G8, S7.
fn try_lock_does_not_overtake(lab: &Lab) {
    let (lock, watch) = lab.deaf_lock(config("x", 30_000).with_local_passes(0));
    // Nothing is passed on.
    let guard = lock.lock().unwrap();
    let entered = Entered::default();
    let waiter = queue_up(&lock, &entered, 0, 1);
    // The key is free in the store, and the waiter is about to ask for it.
    let asking = watch.stop_next(Kind::Acquire, When::Going);
    guard.unlock().unwrap();
    asking.wait();
    assert!(lab.holder(lock.key()).is_none());
    assert!(lock.try_lock().unwrap().is_none());
    assert!(lock.try_lock_for(Duration::ZERO).unwrap().is_none());
    asking.open();
    waiter.join();
}
