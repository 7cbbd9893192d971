//! Slots that move.

use super::{Client, LEASE, Queued, generator, lock, lock_with, store, target_on};
use crate::support::cluster::{Cluster, Plan, slot_of};
use crate::support::crew::{eventually, spawn_with};
use crate::support::{Asking, LONG, claim};
use redis_dlock::processor::{ExtendOutcome, Limit, LockProcessor, Operations, ProbeOutcome, ReleaseOutcome};
use redis_dlock::{AcquireOutcome, BackendFailure, DLockGenerator, Error, RedisLockProcessor};
use std::thread;
use std::time::{Duration, Instant};

fn number(outcome: AcquireOutcome) -> u64 {
    match outcome {
        AcquireOutcome::Acquired(grant) => grant.number,
        other => panic!("{other:?}"),
    }
}

/// MOVED.
/// Shows: G1, G2, S2.
#[test]
fn a_slot_that_has_moved_is_followed_and_numbers_rise() {
    let cluster = Cluster::start();
    let store = store(&cluster);
    let key = format!("DLOCK_CLUSTER_{}", target_on(&cluster, 0));
    let mut last = 0;
    for (turn, to) in [1, 2, 0, 2].into_iter().enumerate() {
        let locker = format!("a-{turn}");
        let held = claim(&key, &locker, LEASE);
        let first = number(store.acquire(&held, LONG).unwrap());
        assert!(first > last);
        last = first;
        cluster.move_slot(slot_of(&key), to);
        // Whichever call comes first is the one that is told.
        match turn {
            0 => assert_eq!(store.probe(&held, LONG).unwrap(), ProbeOutcome::Ours),
            1 => assert!(matches!(store.extend(&held, LONG).unwrap(), ExtendOutcome::Extended(_))),
            2 => assert_eq!(store.inspect(&key, LONG).unwrap().holder.as_deref(), Some(&*locker)),
            _ => {}
        }
        assert!(matches!(store.release(&held, LONG).unwrap(), ReleaseOutcome::Released { .. }));
    }
    assert_eq!(cluster.keys("*").len(), 1, "the fence of the slot");
}

/// TRYAGAIN and ASK, in every place that the keys of the slot can be in.
/// Shows: G3, S1, S2.
#[test]
fn while_a_slot_moves_leases_are_extended_and_nobody_gets_in() {
    let cluster = Cluster::start();
    let (store, other) = (store(&cluster), store(&cluster));
    let key = format!("DLOCK_CLUSTER_{}", target_on(&cluster, 0));
    let held = claim(&key, "a-1", LEASE);
    let first = number(store.acquire(&held, LONG).unwrap());
    other.ask(&claim(&key, "b-1", LEASE), true, LONG).unwrap();
    let soon = Duration::from_millis(300);
    let mut steps = 0;
    cluster.move_slot_with(slot_of(&key), 1, |step| {
        steps += 1;
        for processor in [&store, &other] {
            assert_eq!(processor.probe(&held, LONG).unwrap(), ProbeOutcome::Ours, "{step:?}");
            assert!(matches!(processor.extend(&held, LONG).unwrap(), ExtendOutcome::Extended(_)), "{step:?}");
            let batch = processor.run(&[redis_dlock::processor::Request::Extend(held)], Limit::Attempt(LONG));
            assert!(batch[0].is_ok(), "{step:?}: {batch:?}");
        }
        let locker = format!("c-{steps}");
        match other.acquire(&claim(&key, &locker, LEASE), soon) {
            Ok(AcquireOutcome::Busy(busy)) => assert_eq!(busy.holder.as_deref(), Some("a-1")),
            Err(Error::Backend { failure: BackendFailure::NotExecuted, .. }) => {}
            outcome => panic!("{step:?}: {outcome:?}"),
        }
    });
    // Three keys moved, one by one.
    assert_eq!(steps, 2 + 3 + 3);
    store.release(&held, LONG).unwrap();
    other.release(&claim(&key, "b-1", LEASE), LONG).unwrap();
    assert!(number(store.acquire(&claim(&key, "a-2", LEASE), LONG).unwrap()) > first);
}

