//! What ends when the clock is moved, and not before.

use super::{LEASE, Scene, cause, let_sleep, rounds, settings, until, waits};
use crate::support::crew::HANG;
use crossbeam_channel::{RecvTimeoutError, unbounded};
use redis_dlock::{CancelToken, GeneratorBuilder, LossCause};
use std::time::Duration;

/// Shows: G5, G6.
#[test]
fn a_lease_is_lost() {
    for round in 0..rounds() {
        let scene = Scene::new();
        let (tell, told) = unbounded();
        let tells =
            move |builder: GeneratorBuilder| builder.on_lost(move |loss| tell.send(loss.cause.clone()).unwrap());
        let lock = scene.built(tells).generate_with(settings()).unwrap();
        let guard = lock.lock().unwrap();
        let lost = guard.lost();
        let_sleep(round);
        scene.clock.advance(LEASE);
        // Before anybody looks: `is_valid` would notice the loss, too.
        lost.recv_timeout(HANG).expect("whoever watches is told");
        assert!(!guard.is_valid());
        assert_eq!(told.recv_timeout(HANG), Ok(LossCause::Deadline));
        assert_eq!(cause(guard.unlock()), LossCause::Deadline);
        assert!(lock.try_lock().unwrap().is_some());
    }
}

#[test]
fn a_wait_becomes_slow() {
    for round in 0..rounds() {
        let scene = Scene::new();
        let (tell, told) = unbounded();
        let generator =
            scene.built(|builder| builder.on_slow_wait(LEASE / 100, move |wait| tell.send(wait.waited).unwrap()));
        let lock = generator.generate_with(settings()).unwrap();
        let guard = lock.lock().unwrap();
        let waiter = waits(&lock, 1, |lock| drop(lock.lock().unwrap()));
        let_sleep(round);
        scene.clock.advance(LEASE / 100 - Duration::from_nanos(1));
        assert!(told.is_empty());
        scene.clock.advance(Duration::from_nanos(1));
        assert_eq!(told.recv_timeout(HANG), Ok(LEASE / 100));
        // It would be slow once more.
        scene.clock.advance(LEASE / 50);
        guard.unlock().unwrap();
        waiter.join();
        drop((lock, generator));
        assert_eq!(told.recv_timeout(HANG), Err(RecvTimeoutError::Disconnected), "once");
    }
}

/// Shows: G4, G7.
#[test]
fn the_holder_has_died() {
    for round in 0..rounds() {
        let scene = Scene::new();
        let (dead, other) = (scene.lock(), scene.lock());
        let guard = dead.lock().unwrap();
        let token = guard.fencing_token();
        std::mem::forget(guard);
        let waiter = waits(&other, 1, |lock| lock.lock().unwrap().fencing_token());
        // At once, or in steps: the last one counts.
        for _ in 0..=round % 2 {
            scene.clock.advance(LEASE / (1 + (round % 2) as u32));
        }
        assert!(waiter.join() > token);
    }
}

/// Shows: G4.
#[test]
fn the_last_step_ends_a_lease_to_the_nanosecond() {
    for round in 0..rounds() {
        let scene = Scene::new();
        let lock = scene.lock();
        scene.store.overwrite(lock.key(), "somebody elsewhere", Some(LEASE));
        let waiter = waits(&lock, 1, |lock| drop(lock.lock().unwrap()));
        // After the first step the waiter may ask once more. What is left then is less than its usual pause.
        scene.clock.advance(LEASE * 97 / 100);
        let_sleep(round);
        scene.clock.advance(LEASE * 3 / 100);
        waiter.join();
    }
}

/// Shows: G12, L3.
#[test]
fn a_wait_is_over_for_a_holder_in_the_same_process_and_elsewhere() {
    for round in 0..2 * rounds() {
        let scene = Scene::new();
        let lock = scene.lock();
        let holder = if round % 2 == 0 { lock.clone() } else { scene.lock() };
        let guard = holder.lock().unwrap();
        let waiter = waits(&lock, 1, |lock| lock.try_lock_for(LEASE / 2).unwrap().is_none());
        scene.clock.advance(LEASE / 2);
        assert!(waiter.join());
        assert!(guard.is_valid());
    }
}

/// Shows: G12.
#[test]
fn a_wait_goes_on_until_its_last_nanosecond() {
    for _ in 0..50 {
        let scene = Scene::new();
        let lock = scene.lock();
        let _guard = lock.lock().unwrap();
        let waiters = [1, 2, 3].map(|limit| {
            waits(&lock, limit as usize, move |lock| lock.try_lock_for(Duration::from_nanos(limit)).unwrap().is_none())
        });
        for (left, waiter) in [2, 1, 0].into_iter().zip(waiters) {
            scene.clock.advance(Duration::from_nanos(1));
            assert!(waiter.join());
            assert_eq!(lock.queue_length(), left);
        }
    }
}

/// Shows: L3.
#[test]
fn a_cancelled_wait_ends_though_the_clock_stands() {
    for _ in 0..100 {
        let scene = Scene::new();
        let (lock, cancel) = (scene.lock(), CancelToken::new());
        let _guard = lock.lock().unwrap();
        let token = cancel.clone();
        let waiter = waits(&lock, 1, move |lock| lock.lock_cancellable(&token).unwrap().is_none());
        scene.clock.advance(LEASE / 2);
        cancel.cancel();
        assert!(waiter.join());
    }
}

/// Shows: G3.
#[test]
fn a_long_job_keeps_its_lease() {
    for _ in 0..100 {
        let scene = Scene::new();
        let lock = scene.lock();
        let guard = lock.lock().unwrap();
        for _ in 0..4 {
            let before = guard.remaining();
            scene.clock.advance(LEASE * 3 / 4);
            until("the lease is renewed", || guard.remaining() == before);
        }
        guard.unlock().unwrap();
    }
}

#[test]
fn a_hold_lasts_too_long() {
    for round in 0..rounds() {
        let scene = Scene::new();
        let lock = scene.generator().generate_with(settings().with_max_hold(LEASE / 2)).unwrap();
        let guard = lock.lock().unwrap();
        let lost = guard.lost();
        let_sleep(round);
        scene.clock.advance(LEASE / 2);
        lost.recv_timeout(HANG).expect("whoever watches is told");
        assert_eq!(cause(guard.unlock()), LossCause::HeldTooLong);
    }
}

/// Shows: S10.
#[test]
fn a_lock_has_lingered() {
    for _ in 0..rounds() {
        let scene = Scene::new();
        let lock = scene.built(|builder| builder).generate_with(settings().with_linger(LEASE / 2)).unwrap();
        until("it hears of others, so it may linger", || {
            lock.lock().unwrap().unlock().unwrap();
            lock.is_locked().unwrap()
        });
        scene.clock.advance(LEASE / 2);
        until("it is given back", || !lock.is_locked().unwrap());
    }
}

/// Shows: G10.
#[test]
fn a_client_that_hears_nothing_asks_again() {
    for _ in 0..rounds() {
        let scene = Scene::new();
        let holder = scene.lock();
        let (lock, _) = scene.watched_lock();
        let guard = holder.lock().unwrap();
        let waiter = waits(&lock, 1, |lock| drop(lock.lock().unwrap()));
        guard.unlock().unwrap();
        assert_eq!(lock.queue_length(), 1, "nobody tells it");
        scene.clock.advance(LEASE / 6);
        waiter.join();
    }
}
