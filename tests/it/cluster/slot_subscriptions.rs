//! A slot that a client hears has the client's subscription at the slot's owner, whatever moves.

use super::{LEASE, store, target_on};
use crate::support::LONG;
use crate::support::cluster::{Cluster, Plan, slot_of};
use crate::support::crew::eventually;
use redis_dlock::processor::{InboxBreaker, LockProcessor};
use redis_dlock::{DLockConfig, DLockGenerator, RedisLockProcessor};
use std::slice;
use std::thread;
use std::time::{Duration, Instant};

/// An inbox of the client `e` that a thread reads.
struct Open(Box<dyn InboxBreaker>);

impl Open {
    fn of(store: &RedisLockProcessor) -> Self {
        let mut inbox = store.queue().unwrap().open_inbox("e", LONG).unwrap();
        let breaker = inbox.breaker();
        thread::spawn(move || while inbox.next(Duration::from_secs(1)).is_ok() {});
        Self(breaker)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.cut();
    }
}

/// Slots go away under a client that begins to wait in others of the same node meanwhile.
/// Shows: L1.
#[test]
fn nobody_is_deaf_after_slots_have_moved_under_new_waiters() {
    let cluster = Cluster::start();
    let keys: Vec<_> = cluster.keys_on(0, |n| format!("DLOCK_CLUSTER_r{n}")).take(400).collect();
    let store = store(&cluster);
    let _open = Open::of(&store);
    let queue = store.queue().unwrap();
    let hears = |key: &str| queue.hears("e", key);
    let begin = |key: &String| drop(queue.get_ready_to_hear("e", key, Duration::ZERO));
    let slots = |keys: &[String]| {
        let mut slots: Vec<_> = keys.iter().map(|key| slot_of(key)).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    };
    let (early, late) = keys.split_at(200);
    early.iter().for_each(begin);
    eventually("the first slots are heard", || early.iter().all(|key| hears(key)));
    for (n, (goes, comes)) in early.chunks(50).zip(late.chunks(50)).enumerate() {
        thread::scope(|scope| {
            scope.spawn(|| cluster.reshard(slots(goes), 1 + n % 2));
            for key in comes {
                begin(key);
                thread::sleep(Duration::from_millis(2));
            }
        });
    }
    // Those that came, too.
    cluster.reshard(slots(late), 2);
    eventually("all are heard again", || keys.iter().all(|key| hears(key)));
    cluster.assert_hears("e", &keys, hears);
    let all = slice::from_ref(&keys[0]);
    assert_eq!(cluster.unsubscribed("nobody", all), all, "the check can fail");
}

/// A node answers everything but subscriptions.
#[test]
fn a_lock_that_may_linger_does_not_wait_for_its_subscription() {
    let cluster = Cluster::start_as(&Plan { networked: true, ..Plan::default() });
    // Whoever waits for the subscription waits for a good part of it.
    let limit = Duration::from_secs(120);
    let store = RedisLockProcessor::builder(&cluster.url(0)).unwrap().io_timeout(limit).connect().unwrap();
    let generator = DLockGenerator::new(store).unwrap();
    let lingering = |node: usize| {
        let config = DLockConfig::new("CLUSTER", target_on(&cluster, node)).with_lease(LEASE).with_linger(LEASE);
        generator.generate_with(config).unwrap()
    };
    let elsewhere = lingering(1);
    eventually("the client listens", || {
        elsewhere.lock().unwrap().unlock().unwrap();
        elsewhere.is_locked().unwrap()
    });
    cluster.nodes[0].way.as_ref().unwrap().hold_back(true);
    let lock = lingering(0);
    let begun = Instant::now();
    let guard = lock.try_lock_for(limit).unwrap();
    assert!(begun.elapsed() < limit / 8, "most of the time is left");
    guard.expect("it is free, and the node answers").unlock().unwrap();
}
