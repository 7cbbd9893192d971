//! What clients say of a lock, on every store.

use super::asking::{LEASE, config};
use crate::support::crew::eventually;
use crate::support::lab::{Lab, is_listener_on, on_both_stores};
use redis_dlock::{DLockGenerator, Description, Party};
use std::thread;

on_both_stores!(
    clients_of_one_process_are_described,
    waiting_threads_are_named_with_their_times_up_to_a_bound,
    a_lock_that_lingers_says_so,
);

fn client(lab: &Lab) -> DLockGenerator {
    lab.builder().build(lab.processor()).unwrap()
}

/// Describes a lock until it is described so.
fn described(lab: &Lab, asker: &DLockGenerator, is_so: impl Fn(&Description) -> bool) -> Description {
    let mut last = None;
    lab.time.until_soon("the lock is described so", || {
        let found = asker.describe("DESCRIBE", "x").unwrap();
        let done = is_so(&found);
        last = Some(found);
        done
    });
    last.unwrap()
}

/// Describes a lock until its holder has answered.
fn holder(lab: &Lab, asker: &DLockGenerator) -> Party {
    described(lab, asker, |found| found.holder.as_ref().is_some_and(|holder| holder.told.is_some())).holder.unwrap()
}

fn clients_of_one_process_are_described(lab: &Lab) {
    if !is_listener_on() {
        return;
    }
    let [one, two, asker] = [(); 3].map(|()| client(lab));
    let [first, second] =
        [(&one, "first"), (&two, "second")].map(|(generator, why)| generator.generate_with(config("x", why)).unwrap());
    let guard = first.lock().unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| drop(second.lock().unwrap()));
        }
        let found = described(lab, &asker, |found| {
            let waits = |party: &Party| party.told.as_ref().is_some_and(|told| told.waiting_threads == 2);
            found.waiting.first().is_some_and(waits)
                && found.holder.as_ref().is_some_and(|holder| holder.told.is_some())
        });
        assert_eq!(found.waiting[0].told.as_ref().unwrap().reason.as_deref(), Some("second"));
        assert_eq!(found.holder.unwrap().told.unwrap().reason.as_deref(), Some("first"));
        let listed: Vec<_> = asker.list("DESCRIBE_?").map(Result::unwrap).collect();
        assert_eq!((listed.len(), listed[0].waiting), (1, 1));
        guard.unlock().unwrap();
    });
    // Its own lock is described without a message.
    let _guard = first.lock().unwrap();
    let is_written = |found: &Description| found.holder.as_ref().is_some_and(|holder| holder.client.is_some());
    let own = described(lab, &one, is_written).holder.unwrap();
    assert!(own.is_local && own.told.unwrap().hold_count == 1);
    let of_another = described(lab, &asker, is_written).holder.unwrap().client.unwrap();
    assert_eq!(of_another.pid, Some(std::process::id()));
}

/// Of one process more threads wait than an answer names.
fn waiting_threads_are_named_with_their_times_up_to_a_bound(lab: &Lab) {
    if !is_listener_on() {
        return;
    }
    let [one, asker] = [(); 2].map(|()| client(lab));
    let lock = one.generate_with(config("x", "why")).unwrap();
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let wait = |n: usize| {
            let waits = || drop(lock.lock().unwrap());
            thread::Builder::new().name(format!("waiter {n}")).spawn_scoped(scope, waits).unwrap();
            eventually("it waits", || lock.queue_length() == n + 1);
        };
        (0..3).for_each(wait);
        for asker in [&one, &asker] {
            let told = holder(lab, asker).told.unwrap();
            let names: Vec<_> = told.waiters.iter().map(|waiter| waiter.thread.as_deref().unwrap()).collect();
            assert_eq!(names, ["waiter 0", "waiter 1", "waiter 2"]);
            assert!(told.waiters.iter().all(|waiter| waiter.thread_id.is_some()));
            assert!(told.waiters.is_sorted_by_key(|waiter| std::cmp::Reverse(waiter.waits_for)), "{told:?}");
            assert_eq!(told.waiters[0].waits_for.as_millis(), told.first_waits_for.unwrap().as_millis());
        }
        (3..20).for_each(wait);
        for asker in [&one, &asker] {
            let told = holder(lab, asker).told.unwrap();
            assert_eq!((told.waiters.len(), told.waiting_threads), (16, 20));
        }
        guard.unlock().unwrap();
    });
}

fn a_lock_that_lingers_says_so(lab: &Lab) {
    if !is_listener_on() {
        return;
    }
    let [one, asker] = [(); 2].map(|()| client(lab));
    let lock = one.generate_with(config("x", "why").with_linger(LEASE)).unwrap();
    lab.time.until_soon("it lingers", || {
        drop(lock.lock().unwrap());
        let found = asker.describe("DESCRIBE", "x").unwrap().holder;
        found.and_then(|holder| holder.told).is_some_and(|told| told.lingering && told.held_for.is_none())
    });
}
