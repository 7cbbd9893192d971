//! Time that passes as in a process that runs: what becomes due on the way is done on the way.

use super::{LEASE, Scene, cause, settings, waits};
use crate::support::watched::Kind;
use redis_dlock::{Clock, DLockConfig, DLockGenerator, LossCause, Moment};
use std::time::Duration;

/// How often a scene is repeated.
const ROUNDS: usize = 30;

/// Shows: G3.
#[test]
fn a_lease_is_renewed_each_time_that_it_is_due() {
    for _ in 0..ROUNDS {
        let scene = Scene::new();
        let (lock, watch) = scene.watched_lock();
        let guard = lock.lock().unwrap();
        let start = scene.clock.now();
        scene.clock.pass(30 * LEASE);
        assert_eq!(scene.clock.now().since(start), 30 * LEASE);
        assert!(guard.is_valid());
        // The client asks at three quarters of each lease, and at each sixth of it in between.
        assert_eq!((watch.count_of(Kind::Extend), watch.count_of(Kind::Probe)), (40, 160));
    }
}

/// Shows: G4, G12, L3.
#[test]
fn what_ends_on_the_way_has_ended() {
    for _ in 0..ROUNDS {
        let scene = Scene::new();
        let (dead, here, there) = (scene.lock(), scene.lock(), scene.lock());
        std::mem::forget(dead.lock().unwrap());
        let impatient = waits(&here, 1, |lock| lock.try_lock_for(LEASE / 2).unwrap().is_none());
        scene.clock.pass(LEASE / 2 - Duration::from_nanos(1));
        assert_eq!(here.queue_length(), 1);
        scene.clock.pass(Duration::from_nanos(1));
        assert_eq!(here.queue_length(), 0, "it does not wait any more");
        assert!(impatient.join());
        // What the program did not unlock is kept for as long as its thread lives.
        let waiter = waits(&there, 1, |lock| lock.lock().unwrap().fencing_token());
        scene.clock.pass(2 * LEASE);
        assert_eq!(there.queue_length(), 1);
        assert!(scene.store.delete(there.key()));
        scene.clock.pass(LEASE);
        assert!(waiter.join() > 0);
    }
}

/// Shows: G5.
#[test]
fn a_loss_on_the_way_has_been_told() {
    for _ in 0..ROUNDS {
        let scene = Scene::new();
        let lock = scene.lock();
        let guard = lock.lock().unwrap();
        let lost = guard.lost();
        assert!(scene.store.delete(lock.key()));
        scene.clock.pass(LEASE / 6);
        assert_eq!(lost.try_recv(), Ok(()));
        assert_eq!(cause(guard.unlock()), LossCause::Deleted);
    }
}

#[test]
fn the_next_wake_up_is_the_earliest_of_all_clients() {
    let scene = Scene::new();
    assert_eq!(scene.clock.next_wake(), Moment::NEVER, "there is no client");
    // A record of the client would be refreshed every 30 s.
    let client = || DLockGenerator::builder().clock(scene.clock.clone()).client_record(false);
    let [long, short] = [(); 2].map(|()| client().build(scene.store.clone()).unwrap());
    scene.clock.pass(LEASE);
    assert_eq!(scene.clock.next_wake(), Moment::NEVER, "nobody waits for a moment");
    let is_in = |scene: &Scene, time: Duration| {
        scene.clock.pass(Duration::ZERO);
        scene.clock.next_wake().since(scene.clock.now()) == time
    };
    let _long = long.generate_with(settings().with_probe(false)).unwrap().lock_owned().unwrap();
    assert!(is_in(&scene, LEASE * 3 / 4), "{:?}", scene.clock.next_wake());
    let other = DLockConfig::new("TEST", "y").with_lease(LEASE / 2).with_probe(false);
    let _short = short.generate_with(other).unwrap().lock_owned().unwrap();
    assert!(is_in(&scene, LEASE * 3 / 8), "{:?}", scene.clock.next_wake());
}
