//! A master that stands still while its sockets stay open, and the locks of the others.

use super::{LEASE, accepted, lock_with, target_on};
use crate::support::cluster::{Cluster, Node, Plan};
use crate::support::commands::Commands;
use crate::support::crew::spawn;
use crate::support::{LONG, claim};
use redis_dlock::processor::{ExtendOutcome, Limit, LockProcessor, Operations, Outcome, Request};
use redis_dlock::{AcquireOutcome, DLockConfig, DLockGenerator, RedisLockProcessor};
use std::thread;
use std::time::{Duration, Instant};

/// Nobody takes the place of a node that stands still, and the others go on.
fn cluster() -> Cluster {
    let args = ["--cluster-require-full-coverage", "no"].map(str::to_owned).to_vec();
    Cluster::start_as(&Plan { replicas: 0, node_timeout_ms: 60_000, args, ..Plan::default() })
}

fn is_extended(outcome: &Result<Outcome, redis_dlock::Error>) -> bool {
    matches!(outcome, Ok(Outcome::Extend(ExtendOutcome::Extended(_))))
}

/// Renews a lease of a node that hangs and one of a node that answers, together, again and again.
fn renewed_together(forgets_scripts: bool) {
    let mut cluster = cluster();
    let store = RedisLockProcessor::connect(&cluster.url(1)).unwrap();
    let keys = [0, 1].map(|node| format!("DLOCK_CLUSTER_{}", target_on(&cluster, node)));
    let held = [claim(&keys[0], "a-0", LEASE), claim(&keys[1], "a-1", LEASE)];
    for claim in &held {
        assert!(matches!(store.acquire(claim, LONG).unwrap(), AcquireOutcome::Acquired(_)));
    }
    let both = held.map(Request::Extend);
    let mut admin = cluster.connection(1);
    // The connection for renewals is open, and old enough to be broken.
    for _ in 0..2 {
        let outcomes = store.run(&both, Limit::Attempt(LONG));
        assert!(outcomes.iter().all(is_extended), "{outcomes:?}");
        thread::sleep(Duration::from_millis(400));
    }
    let before = accepted(&mut admin);
    for limit in [Duration::from_millis(300), Duration::MAX] {
        cluster.nodes[0].stop();
        for round in 0..5 {
            if forgets_scripts {
                redis::cmd("SCRIPT").arg("FLUSH").exec(&mut admin).unwrap();
            }
            let outcomes = store.run(&both, Limit::Attempt(limit));
            assert!(outcomes[0].is_err(), "{outcomes:?}");
            assert!(is_extended(&outcomes[1]), "{limit:?}, {round}: {outcomes:?}");
        }
        assert_eq!(accepted(&mut admin), before, "no connection of a node that answers is given up");
        cluster.nodes[0].go_on();
        let mut outcomes = store.run(&both, Limit::Attempt(LONG));
        while !outcomes.iter().all(is_extended) {
            outcomes = store.run(&both, Limit::Attempt(LONG));
        }
    }
}

/// Shows: G3.
#[test]
fn a_node_that_hangs_hides_no_renewal_of_another() {
    renewed_together(false);
}

/// Shows: G3.
#[test]
fn a_node_that_hangs_takes_no_time_from_one_that_lost_its_scripts() {
    renewed_together(true);
}

/// Two leases that fall due together.
/// Shows: G3.
#[test]
fn a_lease_outlives_the_hang_of_another_node() {
    let mut cluster = cluster();
    let lease = Duration::from_secs(3);
    let generator = DLockGenerator::connect(&cluster.url(1)).unwrap();
    let lock = |node| lock_with(&generator, &target_on(&cluster, node), lease).lock_owned().unwrap();
    let (hung, healthy) = (lock(0), lock(1));
    let lost = hung.lost();
    let mut admin = cluster.connection(1);
    thread::sleep(lease);
    assert!(hung.is_valid() && healthy.is_valid());
    let before = accepted(&mut admin);
    cluster.nodes[0].stop();
    let until = Instant::now() + 2 * lease;
    while Instant::now() < until {
        healthy.ensure_valid().unwrap();
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(accepted(&mut admin), before);
    lost.recv_timeout(LONG).expect("the lease of the node that hangs is lost");
    healthy.unlock().unwrap();
    cluster.nodes[0].go_on();
}

/// Those who wait without a place in the queue ask again and again. They ask as often while another node hangs.
/// Shows: L1.
#[test]
fn a_node_that_hangs_keeps_nobody_from_asking_others() {
    let mut cluster = cluster();
    let holder = DLockGenerator::connect(&cluster.url(1)).unwrap();
    let waiter =
        DLockGenerator::builder().listener(false).build(RedisLockProcessor::connect(&cluster.url(1)).unwrap()).unwrap();
    let targets = [0, 1].map(|node| target_on(&cluster, node));
    let held = targets.clone().map(|target| lock_with(&holder, &target, LEASE).lock_owned().unwrap());
    // It asks every 100 ms.
    let config = |target: &str| DLockConfig::new("CLUSTER", target).with_lease(Duration::from_millis(600));
    let [waits, other] = targets.map(|target| {
        let lock = waiter.generate_with(config(&target)).unwrap();
        spawn(move || lock.lock_owned().map(drop))
    });
    let window = Duration::from_secs(3);
    let asked = |cluster: &Cluster| {
        let calls = || Commands::of(cluster.nodes[1].server()).count("evalsha");
        let before = calls();
        thread::sleep(window);
        calls() - before
    };
    let free = asked(&cluster);
    cluster.nodes[0].stop();
    let meanwhile = asked(&cluster);
    cluster.nodes[0].go_on();
    assert!(free >= 5, "{free}");
    assert!(meanwhile * 3 >= free * 2, "asked {free} times before, and {meanwhile} times while another node hung");
    for guard in held {
        guard.unlock().unwrap();
    }
    waits.join().unwrap();
    other.join().unwrap();
}

/// Whoever begins asks the nodes in turn, and leaves time for the next one.
#[test]
fn nodes_that_hang_keep_nobody_from_beginning() {
    let mut cluster = cluster();
    let keys = [0, 2].map(|node| format!("DLOCK_CLUSTER_{}", target_on(&cluster, node)));
    cluster.nodes[..2].iter_mut().for_each(Node::stop);
    for seeds in [[2, 0], [0, 2]] {
        let store = RedisLockProcessor::connect(&cluster.url_of_seeds(&seeds)).expect("the third one answers");
        let held = claim(&keys[1], "a-0", LEASE);
        assert!(matches!(store.acquire(&held, LONG).unwrap(), AcquireOutcome::Acquired(_)));
        store.release(&held, LONG).unwrap();
        let hung = store.acquire(&claim(&keys[0], "a-0", LEASE), Duration::from_millis(100));
        assert!(hung.is_err(), "{hung:?}");
    }
    cluster.nodes[..2].iter_mut().for_each(Node::go_on);
}
