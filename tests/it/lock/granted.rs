//! Between processes the lock is given by a message: to the first that waits and lives, and to nobody in vain.
//!
//! Leases of an hour: whoever gets the lock in these tests was not asking again, unless it says so.

use crate::support::crew::{Member, eventually, spawn_with, wait_by, wait_for};
use crate::support::lab::{Lab, config, on_both_stores, wait_with};
use crate::support::watched::{Kind, When};
use crate::support::{Asking, LONG, claim};
use parking_lot::Mutex;
use redis_dlock::processor::Operations;
use redis_dlock::{AcquireOutcome, CancelToken, DLockGuard, Error};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const HOUR: u64 = 3_600_000;

on_both_stores!(
    three_processes_are_served_in_the_order_of_their_arrival_by_messages,
    the_dead_are_passed_over,
    who_gives_up_leaves_the_stores_queue,
    a_grant_that_crosses_with_giving_up_is_passed_on,
    an_inbox_that_panics_is_opened_again,
    a_grant_for_a_locker_that_is_being_released_repeats_the_release,
    a_grant_that_is_heard_as_its_tenure_ends_makes_no_loss_of_it,
    a_thread_that_takes_over_a_place_keeps_it,
);

/// Shows: G8, G10.
fn three_processes_are_served_in_the_order_of_their_arrival_by_messages(lab: &Lab) {
    let holder = lab.generator().generate_with(config("x", HOUR)).unwrap();
    let guard = holder.lock().unwrap();
    let entered = Arc::new(Mutex::new(Vec::new()));
    let (watches, crew): (Vec<_>, Vec<_>) = (0..3)
        .map(|number| {
            let (generator, watch) = lab.listening_generator();
            let lock = generator.generate_with(config("x", HOUR)).unwrap();
            let entered = Arc::clone(&entered);
            let member = wait_by(&lock, move |other| {
                let _generator = generator;
                let _guard = other.lock().unwrap();
                entered.lock().push(number);
            });
            (watch, member)
        })
        .unzip();
    guard.unlock().unwrap();
    crew.into_iter().for_each(Member::join);
    assert_eq!(*entered.lock(), [0, 1, 2]);
    for watch in watches {
        // One for the lock of the beginning.
        assert_eq!((watch.count_of(Kind::Acquire), watch.count_of(Kind::Poll)), (2, 0));
    }
    assert_eq!(lab.leftovers(), [""; 0]);
}

/// Shows: G10, L1.
fn the_dead_are_passed_over(lab: &Lab) {
    let holder = lab.generator().generate_with(config("x", HOUR)).unwrap();
    let guard = holder.lock().unwrap();
    let store = lab.processor();
    for n in 0..10 {
        // They stand in the queue, and nobody hears them.
        let (key, locker) = (holder.key(), format!("dead{n}-1"));
        store.ask(&claim(key, &locker, LONG), true, store.limits().command).unwrap();
    }
    let (lock, watch) = lab.listening_lock(config("x", HOUR));
    let waiter = wait_for(&lock);
    guard.unlock().unwrap();
    waiter.join();
    assert_eq!(watch.count_of(Kind::Poll), 0);
    store.close();
}

/// Shows: L2.
fn who_gives_up_leaves_the_stores_queue(lab: &Lab) {
    let holder = lab.generator().generate_with(config("x", HOUR)).unwrap();
    let guard = holder.lock().unwrap();
    let (lock, _) = lab.listening_lock(config("x", HOUR));
    let cancel = CancelToken::new();
    let waiter = wait_with(&lock, &cancel, 1);
    assert_eq!(lab.waiting(lock.key()), 1);
    cancel.cancel();
    assert!(!waiter.join());
    eventually("the queue is gone", || lab.waiting(lock.key()) == 0);
    guard.unlock().unwrap();
    assert_eq!(lab.leftovers(), [""; 0]);
}

/// Shows: L1, L2.
fn a_grant_that_crosses_with_giving_up_is_passed_on(lab: &Lab) {
    let holder = lab.generator().generate_with(config("x", HOUR)).unwrap();
    let guard = holder.lock().unwrap();
    let (lock, watch) = lab.listening_lock(config("x", HOUR));
    let cancel = CancelToken::new();
    let waiter = wait_with(&lock, &cancel, 1);
    let (behind, _watch) = lab.listening_lock(config("x", HOUR));
    let patient = wait_for(&behind);
    // It is on its way out when it is given the lock.
    let leaving = watch.stop_next(Kind::Release, When::Going);
    cancel.cancel();
    assert!(!waiter.join());
    leaving.wait();
    guard.unlock().unwrap();
    leaving.open();
    patient.join();
    eventually("nothing is left", || lab.leftovers().is_empty());
}

