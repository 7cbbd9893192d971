//! The rights that a Cluster's user needs.

use super::target_on;
use crate::support::cluster::{Cluster, Plan};
use crate::support::crew::{eventually, spawn};
use crate::support::{LONG, claim, last_server};
use redis_dlock::processor::Operations;
use redis_dlock::{DLockConfig, DLockGenerator, Error, RedisLockProcessor};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Without messages, waiters ask after a sixth of it.
const SHORT: Duration = Duration::from_secs(2);

/// The words of the manual's line.
fn rules() -> Vec<String> {
    let page = include_str!("../../../src/manual/cluster.md");
    let start = page.find("ACL SETUSER dlock").expect("the page has the line");
    let line = page[start..].split("\n```").next().expect("the line's end");
    line.split_whitespace().filter(|word| *word != "\\").map(str::to_owned).collect()
}

fn set_user(cluster: &Cluster, words: &[String]) {
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    for node in 0..cluster.nodes.len() {
        cluster.run::<()>(node, &words);
        cluster.run::<()>(node, &["ACL", "LOG", "RESET"]);
    }
}

/// Whether the servers have refused anything.
fn refusals(cluster: &Cluster) -> usize {
    (0..cluster.nodes.len()).map(|node| cluster.run::<Vec<redis::Value>>(node, &["ACL", "LOG"]).len()).sum()
}

/// A wait, a hand-over, a slot that moves half-way, and a renewal.
fn exercise(cluster: &Cluster, target: &str) -> Result<(), Error> {
    let url = cluster.url(1).replace("//", "//dlock:PASSWORD@");
    let clients = [DLockGenerator::connect(&url)?, DLockGenerator::connect(&url)?];
    let lock = |n: usize| clients[n].generate_with(DLockConfig::new("CLUSTER", target).with_lease(SHORT));
    let guard = lock(0)?.lock_owned()?;
    let (waits, waits_for) = (lock(1)?, lock(0)?);
    let waiter = spawn(move || waits.lock_owned().map(drop));
    // Without a right to messages it polls, and never stands in the store's queue.
    let until = Instant::now() + SHORT;
    let is_queued = || lock(0).is_ok_and(|lock| lock.inspect().is_ok_and(|seen| seen.waiting == 1));
    while !waiter.is_finished() && Instant::now() < until && !is_queued() {}
    let slot = crate::support::cluster::slot_of(lock(0)?.key());
    let to = (cluster.owner_of(slot) + 1) % 3;
    let mut migration = cluster.migration(slot, to);
    migration.begin();
    migration.move_key(lock(0)?.key());
    let held = claim(waits_for.key(), "stranger-1", SHORT);
    let probed = RedisLockProcessor::connect(&url).and_then(|store| store.probe(&held, LONG));
    migration.finish();
    probed?;
    guard.unlock()?;
    waiter.join()
}

/// A user of the manual's, without some rights and with others.
fn user(fewer: &[&str], more: &[&str]) -> Vec<String> {
    let rules = rules();
    assert!(fewer.iter().all(|right| rules.iter().any(|word| word == right)), "{fewer:?} are in the manual");
    let left = rules.into_iter().filter(|word| !fewer.contains(&word.as_str()));
    left.chain(more.iter().map(|&right| right.to_owned())).collect()
}

/// As the manual says: each connection counts as one to another server then.
#[test]
fn without_the_right_to_ask_who_a_node_is_a_lock_works() {
    let cluster = Cluster::start_as(&Plan::steady());
    set_user(&cluster, &user(&["+info"], &[]));
    exercise(&cluster, &target_on(&cluster, 0)).expect("a lock needs no INFO");
    let url = cluster.url(1).replace("//", "//dlock:PASSWORD@");
    let store = RedisLockProcessor::connect(&url).unwrap();
    let key = format!("DLOCK_CLUSTER_{}", target_on(&cluster, 2));
    let held = claim(&key, "a-1", SHORT);
    store.acquire(&held, LONG).unwrap();
    let last = last_server(&store);
    let mut admin = cluster.connection(2);
    redis::cmd("CLIENT").arg(&["KILL", "USER", "dlock"]).exec(&mut admin).unwrap();
    // The first call finds its connection gone.
    eventually("the client is connected again", || store.probe(&held, LONG).is_ok());
    assert!(last.load(Ordering::SeqCst) > 0, "whoever cannot say who it is counts as another one");
}

#[test]
fn to_wait_for_replicas_is_a_right_of_its_own() {
    let cluster = Cluster::start_as(&Plan::steady());
    let url = cluster.url(1).replace("//", "//dlock:PASSWORD@");
    let connect = || RedisLockProcessor::builder(&url).unwrap().replica_acks(1, Duration::from_millis(100)).connect();
    set_user(&cluster, &user(&[], &[]));
    let denied = connect().unwrap_err();
    assert!(matches!(&denied, Error::Denied { .. }) && denied.to_string().contains("wait"), "{denied}");
    set_user(&cluster, &user(&[], &["+wait"]));
    let generator = DLockGenerator::new(connect().unwrap()).unwrap();
    generator.generate("ACL", "x").unwrap().lock().unwrap().unlock().unwrap();
    assert_eq!(refusals(&cluster), 0);
}

#[test]
fn the_manuals_user_can_do_all_that_a_lock_needs() {
    let cluster = Cluster::start_as(&Plan::steady());
    let target = target_on(&cluster, 0);
    let rules = rules();
    set_user(&cluster, &rules);
    exercise(&cluster, &target).expect("the manual's user may do everything");
    assert_eq!(refusals(&cluster), 0);
    let needed =
        ["+cluster|slots", "+asking", "+spublish", "+ssubscribe", "+pubsub|shardnumsub", "+info", "&DLOCK:1:*"];
    for right in needed {
        let fewer: Vec<_> = rules.iter().filter(|word| *word != right).cloned().collect();
        assert_eq!(fewer.len() + 1, rules.len(), "{right} is in the manual");
        set_user(&cluster, &fewer);
        let _ = exercise(&cluster, &target);
        assert!(refusals(&cluster) > 0, "without {right}");
    }
    // The first lock names a missing right to send messages.
    let fewer: Vec<_> = rules.iter().filter(|word| *word != "+spublish").cloned().collect();
    set_user(&cluster, &fewer);
    let url = cluster.url(1).replace("//", "//dlock:PASSWORD@");
    let denied = DLockGenerator::connect(&url).unwrap().generate("ACL", "x").unwrap().lock().unwrap_err();
    assert!(matches!(&denied, Error::Denied { message, .. } if message.contains("spublish")), "{denied}");
    let fewer: Vec<_> = rules.iter().filter(|word| *word != "+cluster|slots").cloned().collect();
    set_user(&cluster, &fewer);
    let denied = DLockGenerator::connect(&url).unwrap_err();
    assert!(matches!(&denied, Error::Denied { .. }) && denied.to_string().contains("cluster"), "{denied}");
}
