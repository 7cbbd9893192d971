//! The embedded store is set unreachable and comes back: what a program sees of a server that is down.

use super::{LEASE, Scene, cause, settings, until, waits};
use crate::support::crew::{HANG, spawn_with};
use crate::support::lab::{builder, is_listener_on};
use crate::support::watched::Watched;
use crate::support::{Asking, claim};
use redis_dlock::processor::{Limit, Operations};
use redis_dlock::{
    BackendFailure, CancelToken, Error, LockProcessor, LossCause, MemoryLockProcessor, Message, Request,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest pause before a request that failed is repeated.
const PAUSE: Duration = Duration::from_secs(1);

fn is_unreachable<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Backend { failure: BackendFailure::NotExecuted, .. }))
}

#[test]
fn no_request_is_executed_and_the_store_keeps_what_it_has() {
    let store = MemoryLockProcessor::new();
    let limit = store.limits().command;
    let acquire = |locker| claim("k", locker, LEASE);
    let release = claim("k", "a-1", LEASE);
    let probe = claim("k", "a-1", LEASE);
    store.ask(&acquire("a-1"), true, limit).unwrap();
    store.set_reachable(false);
    assert!(is_unreachable(&store.ask(&acquire("b-1"), true, limit)));
    assert!(is_unreachable(&store.clone().release(&release, limit)), "clones share the connection");
    assert!(is_unreachable(&store.probe(&probe, limit)));
    assert!(is_unreachable(&store.inspect("k", limit)));
    assert!(is_unreachable(&store.queue().unwrap().check_inbox("b", "k", limit)));
    assert!(is_unreachable(&store.open("b", limit)));
    let results = store.run(&[Request::Probe(probe), Request::Release(release)], Limit::Attempt(limit));
    assert_eq!(results.iter().filter(|result| is_unreachable(result)).count(), 2);
    assert_eq!(store.keys(), ["k"], "an administrator sees it");
    store.set_reachable(true);
    let inspection = store.inspect("k", limit).unwrap();
    assert_eq!((inspection.holder.unwrap().as_str(), inspection.waiting), ("a-1", 0));
}

#[test]
fn only_the_inboxes_of_a_connection_break_with_it() {
    let here = MemoryLockProcessor::new();
    let there = here.another_connection();
    let limit = here.limits().command;
    let (mut ours, mut theirs) = (here.open("a", limit).unwrap(), there.open("b", limit).unwrap());
    there.set_reachable(false);
    assert!(theirs.next(HANG).is_err());
    let acquire = |locker| claim("k", locker, LEASE);
    here.ask(&acquire("a-1"), true, limit).unwrap();
    here.ask(&acquire("c-1"), true, limit).unwrap();
    assert!(matches!(ours.next(HANG), Ok(Some(Message::Contended { .. }))));
    there.set_reachable(true);
    assert!(theirs.next(HANG).is_err(), "a broken inbox stays broken");
    assert_eq!(there.open("b", limit).unwrap().next(Duration::ZERO).unwrap(), None);
}

/// Shows: L3.
#[test]
fn whoever_waits_gets_the_lock_when_the_store_is_back() {
    for _ in 0..300 {
        let scene = Scene::new();
        let lock = scene.lock();
        scene.store.set_reachable(false);
        assert!(is_unreachable(&lock.try_lock()));
        let waiter = waits(&lock, 1, |lock| lock.lock().map(drop));
        scene.clock.advance(LEASE);
        assert_eq!(lock.queue_length(), 1);
        scene.store.set_reachable(true);
        scene.clock.advance(PAUSE);
        waiter.join().unwrap();
    }
}

/// Shows: G12, L3.
#[test]
fn a_wait_with_a_limit_ends_with_the_error() {
    for _ in 0..300 {
        let scene = Scene::new();
        let lock = scene.lock();
        scene.store.set_reachable(false);
        let waiter = waits(&lock, 1, |lock| lock.try_lock_for(LEASE).map(|got| got.is_some()));
        scene.clock.advance(LEASE);
        assert!(is_unreachable(&waiter.join()));
    }
}

