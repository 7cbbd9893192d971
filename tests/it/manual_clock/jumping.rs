//! A clock that is moved while a question is under way, or by several threads at once.

use super::{LEASE, Scene, cause, let_sleep, until, waits};
use crate::support::crew::{HANG, Member, spawn_with};
use crate::support::watched::{Kind, When};
use redis_dlock::{BackendFailure, Clock, LossCause, ManualClock, Moment};
use std::time::Duration;

/// The pause before the next question counts from the last one: what was seen before the move is asked about again.
/// Shows: G4, L3.
#[test]
fn a_busy_answer_from_before_the_move_is_asked_about_again() {
    for _ in 0..100 {
        let scene = Scene::new();
        let (holder, (lock, watch)) = (scene.lock(), scene.watched_lock());
        std::mem::forget(holder.lock().unwrap());
        let asked = watch.stop_next(Kind::Acquire, When::Coming);
        let waiter = spawn_with(&lock, |other| drop(other.lock().unwrap()));
        asked.wait();
        scene.clock.advance(LEASE);
        asked.open();
        waiter.join();

        // The same for the thread that asks on behalf of a waiter.
        let holder = scene.lock();
        std::mem::forget(holder.lock().unwrap());
        let waiter = waits(&lock, 1, |lock| drop(lock.lock().unwrap()));
        let asked = watch.stop_next(Kind::Acquire, When::Coming);
        scene.clock.advance(LEASE / 6);
        asked.wait();
        scene.clock.advance(LEASE);
        asked.open();
        waiter.join();
    }
}

/// So is a failure.
/// Shows: L3.
#[test]
fn a_failure_from_before_the_move_is_asked_about_again() {
    for _ in 0..100 {
        let scene = Scene::new();
        let (lock, watch) = scene.watched_lock();
        watch.fail(BackendFailure::NotExecuted);
        let waiter = waits(&lock, 1, |lock| drop(lock.lock().unwrap()));
        let asked = watch.stop_next(Kind::Acquire, When::Coming);
        watch.lose_next_answer(Kind::Acquire);
        watch.heal();
        scene.clock.advance(LEASE / 6);
        asked.wait();
        scene.clock.advance(LEASE / 6);
        asked.open();
        waiter.join();
    }
}

/// So is a renewal.
/// Shows: G3.
#[test]
fn a_renewal_that_failed_before_the_move_is_tried_again() {
    for _ in 0..100 {
        let scene = Scene::new();
        let (lock, watch) = scene.watched_lock();
        let guard = lock.lock().unwrap();
        let extending = watch.stop_next(Kind::Extend, When::Coming);
        watch.lose_next_answer(Kind::Extend);
        scene.clock.advance(LEASE * 3 / 4);
        extending.wait();
        scene.clock.advance(LEASE / 10);
        extending.open();
        until("the lease is renewed", || guard.remaining() > LEASE / 2);
        guard.unlock().unwrap();
    }
}

/// Shows: G5.
#[test]
fn several_threads_may_move_it() {
    const STEPS: u32 = 20;
    for _ in 0..100 {
        let scene = Scene::new();
        let lock = scene.lock();
        let guard = lock.lock().unwrap();
        let lost = guard.lost();
        let movers =
            [(); 4].map(|()| spawn_with(&scene.clock, move |clock| (0..STEPS).for_each(|_| clock.advance(LEASE))));
        lost.recv_timeout(HANG).unwrap();
        movers.into_iter().for_each(Member::join);
        assert_eq!(cause(guard.unlock()), LossCause::Deadline);
        let start = ManualClock::new().now();
        assert_eq!(scene.clock.now().since(start), LEASE * STEPS * 4);
    }
}

#[test]
fn it_never_goes_back() {
    let clock = ManualClock::new();
    for step in [Duration::from_secs(1), Duration::MAX, Duration::from_secs(1), Duration::MAX] {
        let before = clock.now();
        clock.advance(step);
        assert!(clock.now() >= before && clock.now() < Moment::NEVER, "{step:?}");
    }
}

/// A hook is called by a thread that may use the clock, too.
#[test]
fn a_hook_may_move_it() {
    for round in 0..100 {
        let scene = Scene::new();
        let (clock, (tell, told)) = (scene.clock.clone(), crossbeam_channel::unbounded());
        let hook = move |_: &redis_dlock::LeaseLoss| {
            clock.advance(LEASE);
            tell.send(()).unwrap();
        };
        let lock = scene.built(|builder| builder.on_lost(hook)).generate_with(super::settings()).unwrap();
        let guard = lock.lock().unwrap();
        let_sleep(round);
        scene.clock.advance(LEASE);
        told.recv_timeout(HANG).expect("it is told");
        assert!(guard.unlock().is_err());
    }
}
