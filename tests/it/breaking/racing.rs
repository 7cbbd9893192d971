//! Breaks that come at the same time as something else.

use super::orders::{WHY, assert_broken, break_lock, operator, seen, unlooked};
use crate::support::crew::{eventually, spawn, wait_by};
use crate::support::lab::{Lab, is_listener_on, on_both_stores};
use redis_dlock::{BreakOutcome, Error};
use std::collections::BTreeSet;
use std::sync::{Arc, Barrier};

on_both_stores!(
    what_was_seen_too_long_ago_breaks_nothing,
    a_holder_that_releases_in_the_same_moment_has_released_or_was_broken,
    of_several_operators_one_has_broken_it,
    under_load_each_hold_ends_once_and_all_go_on,
);

/// Shows: G2, S3.
fn what_was_seen_too_long_ago_breaks_nothing(lab: &Lab) {
    let lock = lab.generator().generate_with(unlooked()).unwrap();
    let guard = lock.lock().unwrap();
    let old = seen(&lock);
    guard.unlock().unwrap();
    let operator = operator(lab);
    assert_eq!(break_lock(&operator, &lock, &old), BreakOutcome::NotHeldBy { holder: None });
    let guard = lock.lock().unwrap();
    let now = seen(&lock);
    assert_eq!(break_lock(&operator, &lock, &old), BreakOutcome::NotHeldBy { holder: Some(now.clone()) });
    let client = now.rsplit_once('-').unwrap().0;
    assert_eq!(break_lock(&operator, &lock, client), BreakOutcome::NotHeldBy { holder: Some(now) });
    guard.ensure_valid().unwrap();
    guard.unlock().unwrap();
    assert_eq!(lab.leftovers(), [""; 0]);
}

/// Shows: G2, S3.
fn a_holder_that_releases_in_the_same_moment_has_released_or_was_broken(lab: &Lab) {
    let lock = lab.generator().generate_with(unlooked()).unwrap();
    let operator = operator(lab);
    let (mut released, mut broken) = (0, 0);
    for round in 0..300 {
        let guard = lock.lock().unwrap();
        let (locker, start) = (seen(&lock), Arc::new(Barrier::new(2)));
        let breaker = {
            let (operator, lock, start) = (operator.clone(), lock.clone(), Arc::clone(&start));
            spawn(move || {
                start.wait();
                break_lock(&operator, &lock, &locker)
            })
        };
        start.wait();
        (0..round % 30).for_each(|_| std::hint::spin_loop());
        let unlocked = guard.unlock();
        match (unlocked, breaker.join()) {
            (Ok(()), BreakOutcome::NotHeldBy { holder: None }) => released += 1,
            (Err(Error::LeaseLost(loss)), BreakOutcome::Broken { next: None, waiting: 0, .. }) => {
                assert_broken(&loss.cause);
                broken += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(released + broken, 300);
    assert_eq!(lab.leftovers(), [""; 0]);
}

/// Shows: S3.
fn of_several_operators_one_has_broken_it(lab: &Lab) {
    if !is_listener_on() {
        return;
    }
    let lock = lab.generator().generate_with(unlooked()).unwrap();
    let elsewhere = lab.generator().generate_with(unlooked()).unwrap();
    let operators: Vec<_> = (0..4).map(|_| operator(lab)).collect();
    for _ in 0..50 {
        let guard = lock.lock().unwrap();
        let waiter = wait_by(&elsewhere, move |other| other.lock().unwrap().unlock().unwrap());
        let (locker, start) = (seen(&lock), Arc::new(Barrier::new(operators.len())));
        let breakers: Vec<_> = operators
            .iter()
            .map(|operator| {
                let (operator, lock, locker, start) =
                    (operator.clone(), lock.clone(), locker.clone(), Arc::clone(&start));
                spawn(move || {
                    start.wait();
                    break_lock(&operator, &lock, &locker)
                })
            })
            .collect();
        let outcomes: Vec<_> = breakers.into_iter().map(|breaker| breaker.join()).collect();
        let broken = outcomes.iter().filter(|outcome| matches!(outcome, BreakOutcome::Broken { .. })).count();
        assert_eq!(broken, 1, "{outcomes:?}");
        assert!(guard.unlock().is_err());
        waiter.join();
    }
}

/// Threads of three processes lock all the time, and an operator breaks whomever it sees.
/// Shows: G7, L1, L2.
fn under_load_each_hold_ends_once_and_all_go_on(lab: &Lab) {
    if !is_listener_on() {
        return;
    }
    let tokens = Arc::new(parking_lot::Mutex::new(BTreeSet::new()));
    let members: Vec<_> = (0..3)
        .flat_map(|_| {
            let lock = lab.generator().generate_with(unlooked()).unwrap();
            [lock.clone(), lock]
        })
        .map(|lock| {
            let tokens = Arc::clone(&tokens);
            spawn(move || {
                let mut lost = 0;
                for _ in 0..150 {
                    let guard = lock.lock().unwrap();
                    assert!(tokens.lock().insert(guard.fencing_token()), "no token is used twice");
                    match guard.unlock() {
                        Ok(()) => {}
                        Err(Error::LeaseLost(loss)) => {
                            assert_broken(&loss.cause);
                            lost += 1;
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
                lost
            })
        })
        .collect();
    let operator = operator(lab);
    let lock = operator.generate_with(unlooked()).unwrap();
    let mut broken = 0;
    while members.iter().any(|member| !member.is_finished()) {
        let Some(holder) = lock.holder().unwrap() else { continue };
        match operator.break_lock("TEST", "x", &holder.locker, WHY).unwrap() {
            BreakOutcome::Broken { .. } => broken += 1,
            BreakOutcome::NotHeldBy { holder: now } => assert_ne!(now, Some(holder.locker)),
            other => panic!("{other:?}"),
        }
    }
    let lost: u32 = members.into_iter().map(|member| member.join()).sum();
    // A waiter that is broken before it knows of its grant asks anew, and nobody is told.
    assert!(lost <= broken, "{lost} of {broken}");
    eventually("nothing is left", || lab.leftovers().is_empty());
}
