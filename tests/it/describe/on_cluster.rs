//! The same on a Redis Cluster.

use super::{config, description};
use crate::support::cluster::{Cluster, Plan};
use crate::support::crew::eventually;
use redis_dlock::DLockGenerator;
use std::thread;

#[test]
fn holder_and_waiter_answer_in_the_slot_of_the_lock() {
    let cluster = Cluster::start_as(&Plan::steady());
    let [one, two, asker] = [(); 3].map(|()| DLockGenerator::connect(&cluster.url(0)).unwrap());
    let [first, second] =
        [(&one, "first"), (&two, "second")].map(|(generator, why)| generator.generate_with(config("x", why)).unwrap());
    let guard = first.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| drop(second.lock().unwrap()));
        let found = description(&asker, "x", |found| {
            found.waiting.len() == 1
                && found.waiting.iter().chain(&found.holder).all(|party| party.told.is_some() && party.client.is_some())
        });
        assert_eq!(found.holder.unwrap().told.unwrap().reason.as_deref(), Some("first"));
        assert_eq!(found.waiting[0].told.as_ref().unwrap().reason.as_deref(), Some("second"));
        guard.unlock().unwrap();
    });
    assert_eq!(cluster.published_on_the_bus(), 0);
    [one, two].iter().for_each(DLockGenerator::close);
    eventually("no record is left", || cluster.keys("DLOCK:1:client:*").is_empty());
}

#[test]
fn locks_of_all_nodes_are_listed() {
    let cluster = Cluster::start_as(&Plan::steady());
    let generator = DLockGenerator::connect(&cluster.url(1)).unwrap();
    let locks: Vec<_> = (0..60).map(|n| generator.generate_with(config(&n.to_string(), "r")).unwrap()).collect();
    let guards: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
    let owners: std::collections::BTreeSet<_> = locks.iter().map(|lock| cluster.owner_of_key(lock.key())).collect();
    assert_eq!(owners.len(), 3);
    let mut keys: Vec<_> = generator.list("DESCRIBE_*").map(|lock| lock.unwrap().key).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), guards.len());
}

/// A program that only lists, and calls nothing else that would notice it, follows a failover.
#[test]
fn listing_goes_on_after_a_master_has_failed() {
    let mut cluster = Cluster::start();
    let generator = DLockGenerator::connect(&cluster.url(0)).unwrap();
    let list = || generator.list("*").collect::<Result<Vec<_>, _>>();
    assert_eq!(list().unwrap(), []);
    cluster.nodes[1].kill();
    // The first questions of what has become of its slots come too early.
    eventually("it fails", || list().is_err());
    cluster.wait_for_promotion(1);
    eventually("it goes on", || list().is_ok());
}
