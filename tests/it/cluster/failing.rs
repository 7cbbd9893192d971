//! Masters that fail.

use super::{Client, LEASE, Queued, generator, lock, lock_with, store, target_on};
use crate::support::cluster::{Cluster, Plan};
use crate::support::crew::eventually;
use crate::support::{LONG, claim};
use redis_dlock::processor::{LockProcessor, Operations};
use redis_dlock::{AcquireOutcome, BackendFailure, DLockGenerator, Error, RedisLockProcessor};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How a master goes.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Killed,
    Stopped,
    Planned,
}

/// A hold that the replica has survives its master, and so do the waiters in their order; locks of other nodes are renewed meanwhile.
fn a_master_goes(fault: Fault) {
    // Otherwise all masters refuse all keys until the replica is promoted.
    let args = ["--cluster-require-full-coverage", "no"].map(str::to_owned).to_vec();
    let mut cluster = Cluster::start_as(&Plan { args, ..Plan::default() });
    let (target, elsewhere) = (target_on(&cluster, 0), target_on(&cluster, 1));
    let holder = generator(&cluster);
    let guard = lock(&holder, &target).lock_owned().unwrap();
    // It must be extended every 200 ms.
    let short = lock_with(&holder, &elsewhere, Duration::from_millis(600)).lock_owned().unwrap();
    let clients = [(); 2].map(|()| Client::of(&cluster));
    let queued = Queued::of(&target, &clients, || ());
    cluster.wait_for_replicas(0);
    match fault {
        Fault::Killed => cluster.nodes[0].kill(),
        Fault::Stopped => cluster.nodes[0].stop(),
        Fault::Planned => drop(cluster.fail_over_to(3)),
    }
    if !matches!(fault, Fault::Planned) {
        assert_eq!(cluster.wait_for_promotion(0), 3);
    }
    assert!(short.is_valid(), "a node that is gone delays no renewal on another");
    guard.ensure_valid().unwrap();
    // A lock that is released while nobody is heard goes to whoever asks first.
    let channels = || cluster.run::<Vec<String>>(3, &["PUBSUB", "SHARDCHANNELS", "*"]).len();
    eventually("both waiters are heard again", || channels() >= clients.len());
    clients.iter().for_each(|client| client.assert_hears(&cluster, [&target]));
    let token = guard.fencing_token();
    guard.unlock().unwrap();
    assert_eq!(queued.all_served(), [0, 1]);
    assert!(token < lock(&holder, &target).lock().unwrap().fencing_token());
    assert!(short.is_valid());
    short.unlock().unwrap();
    assert_eq!(lock(&holder, &target).inspect().unwrap().waiting, 0);
}

/// Shows: G1, G2, G3, G10.
#[test]
fn a_master_that_is_killed_is_followed_by_its_replica() {
    a_master_goes(Fault::Killed);
}

/// Shows: G1, G2, G3, G10.
#[test]
fn a_master_that_is_stopped_is_followed_by_its_replica() {
    a_master_goes(Fault::Stopped);
}

/// Shows: G1, G2, G3, G10.
#[test]
fn a_master_that_hands_over_is_followed_by_its_replica() {
    a_master_goes(Fault::Planned);
}

/// What the new master does not know is told at once, and not at the next probe.
/// Shows: G5.
#[test]
fn a_hold_that_the_new_master_does_not_know_is_told_as_lost() {
    let mut cluster = Cluster::start();
    let holder = generator(&cluster);
    let target = target_on(&cluster, 0);
    let guard = lock(&holder, &target).lock_owned().unwrap();
    let lost = guard.lost();
    cluster.wait_for_replicas(0);
    // As if the replica had not got it.
    cluster.nodes[0].kill();
    assert_eq!(cluster.wait_for_promotion(0), 3);
    cluster.run::<u64>(3, &["DEL", lock(&holder, &target).key()]);
    // Any call to that node lets the client look.
    eventually("another lock of the node is free", || lock(&holder, &format!("{{{target}}}")).try_lock().is_ok());
    lost.recv_timeout(LONG).expect("told");
    drop(guard);
}

/// A node that is gone says so at once, and costs calls for others nothing.
#[test]
fn a_dead_node_fails_at_once_and_others_answer() {
    let mut cluster = Cluster::start();
    let store = store(&cluster);
    let keys = [0, 1].map(|node| format!("DLOCK_CLUSTER_{}", target_on(&cluster, node)));
    // Without its replica nobody takes its place.
    cluster.nodes[3].kill();
    cluster.nodes[0].kill();
    let begun = Instant::now();
    // The first one may find a connection that is about to break.
    let _ = store.acquire(&claim(&keys[0], "a-0", LEASE), LONG);
    for _ in 0..3 {
        let refused = store.acquire(&claim(&keys[0], "a-1", LEASE), LONG);
        assert!(matches!(refused, Err(Error::Backend { failure: BackendFailure::NotExecuted, .. })), "{refused:?}");
    }
    assert!(begun.elapsed() < LONG);
    // The others refuse, too, once they know: a cluster without all slots is down.
    let taken = store.acquire(&claim(&keys[1], "a-2", LEASE), Duration::from_millis(500));
    assert!(
        matches!(
            taken,
            Ok(AcquireOutcome::Acquired(_)) | Err(Error::Backend { failure: BackendFailure::NotExecuted, .. })
        ),
        "{taken:?}"
    );
}