/// The clock stands still, so a limit by the clock would never end.
/// Shows: G12.
#[test]
fn a_wait_with_a_limit_ends_though_nobody_moves_the_clock() {
    let limit = Duration::from_millis(20);
    let scene = Scene::new();
    let lock = scene.lock();
    scene.store.set_reachable(false);
    let never = CancelToken::new();
    assert!(is_unreachable(&lock.try_lock_for(limit)));
    assert!(is_unreachable(&lock.try_lock_until(Instant::now() + limit)));
    assert!(is_unreachable(&lock.try_lock_cancellable_for(limit, &never)));
    assert!(is_unreachable(&lock.unguarded().try_lock_for(limit)));
    assert!(is_unreachable(&lock.try_lock_owned_for(limit)));
    assert!(is_unreachable(&lock.try_with_for(limit, |_| unreachable!("nobody can lock"))));
    assert_eq!(lock.queue_length(), 0);
}

/// As above, for a store that is cut off from a client that waits already, and has had an answer.
/// Shows: G12.
#[test]
fn a_wait_that_has_begun_ends_when_the_store_goes_and_the_clock_stands_still() {
    let scene = Scene::new();
    let (holder, (lock, wire)) = (scene.lock(), scene.lock_on_a_wire());
    let guard = holder.lock().unwrap();
    let waiter = waits(&lock, 1, |lock| lock.try_lock_for(Duration::from_secs(1)).map(|got| got.is_some()));
    until("it stands in the queue", || !is_listener_on() || holder.inspect().unwrap().waiting == 1);
    wire.set_reachable(false);
    assert!(is_unreachable(&waiter.join()));
    guard.unlock().unwrap();
}

/// Only an unreachable store ends a wait in real time: a lock that is held does not, so that a test decides when.
#[test]
fn a_wait_for_a_holder_goes_on_until_the_clock_is_moved() {
    let limit = Duration::from_millis(20);
    let scene = Scene::new();
    let (holder, (lock, watch)) = (scene.lock(), scene.watched_lock());
    let guard = holder.lock().unwrap();
    let waiter = waits(&lock, 1, move |lock| lock.try_lock_for(limit).map(|got| got.is_some()));
    let asked = watch.count();
    until("the limit has passed in real time, and the store was asked again", || watch.count() >= asked + 3);
    assert!(!waiter.is_finished());
    scene.clock.advance(limit);
    assert!(!waiter.join().unwrap());
    guard.unlock().unwrap();
}

/// Shows: G1, G5.
#[test]
fn what_is_held_is_lost_at_its_deadline_and_not_before() {
    for _ in 0..300 {
        let scene = Scene::new();
        let ((cut_off, wire), other) = (scene.lock_on_a_wire(), scene.lock());
        let guard = cut_off.lock().unwrap();
        let lost = guard.lost();
        wire.set_reachable(false);
        scene.clock.advance(LEASE * 4 / 5);
        assert!(guard.is_valid());
        assert!(other.try_lock().unwrap().is_none());
        scene.clock.advance(LEASE / 5);
        lost.recv_timeout(HANG).expect("nobody could renew it");
        assert!(other.try_lock().unwrap().is_some());
        assert_eq!(cause(guard.unlock()), LossCause::Deadline);
    }
}

/// Shows: G11, L2.
#[test]
fn a_release_that_failed_is_repeated() {
    for _ in 0..30 {
        let scene = Scene::new();
        let lock = scene.lock();
        let guard = lock.lock().unwrap();
        scene.store.set_reachable(false);
        assert!(is_unreachable(&guard.unlock()));
        assert_eq!(scene.store.keys(), [lock.key()]);
        scene.store.set_reachable(true);
        scene.clock.advance(PAUSE);
        until("it is released", || scene.store.keys().is_empty());
    }
}

/// Shows: L1.
#[test]
fn grants_are_heard_again() {
    if !is_listener_on() {
        return;
    }
    for _ in 0..100 {
        let scene = Scene::new();
        let wire = scene.store.another_connection();
        let (processor, watch) = Watched::new(Arc::new(wire.clone()));
        let generator = builder().clock(scene.clock.clone()).build(processor).unwrap();
        let (holder, lock) = (scene.lock(), generator.generate_with(settings()).unwrap());
        let guard = holder.lock().unwrap();
        let waiter = spawn_with(&lock, |other| drop(other.lock().unwrap()));
        until("the inbox is open", || watch.listening() == 1);
        wire.set_reachable(false);
        wire.set_reachable(true);
        scene.clock.advance(PAUSE);
        until("the inbox is open again", || watch.listening() == 2);
        until("it stands in the queue", || scene.store.inspect(lock.key(), LEASE).unwrap().waiting == 1);
        guard.unlock().unwrap();
        waiter.join();
    }
}
