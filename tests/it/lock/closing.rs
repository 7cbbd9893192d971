//! `close()`: nobody gets in any more, who is in stays in.

use crate::support::crew::{Member, eventually, spawn, wait_by};
use crate::support::lab::{Lab, config, on_both_stores};
use crate::support::watched::{Kind, When};
use redis_dlock::{BackendFailure, CancelToken, DistributedReentrantLock, Error};
use std::time::Duration;

on_both_stores!(
    waiters_are_turned_away_at_once,
    nothing_begins_after_the_closing,
    a_hold_goes_on_and_is_renewed,
    who_was_about_to_get_the_lock_is_turned_away_and_leaves_it_free,
    closing_twice_is_closing_once,
    closing_one_generator_is_no_matter_to_another,
    what_could_not_be_released_is_tried_on_a_fresh_connection_at_the_end,
);

/// Starts one waiter of each kind; each tells how its waiting ended.
fn waiters(lock: &DistributedReentrantLock) -> Vec<Member<Result<bool, Error>>> {
    type Wait = fn(&DistributedReentrantLock) -> Result<bool, Error>;
    let ways: [Wait; 4] = [
        |lock| lock.lock().map(|_| true),
        |lock| lock.try_lock_for(Duration::from_secs(1000)).map(|guard| guard.is_some()),
        |lock| lock.lock_cancellable(&CancelToken::new()).map(|guard| guard.is_some()),
        |lock| lock.unguarded().lock().map(|()| true),
    ];
    ways.into_iter().map(|wait| wait_by(lock, wait)).collect()
}

fn is_shut_down<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::ShutDown))
}

/// Shows: L2, L6.
fn waiters_are_turned_away_at_once(lab: &Lab) {
    let (generator, elsewhere) = (lab.generator(), lab.generator());
    let [here, there] = ["here", "there"].map(|target| generator.generate_with(config(target, 600_000)).unwrap());
    let remote = elsewhere.generate_with(config("there", 600_000)).unwrap();
    let (guard, remote_guard) = (here.lock().unwrap(), remote.lock().unwrap());
    // Those who wait for this process, and those who wait for another: nothing that is due would wake either for a minute.
    let crew: Vec<_> = [waiters(&here), waiters(&there)].into_iter().flatten().collect();
    spawn(move || generator.close()).join();
    assert!(crew.into_iter().map(Member::join).all(|result| is_shut_down(&result)));
    assert_eq!((here.queue_length(), there.queue_length()), (0, 0));
    assert!(guard.is_valid() && remote_guard.is_valid());
    guard.unlock().unwrap();
    remote_guard.unlock().unwrap();
    assert_eq!(lab.leftovers(), [""; 0]);
}

fn nothing_begins_after_the_closing(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let lock = generator.generate_with(config("x", 30_000)).unwrap();
    generator.close();
    assert!(is_shut_down(&lock.lock()));
    assert!(is_shut_down(&lock.try_lock()));
    assert!(is_shut_down(&lock.try_lock_for(Duration::from_secs(1000))));
    assert!(is_shut_down(&lock.lock_cancellable(&CancelToken::new())));
    assert!(is_shut_down(&lock.unguarded().lock()));
    assert!(is_shut_down(&lock.unguarded().try_lock()));
    assert!(is_shut_down(&generator.generate("TEST", "y")));
    assert!(matches!(lock.unguarded().unlock(), Err(Error::NotHeld { .. })));
    assert_eq!(watch.count(), 0);
}

/// Shows: G1, G3, G9.
fn a_hold_goes_on_and_is_renewed(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let lock = generator.generate_with(config("x", 1000).with_renew_at(0.1)).unwrap();
    let free = generator.generate_with(config("free", 200)).unwrap();
    let elsewhere = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let guard = lock.lock().unwrap();
    generator.close();
    assert!(is_shut_down(&free.lock()) && is_shut_down(&free.try_lock()));
    // Longer than a lease.
    watch.wait_for_more(Kind::Extend, 12);
    assert!(guard.is_valid());
    let inner = lock.lock().unwrap();
    assert_eq!(inner.fencing_token(), guard.fencing_token());
    assert!(elsewhere.try_lock().unwrap().is_none());
    inner.unlock().unwrap();
    guard.unlock().unwrap();
    assert!(elsewhere.try_lock().unwrap().is_some());
    assert!(is_shut_down(&lock.lock()));
}

/// Shows: L2, L6.
fn who_was_about_to_get_the_lock_is_turned_away_and_leaves_it_free(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let lock = generator.generate_with(config("x", 300)).unwrap();
    let elsewhere = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let remote = elsewhere.lock().unwrap();
    let waiter = wait_by(&lock, move |other| other.lock().map(drop));
    let asking = watch.stop_next(Kind::Question, When::Going);
    asking.wait_till_due();
    remote.unlock().unwrap();
    let granted = watch.stop_next(Kind::Question, When::Coming);
    asking.open();
    granted.wait();
    let closer = spawn(move || generator.close());
    // At once: a command that is under way is the closer's matter.
    assert!(is_shut_down(&waiter.join()));
    granted.open();
    closer.join();
    eventually("the lock is free", || lab.leftovers().is_empty());
}

fn closing_twice_is_closing_once(lab: &Lab) {
    let generator = lab.generator();
    let lock = generator.generate_with(config("x", 30_000)).unwrap();
    let guard = lock.lock().unwrap();
    generator.close();
    generator.close();
    guard.unlock().unwrap();
    generator.close();
    drop(generator);
    assert!(is_shut_down(&lock.lock()));
    assert_eq!(lab.leftovers(), [""; 0]);
}

fn closing_one_generator_is_no_matter_to_another(lab: &Lab) {
    let (closed, open) = (lab.generator(), lab.generator());
    let lock = open.generate_with(config("x", 30_000)).unwrap();
    let guard = lock.lock().unwrap();
    closed.close();
    guard.unlock().unwrap();
    lock.lock().unwrap().unlock().unwrap();
}

/// Shows: G11, L2.
fn what_could_not_be_released_is_tried_on_a_fresh_connection_at_the_end(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let lock = generator.generate_with(config("x", 30_000)).unwrap();
    let guard = lock.lock().unwrap();
    watch.fail(BackendFailure::Unknown);
    assert!(guard.unlock().is_err());
    // The pauses of the retry thread grow.
    watch.wait_for_more(Kind::Release, 9);
    let tries = [(); 2].map(|()| watch.stop_next(Kind::Release, When::Going));
    let closer = spawn(move || generator.close());
    let [first, second] = tries;
    first.wait();
    first.open();
    second.wait();
    watch.heal();
    second.open();
    closer.join();
    assert_eq!(lab.leftovers(), [""; 0]);
}
