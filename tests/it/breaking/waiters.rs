//! Who has the lock when it was taken from its holder.

use super::orders::{assert_broken, break_lock, operator, probed, seen, take_from_holder, unlooked};
use crate::support::cause;
use crate::support::crew::{HANG, Member, eventually, spawn, wait_by};
use crate::support::lab::{Lab, is_listener_on, on_both_stores};
use redis_dlock::{BreakOutcome, DistributedReentrantLock};

on_both_stores!(
    a_process_that_waits_has_it_at_once_with_a_greater_token,
    processes_get_it_in_their_order,
    threads_of_the_broken_process_wait_for_the_end_of_its_hold_and_go_on,
    a_holder_that_has_the_lock_by_a_hand_over_is_broken_as_any_other,
    a_lock_delay_does_not_keep_it,
);

/// A thread that takes the lock and tells the token.
fn waiter(lock: &DistributedReentrantLock) -> Member<u64> {
    wait_by(lock, |other| {
        let guard = other.lock().unwrap();
        let token = guard.fencing_token();
        guard.unlock().unwrap();
        token
    })
}

/// A client's lock whose waiter stands in the store's queue.
fn queued(lab: &Lab, place: u64) -> (DistributedReentrantLock, Member<u64>) {
    let lock = lab.generator().generate_with(unlooked()).unwrap();
    let member = waiter(&lock);
    eventually("it stands in the queue", || lab.waiting(lock.key()) == place);
    (lock, member)
}

/// Leases are an hour, so nothing but the hand-over gives the lock on.
/// Shows: G7, G10.
fn a_process_that_waits_has_it_at_once_with_a_greater_token(lab: &Lab) {
    if !is_listener_on() {
        return;
    }
    let here = lab.generator().generate_with(unlooked()).unwrap();
    let guard = here.lock().unwrap();
    let (there, waiter) = queued(lab, 1);
    let next = take_from_holder(lab, &here).expect("it was given away");
    assert!(waiter.join() > guard.fencing_token());
    assert_broken(&cause(guard.unlock()));
    assert!(!next.is_empty() && there.holder().unwrap().is_none());
    assert_eq!(lab.leftovers(), [""; 0]);
}

/// Shows: G8.
fn processes_get_it_in_their_order(lab: &Lab) {
    if !is_listener_on() {
        return;
    }
    let here = lab.generator().generate_with(unlooked()).unwrap();
    let guard = here.lock().unwrap();
    let waiters: Vec<_> = (1..=3).map(|place| queued(lab, place)).collect();
    assert!(matches!(break_lock(&operator(lab), &here, &seen(&here)), BreakOutcome::Broken { waiting: 2, .. }));
    let tokens: Vec<_> = waiters.into_iter().map(|(_lock, waiter)| waiter.join()).collect();
    assert!(tokens.is_sorted() && tokens[0] > guard.fencing_token(), "{tokens:?}");
    assert!(guard.unlock().is_err());
}

/// A lost hold keeps the threads of its own process out until it is unlocked.
/// Shows: L3.
fn threads_of_the_broken_process_wait_for_the_end_of_its_hold_and_go_on(lab: &Lab) {
    let here = lab.generator().generate_with(probed()).unwrap();
    for _ in 0..3 {
        let guard = here.lock().unwrap();
        let waiters = [waiter(&here), waiter(&here)];
        take_from_holder(lab, &here);
        // Until it knows, it passes the lock on among its threads.
        lab.time.recv(&guard.lost());
        let elsewhere = lab.generator().generate_with(unlooked()).unwrap();
        let token = elsewhere.lock().unwrap().fencing_token();
        let broken = guard.fencing_token();
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        assert_broken(&cause(guard.unlock()));
        // In small steps: a lease is over at once otherwise if a thread that is given the lock cannot run yet.
        lab.time.until_soon("they have had it", || waiters.iter().all(Member::is_finished));
        assert!(waiters.into_iter().all(|waiter| waiter.join() > token.max(broken)));
    }
    eventually("nothing is left", || lab.leftovers().is_empty());
}

fn a_holder_that_has_the_lock_by_a_hand_over_is_broken_as_any_other(lab: &Lab) {
    if !is_listener_on() {
        return;
    }
    let here = lab.generator().generate_with(unlooked()).unwrap();
    let there = lab.generator().generate_with(unlooked()).unwrap();
    let guard = here.lock().unwrap();
    let other = there.clone();
    let (say, held) = crossbeam_channel::bounded(1);
    let waiter = spawn(move || {
        let guard = other.lock().unwrap();
        say.send(()).unwrap();
        // It listens, for it has waited.
        guard.lost().recv().unwrap();
        assert_broken(&cause(guard.unlock()));
    });
    eventually("it waits", || lab.waiting(here.key()) == 1);
    guard.unlock().unwrap();
    // One that does not know yet that it has the lock asks anew.
    held.recv_timeout(HANG).expect("the other one has it");
    assert_eq!(take_from_holder(lab, &here), None);
    waiter.join();
}

fn a_lock_delay_does_not_keep_it(lab: &Lab) {
    let delayed = unlooked().with_lock_delay(std::time::Duration::from_secs(60));
    let here = lab.generator().generate_with(delayed).unwrap();
    let guard = here.lock().unwrap();
    assert_eq!(take_from_holder(lab, &here), None);
    assert!(lab.generator().generate_with(unlooked()).unwrap().try_lock().unwrap().is_some());
    assert_broken(&cause(guard.unlock()));
}
