//! Guards that own their handle: they do what a borrowed guard does, wherever they are stored.

use crate::support::crew::{HANG, answered, eventually, wait_by};
use crate::support::lab::{Lab, config, on_both_stores};
use redis_dlock::{CancelToken, DLockGenerator, Error, LossCause, OwnedDLockGuard};
use std::collections::HashMap;
use std::time::{Duration, Instant};

on_both_stores!(
    a_function_returns_the_guard_of_a_lock_that_it_made,
    it_counts_with_borrowed_guards,
    every_way_to_lock_has_one,
    dropping_it_lets_others_in,
    its_loss_is_told,
    it_keeps_its_client_alive,
);

fn locked(generator: &DLockGenerator, target: &str) -> OwnedDLockGuard {
    generator.generate_with(config(target, 30_000)).unwrap().lock_owned().unwrap()
}

fn a_function_returns_the_guard_of_a_lock_that_it_made(lab: &Lab) {
    let (generator, elsewhere) = (lab.generator(), lab.generator());
    let mut held: HashMap<_, _> = ["a", "b", "c"].map(|target| (target, locked(&generator, target))).into();
    let is_free = |target: &str| {
        let lock = elsewhere.generate_with(config(target, 30_000)).unwrap();
        lock.try_lock().unwrap().is_some()
    };
    assert!(["a", "b", "c"].iter().all(|target| !is_free(target)));
    assert_eq!(held["b"].lock().key(), "DLOCK_TEST_b");
    held.remove("b").unwrap().unlock().unwrap();
    assert!(!is_free("a") && is_free("b") && !is_free("c"));
    held.into_values().for_each(|guard| guard.unlock().unwrap());
    assert!(["a", "b", "c"].iter().all(|target| is_free(target)));
}

/// Shows: G9.
fn it_counts_with_borrowed_guards(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let outer = lock.lock().unwrap();
    let owned = lock.lock_owned().unwrap();
    assert_eq!((lock.hold_count(), owned.fencing_token()), (2, outer.fencing_token()));
    drop(outer);
    assert!(lock.hold_count() == 1 && owned.is_valid() && owned.ensure_valid().is_ok());
    assert!(owned.remaining() > Duration::from_secs(20) && owned.loss().is_none());
    owned.unlock().unwrap();
    assert_eq!(lock.hold_count(), 0);
}

fn every_way_to_lock_has_one(lab: &Lab) {
    let [lock, elsewhere] = [(); 2].map(|()| lab.generator().generate_with(config("x", 30_000)).unwrap());
    let short = Duration::from_millis(20);
    let cancelled = CancelToken::new();
    cancelled.cancel();
    let guard = elsewhere.lock_owned().unwrap();
    assert!(lock.try_lock_owned().unwrap().is_none());
    assert!(lab.time.during(|| answered(|| lock.try_lock_owned_for(short)).is_none()));
    assert!(lab.time.during(|| answered(|| lock.try_lock_owned_until(Instant::now() + short)).is_none()));
    assert!(lock.lock_owned_cancellable(&cancelled).unwrap().is_none());
    guard.unlock().unwrap();
    // The place in the queue that was given up is taken back first.
    eventually("it is free", || lock.try_lock_owned().unwrap().is_some());
    assert!(lock.try_lock_owned_for(HANG).unwrap().is_some());
    assert!(lock.try_lock_owned_until(Instant::now() + HANG).unwrap().is_some());
    assert!(lock.lock_owned_cancellable(&CancelToken::new()).unwrap().is_some());
    assert_eq!(lock.hold_count(), 0);
}

fn dropping_it_lets_others_in(lab: &Lab) {
    let generator = lab.generator();
    let owned = locked(&generator, "x");
    let lock = generator.generate_with(config("x", 30_000)).unwrap();
    let waiter = wait_by(&lock, move |other| other.lock_owned().unwrap().fencing_token());
    let token = owned.fencing_token();
    drop(owned);
    assert!(waiter.join() > token);
}

/// Shows: G5, G6.
fn its_loss_is_told(lab: &Lab) {
    let owned = lab.generator().generate_with(config("x", 6_000)).unwrap().lock_owned().unwrap();
    let lost = owned.lost();
    lab.delete(owned.lock().key());
    lab.time.recv(&lost);
    assert!(!owned.is_valid() && owned.remaining().is_zero());
    assert_eq!(owned.loss().unwrap().cause, LossCause::Deleted);
    let error = owned.unlock().unwrap_err();
    assert!(error.is_lost() && !error.is_transient() && matches!(error, Error::LeaseLost(_)));
}

fn it_keeps_its_client_alive(lab: &Lab) {
    let generator = lab.generator();
    let owned = locked(&generator, "x");
    drop(generator);
    assert!(owned.is_valid());
    let key = owned.lock().key().to_owned();
    drop(owned);
    eventually("it is released", || lab.holder(&key).is_none());
}
