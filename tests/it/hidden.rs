//! A proxy that hides subscribers from scripts: it confirms every subscription, and the server has none. It is noticed, named once in the log,
//! and locks work by polling.

use crate::support::cluster::{Cluster, Plan};
use crate::support::crew::{eventually, spawn};
use crate::support::process::alone;
use crate::support::{Proxy, RedisServer, journal};
use redis_dlock::{DLockConfig, DLockGenerator, DistributedReentrantLock};
use std::thread;
use std::time::Duration;

/// A waiter that polls asks again within a part of it.
const LEASE: Duration = Duration::from_millis(900);

fn lock(generator: &DLockGenerator) -> DistributedReentrantLock {
    generator.generate_with(DLockConfig::new("HIDDEN", "x").with_lease(LEASE)).unwrap()
}

/// Two clients hand a lock to and fro, in rounds: each waits while the other holds.
fn play(clients: &[DLockGenerator; 2], rounds: usize, mut while_waiting: impl FnMut(&DistributedReentrantLock)) {
    for round in 0..rounds {
        let [holder, waiter] = [round, round + 1].map(|n| lock(&clients[n % 2]));
        let guard = holder.lock_owned().unwrap();
        let waits = spawn(move || waiter.lock_owned().unwrap().unlock().unwrap());
        // Some polls long.
        thread::sleep(LEASE / 3);
        assert!(!waits.is_finished());
        while_waiting(&holder);
        guard.unlock().unwrap();
        waits.join();
    }
}

fn warnings(address: &str) -> Vec<String> {
    journal::warnings_with(address)
}

#[test]
fn on_one_server_it_is_noticed_and_locks_work_by_polling() {
    journal::keep();
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    proxy.hide_subscribers(true);
    let clients = [(); 2].map(|()| DLockGenerator::connect(&proxy.url()).unwrap());
    play(&clients, 4, |holder| assert_eq!(holder.inspect().unwrap().waiting, 0, "nobody queues"));
    let warnings = warnings(&format!("127.0.0.1:{}", proxy.port()));
    assert_eq!(warnings.len(), clients.len(), "each client says it once: {warnings:?}");
    for warning in warnings {
        assert!(warning.contains("falling back to polling") && warning.contains("listener(false)"), "{warning}");
    }
    // Once it is gone, waiters queue again.
    proxy.hide_subscribers(false);
    let [holder, waiter] = [0, 1].map(|n| lock(&clients[n]));
    let guard = holder.lock_owned().unwrap();
    let waits = spawn(move || waiter.lock_owned().unwrap().unlock().unwrap());
    eventually("it waits in the queue", || holder.inspect().unwrap().waiting == 1);
    guard.unlock().unwrap();
    waits.join();
}

#[test]
fn in_a_cluster_it_is_noticed_and_locks_work_by_polling() {
    journal::keep();
    let cluster = Cluster::start_as(&Plan { networked: true, ..Plan::default() });
    let ways = || cluster.nodes.iter().map(|node| node.way.as_ref().unwrap());
    ways().for_each(|way| way.hide_subscribers(true));
    let clients = [(); 2].map(|()| DLockGenerator::connect(&cluster.url(0)).unwrap());
    // Each client believes its first subscription until it has looked.
    play(&clients, 2, |_| ());
    eventually("the queue is empty", || lock(&clients[0]).inspect().unwrap().waiting == 0);
    play(&clients, 4, |holder| assert_eq!(holder.inspect().unwrap().waiting, 0, "nobody queues"));
    let all: Vec<_> = ways().flat_map(|way| warnings(&format!("127.0.0.1:{}", way.port()))).collect();
    assert_eq!(all.len(), clients.len(), "each client says it once: {all:?}");
    assert!(all.iter().all(|warning| warning.contains("listener(false)")), "{all:?}");
}

/// A user who lacks a right is told which, and not that there is a proxy.
#[test]
fn a_missing_right_is_no_proxy() {
    alone("it::hidden::a_missing_right_is_no_proxy", || {
        let server = RedisServer::start();
        is_told_of_a_right(&server.url(), "-pubsub|numsub", |words| server.run::<()>(words));
    });
}

#[test]
fn a_missing_right_is_no_proxy_in_a_cluster() {
    alone("it::hidden::a_missing_right_is_no_proxy_in_a_cluster", || {
        let cluster = Cluster::start_as(&Plan { replicas: 0, ..Plan::steady() });
        is_told_of_a_right(&cluster.url(0), "-pubsub|shardnumsub", |words| {
            (0..3).for_each(|node| cluster.run::<()>(node, words));
        });
    });
}

fn is_told_of_a_right(url: &str, without: &str, on_all: impl Fn(&[&str])) {
    journal::keep();
    on_all(&["ACL", "SETUSER", "poor", "on", ">pw", "~*", "&*", "+@all", without]);
    let client = DLockGenerator::connect(&url.replace("//", "//poor:pw@")).unwrap();
    let lingering = DLockConfig::new("HIDDEN", "poor").with_lease(LEASE).with_linger(LEASE);
    let lingering = client.generate_with(lingering).unwrap();
    // It listens from its first lock on.
    let right = without.replace('-', "+");
    let warnings = || journal::warnings_with(&right);
    eventually("it is said", || {
        lingering.lock().unwrap().unlock().unwrap();
        !warnings().is_empty()
    });
    assert!(warnings().len() == 1 && !warnings()[0].contains("poor"), "{:?}", warnings());
    assert_eq!(journal::warnings_with("proxy"), [""; 0]);
}

/// Another server answers at the address from the moment in which the first one confirms the subscription, and has none.
#[test]
fn another_server_between_subscription_and_script_is_no_proxy() {
    let servers = [(); 2].map(|()| RedisServer::start());
    journal::keep();
    let proxy = Proxy::to(servers[0].port(), Duration::ZERO);
    let clients = [(); 2].map(|()| DLockGenerator::connect(&proxy.url()).unwrap());
    let long = |n: usize| {
        let config = DLockConfig::new("HIDDEN", "between").with_lease(Duration::from_secs(3600));
        clients[n].generate_with(config).unwrap()
    };
    let guard = long(0).lock_owned().unwrap();
    proxy.hold_back(true);
    let waits = long(1);
    let waiter = spawn(move || waits.lock_owned().unwrap().unlock().unwrap());
    let subscribed = |server: &RedisServer| !server.run::<Vec<String>>(&["PUBSUB", "CHANNELS", "*"]).is_empty();
    eventually("the waiter subscribes", || subscribed(&servers[0]));
    proxy.lead_new_to(servers[1].port());
    // Those that listen stay.
    servers[0].run::<usize>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    // This call finds its connection gone. The next one, which is the script's, opens another one.
    assert!(long(1).inspect().is_err());
    proxy.let_through(true);
    // The other server has no such lock.
    waiter.join();
    drop(guard.unlock());
    // Whoever listened at the first server listens at the other one now.
    let guard = long(0).lock_owned().unwrap();
    let waits = long(1);
    let waiter = spawn(move || waits.lock_owned().unwrap().unlock().unwrap());
    eventually("it waits in the queue", || long(0).inspect().unwrap().waiting == 1);
    eventually("the waiter subscribes", || subscribed(&servers[1]));
    guard.unlock().unwrap();
    waiter.join();
    let warnings = warnings(&format!("127.0.0.1:{}", proxy.port()));
    assert!(warnings.iter().all(|warning| !warning.contains("listener(false)")), "{warnings:?}");
}
