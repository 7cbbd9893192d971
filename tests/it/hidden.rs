//! A proxy that hides subscribers from scripts: it confirms every subscription, and the server has none. No hand-over sees who waits there, and
//! locks work by polling. The doctor names such a proxy.

use crate::support::cluster::{Cluster, Plan};
use crate::support::crew::{eventually, queue_by, spawn, spawn_with};
use crate::support::{Proxy, RedisServer};
use redis_dlock::{DLockConfig, DLockGenerator, DistributedReentrantLock};
use std::thread;
use std::time::Duration;

/// A waiter that polls asks again within a part of it.
const LEASE: Duration = Duration::from_millis(3000);

/// The lock, which is extended long before its lease ends.
fn lock(generator: &DLockGenerator) -> DistributedReentrantLock {
    generator.generate_with(DLockConfig::new("HIDDEN", "x").with_lease(LEASE).with_renew_at(0.1)).unwrap()
}

/// Two clients hold a lock in turn, in rounds: each waits while the other holds.
fn play(clients: &[DLockGenerator; 2], rounds: usize) {
    for round in 0..rounds {
        let [holder, waiter] = [round, round + 1].map(|n| lock(&clients[n % 2]));
        let guard = holder.lock_owned().unwrap();
        let waits = spawn(move || waiter.lock_owned().unwrap().unlock().unwrap());
        // A poll long.
        thread::sleep(LEASE / 5);
        assert!(!waits.is_finished());
        guard.unlock().unwrap();
        waits.join();
    }
}

/// Shows: L1.
#[test]
fn on_one_server_locks_work_by_polling() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    proxy.hide_subscribers(true);
    let clients = [(); 2].map(|()| DLockGenerator::connect(&proxy.url()).unwrap());
    play(&clients, 4);
    // Once it is gone, waiters are handed the lock again.
    proxy.hide_subscribers(false);
    let [holder, waiter] = [0, 1].map(|n| lock(&clients[n]));
    let guard = holder.lock_owned().unwrap();
    let waits = queue_by(&waiter, |lock| lock.lock().unwrap().unlock().unwrap());
    guard.unlock().unwrap();
    waits.join();
}

/// Shows: L1.
#[test]
fn in_a_cluster_locks_work_by_polling() {
    let cluster = Cluster::start_as(&Plan { networked: true, ..Plan::default() });
    cluster.nodes.iter().for_each(|node| node.way.as_ref().unwrap().hide_subscribers(true));
    let clients = [(); 2].map(|()| DLockGenerator::connect(&cluster.url(0)).unwrap());
    play(&clients, 4);
}

/// Another server answers at the address from the moment in which the first one confirms the subscription, and has none.
#[test]
fn another_server_answers_between_a_subscription_and_the_question_behind_it() {
    let servers = [(); 2].map(|()| RedisServer::start());
    let proxy = Proxy::to(servers[0].port(), Duration::ZERO);
    let clients = [(); 2].map(|()| DLockGenerator::connect(&proxy.url()).unwrap());
    let long = |n: usize| {
        let config = DLockConfig::new("HIDDEN", "between").with_lease(Duration::from_secs(3600));
        clients[n].generate_with(config).unwrap()
    };
    let guard = long(0).lock_owned().unwrap();
    proxy.hold_back(true);
    let waiter = spawn_with(&long(1), |lock| lock.lock().unwrap().unlock().unwrap());
    let subscribed = |server: &RedisServer| !server.run::<Vec<String>>(&["PUBSUB", "CHANNELS", "*"]).is_empty();
    eventually("the waiter subscribes", || subscribed(&servers[0]));
    proxy.lead_new_to(servers[1].port());
    // Those that listen stay.
    servers[0].run::<usize>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    // This call finds its connection gone. The next one opens another one.
    assert!(long(1).inspect().is_err());
    proxy.let_through(true);
    // The other server has no such lock.
    waiter.join();
    drop(guard.unlock());
    // Whoever listened at the first server listens at the other one now.
    let guard = long(0).lock_owned().unwrap();
    let waiter = queue_by(&long(1), |lock| lock.lock().unwrap().unlock().unwrap());
    eventually("the waiter subscribes", || subscribed(&servers[1]));
    guard.unlock().unwrap();
    waiter.join();
}