/// A call waits for a slot that moves, within its limit; one whose limit ends has done nothing.
#[test]
fn an_acquire_waits_for_the_end_of_a_move() {
    let cluster = Cluster::start();
    let store = store(&cluster);
    let key = format!("DLOCK_CLUSTER_{}", target_on(&cluster, 2));
    // The fence stays behind for the moment.
    number(store.acquire(&claim(&key, "a-1", LEASE), LONG).unwrap());
    store.release(&claim(&key, "a-1", LEASE), LONG).unwrap();
    let mut migration = cluster.migration(slot_of(&key), 0);
    migration.begin();
    let begun = Instant::now();
    eventually("a refusal", || match store.acquire(&claim(&key, "a-2", LEASE), Duration::from_millis(100)) {
        Err(Error::Backend { failure: BackendFailure::NotExecuted, .. }) => true,
        // On a busy machine the answer to the last of several tries may be too late. What that try did is unknown then.
        Err(Error::Backend { failure: BackendFailure::Unknown, message, .. }) if message.contains("no answer") => false,
        outcome => panic!("{outcome:?}"),
    });
    assert!(begun.elapsed() < LONG);
    thread::scope(|scope| {
        let waits = scope.spawn(|| number(store.acquire(&claim(&key, "a-3", LEASE), LONG).unwrap()));
        thread::sleep(Duration::from_millis(100));
        assert!(!waits.is_finished());
        migration.finish();
        waits.join().unwrap();
    });
    assert_eq!(store.inspect(&key, LONG).unwrap().holder.as_deref(), Some("a-3"));
}

/// A slot that stays half-way for several leases.
/// Shows: G3.
#[test]
fn a_hold_with_a_short_lease_outlives_a_slow_move() {
    let cluster = Cluster::start();
    let generator = generator(&cluster);
    let lock = lock_with(&generator, &target_on(&cluster, 0), Duration::from_millis(600));
    let guard = lock.lock_owned().unwrap();
    cluster.move_slot_with(slot_of(lock.key()), 2, |step| {
        thread::sleep(Duration::from_millis(400));
        assert!(guard.is_valid(), "{step:?}");
    });
    guard.ensure_valid().unwrap();
    guard.unlock().unwrap();
}

/// Waiters keep their order while the slot moves under them.
/// Shows: G10, L1.
#[test]
fn waiters_are_served_in_their_order_after_a_move() {
    let cluster = Cluster::start();
    let target = target_on(&cluster, 1);
    let holder = generator(&cluster);
    let guard = lock(&holder, &target).lock_owned().unwrap();
    let clients = [(); 3].map(|()| Client::of(&cluster));
    let queued = Queued::of(&target, &clients, || ());
    let token = guard.fencing_token();
    cluster.move_slot_with(slot_of(lock(&holder, &target).key()), 0, |_| thread::sleep(Duration::from_millis(20)));
    // A lock that is released while nobody is heard goes to whoever asks first.
    let channels = || cluster.run::<Vec<String>>(0, &["PUBSUB", "SHARDCHANNELS", "*"]).len();
    eventually("the waiters are heard again", || channels() >= clients.len());
    clients.iter().for_each(|client| client.assert_hears(&cluster, [&target]));
    guard.unlock().unwrap();
    assert_eq!(queued.all_served(), [0, 1, 2]);
    assert!(token < lock(&holder, &target).lock().unwrap().fencing_token());
}