/// A node that hangs delays no lock on another one, and least of all the first one of a process, which checks rights first.
#[test]
fn a_node_that_hangs_delays_no_first_lock_elsewhere() {
    let mut cluster = Cluster::start_as(&Plan { node_timeout_ms: 60_000, ..Plan::default() });
    // Whoever waits for the node waits for so long.
    let limit = Duration::from_secs(60);
    let targets: Vec<_> = (0..20).map(|n| format!("first{n}")).collect();
    let targets: Vec<_> =
        targets.iter().filter(|target| cluster.owner_of_key(&format!("DLOCK_CLUSTER_{target}")) != 1).collect();
    cluster.nodes[1].stop();
    for target in targets.iter().cycle().take(20) {
        let store = RedisLockProcessor::builder(&cluster.url(0)).unwrap().io_timeout(limit).connect_timeout(limit);
        let lock = lock(&DLockGenerator::new(store.connect().unwrap()).unwrap(), target);
        let begun = Instant::now();
        let guard = lock.try_lock_for(limit).unwrap();
        assert!(guard.is_some() && begun.elapsed() < limit / 2, "{target}: {guard:?} after {:?}", begun.elapsed());
    }
    cluster.nodes[1].go_on();
}

/// A lock counts when the replica of its own master has it; the other masters' are not asked. A master whose replica does not acknowledge
/// is waited for apart from the others, and so is one that was never asked: after a failover it has no replica yet.
#[test]
fn replicas_acknowledge_for_their_own_master() {
    let mut cluster = Cluster::start();
    let builder = RedisLockProcessor::builder(&cluster.url(0)).unwrap();
    let store = Arc::new(builder.replica_acks(1, Duration::from_millis(100)).connect().unwrap());
    let generator = DLockGenerator::new(Arc::clone(&store)).unwrap();
    let targets = [0, 1].map(|node| target_on(&cluster, node));
    let apart = || targets.each_ref().map(|target| store.keeps_waiting(&format!("DLOCK_CLUSTER_{target}")));
    assert_eq!(apart(), [true, true]);
    targets.iter().for_each(|target| lock(&generator, target).lock().unwrap().unlock().unwrap());
    assert_eq!(apart(), [false, false]);
    cluster.nodes[3].kill();
    let refused = lock(&generator, &targets[0]).try_lock().unwrap_err();
    assert!(matches!(refused, Error::Backend { failure: BackendFailure::Unacknowledged, .. }), "{refused:?}");
    assert!(!lock(&generator, &targets[0]).is_locked().unwrap(), "it is undone");
    lock(&generator, &targets[1]).lock().unwrap().unlock().unwrap();
    assert_eq!(apart(), [true, false]);
    cluster.nodes[3].restart();
    lock(&generator, &targets[0]).lock().unwrap().unlock().unwrap();
    assert_eq!(apart(), [false, false]);
}

/// A master that lost all its keys, and its scripts.
/// Shows: G2.
#[test]
fn numbers_rise_over_a_node_that_was_emptied() {
    let cluster = Cluster::start();
    let generator = generator(&cluster);
    let lock = lock(&generator, &target_on(&cluster, 1));
    let mut last = 0;
    for _ in 0..20 {
        let token = lock.lock().unwrap().fencing_token();
        assert!(token > last);
        last = token;
        cluster.run::<()>(1, &["FLUSHALL"]);
        cluster.nodes[1].flush_scripts();
    }
}

/// Many threads on all nodes, while masters change.
/// Shows: G1, G2.
#[test]
fn nobody_is_let_in_beside_another_while_masters_change() {
    let cluster = Cluster::start();
    let targets: Vec<_> = (0..6).map(|n| format!("load{n}")).collect();
    let insides: Vec<_> = targets.iter().map(|_| Arc::new((AtomicU64::new(0), AtomicU64::new(0)))).collect();
    let until = Instant::now() + Duration::from_secs(6);
    let generators = [(); 2].map(|()| Client::of(&cluster));
    thread::scope(|scope| {
        for n in 0..12 {
            let (target, inside) = (&targets[n % 6], Arc::clone(&insides[n % 6]));
            let generator = &generators[n / 6].generator;
            scope.spawn(move || {
                let lock = lock(generator, target);
                while Instant::now() < until {
                    let guard = lock.lock().unwrap();
                    assert_eq!(inside.0.fetch_add(1, Ordering::SeqCst), 0, "somebody is inside");
                    assert!(inside.1.swap(guard.fencing_token(), Ordering::SeqCst) < guard.fencing_token());
                    inside.0.fetch_sub(1, Ordering::SeqCst);
                    guard.unlock().unwrap();
                }
            });
        }
        // A planned failover loses nothing.
        for replica in [3, 4, 5, 0, 1] {
            cluster.fail_over_to(replica);
            generators.iter().for_each(|client| client.assert_hears(&cluster, &targets));
            thread::sleep(Duration::from_millis(700));
        }
    });
}