/// Shows: L2.
fn a_grant_for_a_locker_that_is_being_released_repeats_the_release(lab: &Lab) {
    let (lock, watch) = lab.listening_lock(config("x", HOUR));
    let (unlock, told) = crossbeam_channel::bounded::<()>(0);
    let holder = spawn_with(&lock, move |other| {
        let guard = other.lock().unwrap();
        told.recv().unwrap_err();
        guard.unlock().unwrap();
    });
    eventually("it holds", || lab.holder(lock.key()).is_some());
    let locker = lab.holder(lock.key()).unwrap().holder;
    let answer = watch.stop_next(Kind::Release, When::Coming);
    drop(unlock);
    answer.wait();
    // Another version of a script left the locker in the queue: now it is granted the key again.
    let (store, key, lease) = (lab.processor(), lock.key(), Duration::from_millis(HOUR));
    let limit = store.limits().command;
    let acquire = |locker: &str, wait| store.ask(&claim(key, locker, lease), wait, limit).unwrap();
    assert!(matches!(acquire("between-1", false), AcquireOutcome::Acquired(_)));
    assert!(matches!(acquire(&locker, true), AcquireOutcome::Busy(_)));
    let heard = watch.heard();
    store.release(&claim(key, "between-1", lease), limit).unwrap();
    eventually("the grant is heard", || watch.heard() > heard);
    answer.open();
    holder.join();
    eventually("nobody holds for nobody", || lab.leftovers().is_empty());
    store.close();
}

/// The poll finds the key before the message of the grant is heard, and that comes when the release is about to be sent.
/// Shows: L2.
fn a_grant_that_is_heard_as_its_tenure_ends_makes_no_loss_of_it(lab: &Lab) {
    type End = fn(DLockGuard<'_>) -> Result<(), Error>;
    let ways: [(bool, End); 3] = [
        (false, |guard| guard.unlock()),
        (false, |guard| {
            drop(guard);
            Ok(())
        }),
        (true, |guard| guard.unlock()),
    ];
    for (others_wait, end) in ways {
        let settings = || config("x", 600).with_local_passes(0);
        let [holder, third] = [(); 2].map(|()| lab.listening_generator().0.generate_with(settings()).unwrap());
        let (lock, watch) = lab.listening_lock(settings());
        let guard = holder.lock().unwrap();
        let waiter = spawn_with(&lock, move |other| {
            let guard = other.lock().unwrap();
            let lost = guard.lost();
            (end(guard), lost.recv())
        });
        eventually("it waits", || lab.waiting(lock.key()) == 1);
        let mut crowd = Vec::new();
        if others_wait {
            // Then the release has a next locker.
            crowd.extend([&third, &lock].map(|lock| spawn_with(lock, |lock| drop(lock.lock().unwrap()))));
            eventually("they wait", || lab.waiting(lock.key()) == 2 && lock.queue_length() == 2);
        }
        let message = watch.stop_next(Kind::Message, When::Coming);
        let release = watch.stop_next(Kind::Release, When::Going);
        guard.unlock().unwrap();
        message.wait();
        release.wait_till_due();
        let heard = watch.heard();
        message.open();
        eventually("the grant is heard", || watch.heard() > heard);
        // Time for a release by anybody else.
        thread::sleep(Duration::from_millis(50));
        release.open();
        let (ended, lost) = waiter.join();
        assert!(ended.is_ok() && lost.is_err(), "{others_wait}: {ended:?}, {lost:?}");
        crowd.into_iter().for_each(Member::join);
        eventually("nothing is left", || lab.leftovers().is_empty());
    }
}

/// Shows: G10.
fn an_inbox_that_panics_is_opened_again(lab: &Lab) {
    // It asks again after a tenth of that.
    const LONGEST: u64 = 20 * 24 * HOUR;
    let holder = lab.generator().generate_with(config("x", LONGEST)).unwrap();
    let (lock, watch) = lab.listening_lock(config("x", LONGEST));
    for round in 1..=2 {
        let guard = holder.lock().unwrap();
        let waiter = spawn_with(&lock, |other| drop(other.lock().unwrap()));
        eventually("it waits", || lock.queue_length() == 1 && lab.waiting(lock.key()) == 1);
        if round == 1 {
            watch.panic_at_next_message();
        }
        guard.unlock().unwrap();
        lab.time.until_soon("it listens again", || watch.listening() == 2);
        waiter.join();
    }
    assert_eq!(watch.count_of(Kind::Poll), 1, "for the grant that was lost with the panic");
}

/// Shows: S4.
fn a_thread_that_takes_over_a_place_keeps_it(lab: &Lab) {
    const SHORT: u64 = 300;
    let holder = lab.generator().generate_with(config("x", HOUR)).unwrap();
    let guard = holder.lock().unwrap();
    let (generator, _) = lab.listening_generator();
    let [short, long] = [SHORT, HOUR].map(|lease| generator.generate_with(config("x", lease)).unwrap());
    let cancel = CancelToken::new();
    let impatient = spawn_with(&cancel, move |token| short.lock_cancellable(token).unwrap().is_some());
    eventually("it waits", || long.queue_length() == 1);
    let patient = wait_for(&long);
    cancel.cancel();
    assert!(!impatient.join());
    // The queue lives for twice the lease with which its place was asked for, unless somebody asks again.
    lab.time.pass(Duration::from_millis(4 * SHORT));
    assert_eq!(lab.waiting(holder.key()), 1);
    guard.unlock().unwrap();
    patient.join();
}