/// A drop has posted its release to a node that does not own the slot any more.
/// Shows: L2.
#[test]
fn a_posted_release_that_is_redirected_is_repeated_by_the_clean_up() {
    let cluster = Cluster::start();
    let generator = generator(&cluster);
    let lock = lock(&generator, &target_on(&cluster, 0));
    // The node is known to have the script.
    lock.lock().unwrap().unlock().unwrap();
    let guard = lock.lock().unwrap();
    cluster.move_slot(slot_of(lock.key()), 1);
    drop(guard);
    let admin = super::generator(&cluster);
    let seen = super::lock(&admin, lock.target());
    eventually("the lock is free", || !seen.is_locked().unwrap());
}

/// A release needs all keys of the lock at one node. It is tried three times, and then left to the clean-up.
/// Shows: L2.
#[test]
fn a_release_that_a_move_outlasts_is_left_to_the_clean_up() {
    let cluster = Cluster::start();
    let limit = Duration::from_millis(200);
    let builder = RedisLockProcessor::builder(&cluster.url(0)).unwrap();
    let generator = DLockGenerator::new(builder.io_timeout(limit).connect().unwrap()).unwrap();
    let lock = lock(&generator, &target_on(&cluster, 0));
    let guard = lock.lock().unwrap();
    let mut migration = cluster.migration(slot_of(lock.key()), 1);
    migration.begin();
    migration.move_key(lock.key());
    let begun = Instant::now();
    let waits = guard.unlock();
    // The last of several tries may have been sent too late for its answer.
    let is_left = |failure| matches!(failure, BackendFailure::NotExecuted | BackendFailure::Unknown);
    assert!(matches!(waits, Err(Error::Backend { failure, .. }) if is_left(failure)), "{waits:?}");
    assert!(begun.elapsed() >= limit, "it has waited for the end of the move");
    assert_eq!(cluster.keys(lock.key()).len(), 1);
    migration.finish();
    let seen = super::lock(&super::generator(&cluster), lock.target());
    eventually("the lock is free", || !seen.is_locked().unwrap());
}

/// Behind the address of a node another one answers, and sends calls to that very address.
#[test]
fn a_node_that_redirects_to_itself_is_connected_to_anew() {
    let cluster = Cluster::start_as(&Plan { networked: true, ..Plan::default() });
    let generator = generator(&cluster);
    let lock = lock(&generator, &target_on(&cluster, 1));
    lock.lock().unwrap().unlock().unwrap();
    let way = cluster.nodes[1].way.as_ref().unwrap();
    way.lead_to(cluster.nodes[2].server().port());
    way.reset();
    let waits = spawn_with(&lock, |other| other.lock_owned().unwrap().unlock().unwrap());
    thread::sleep(Duration::from_millis(300));
    assert!(!waits.is_finished());
    // The connections to the wrong server stay open; they are given up all the same.
    way.lead_to(cluster.nodes[1].server().port());
    waits.join();
    lock.lock().unwrap().unlock().unwrap();
}

/// Nodes come and go under a client that works.
/// Shows: G1, G2.
#[test]
fn a_node_that_is_added_and_one_that_is_removed_are_followed() {
    let mut cluster = Cluster::start();
    let generator = generator(&cluster);
    let targets: Vec<_> = (0..30).map(|n| format!("member{n}")).collect();
    let work = |last: &mut Vec<u64>| {
        for (target, last) in targets.iter().zip(last) {
            let guard = lock(&generator, target).lock_owned().unwrap();
            assert!(guard.fencing_token() > *last);
            *last = guard.fencing_token();
            guard.unlock().unwrap();
        }
    };
    let mut last = vec![0; targets.len()];
    work(&mut last);
    let new = cluster.add();
    let slots: Vec<_> = targets.iter().map(|target| slot_of(lock(&generator, target).key())).collect();
    cluster.reshard(slots.into_iter().filter(|slot| cluster.owner_of(*slot) != new).collect::<Vec<_>>(), new);
    work(&mut last);
    assert!(cluster.run::<u64>(new, &["DBSIZE"]) > 0);
    cluster.remove(new);
    work(&mut last);
}
