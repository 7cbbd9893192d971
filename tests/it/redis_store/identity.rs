//! Another server answers behind the same address: it is noticed at the reconnect, and everything that was held or waited for is asked
//! about at once, not when the lease is extended the next time.

use crate::support::crew::{eventually, queue_by, spawn_with};
use crate::support::{Proxy, RedisServer, last_server};
use redis_dlock::processor::Operations;
use redis_dlock::{DLockConfig, DLockGenerator, DistributedReentrantLock, LockProcessor, RedisLockProcessor};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// So long that no probe (lease/6), no poll and no extension comes within the time of a test.
const LEASE: Duration = Duration::from_secs(3600);

fn lock_of(generator: &DLockGenerator, target: &str) -> DistributedReentrantLock {
    generator.generate_with(DLockConfig::new("IDENTITY", target).with_lease(LEASE)).unwrap()
}

/// Lets a client use its store once more, which connects again.
fn touch(generator: &DLockGenerator) {
    let lock = lock_of(generator, "touch");
    eventually("the store answers", || lock.lock().is_ok_and(|guard| guard.unlock().is_ok()));
}

/// How many connections of our clients a server has.
fn ours(server: &RedisServer) -> usize {
    server.run::<String>(&["CLIENT", "LIST"]).lines().filter(|line| line.contains("name=redis-dlock ")).count()
}

/// A server that comes back empty: the holder is told, and who waits gets the lock.
#[test]
fn a_server_that_was_restarted_is_asked_at_once_about_what_is_held_and_waited_for() {
    let mut server = RedisServer::start();
    let [holder, waiter] = [(); 2].map(|()| DLockGenerator::connect(&server.url()).unwrap());
    let guard = lock_of(&holder, "held").lock_owned().unwrap();
    let lost = guard.lost();
    let waits = queue_by(&lock_of(&waiter, "held"), |lock| lock.lock().map(|guard| guard.unlock()));
    server.restart();
    // The waiter's subscription is made again without being asked.
    waits.join().unwrap().unwrap();
    assert!(guard.is_valid(), "nothing has told the holder yet: its client has no subscription and asked nothing");
    touch(&holder);
    lost.recv_timeout(crate::support::LONG).expect("told of the loss");
    assert!(!guard.is_valid());
}

/// Connections to the earlier server are ended, also by a client that has them open and could go on using them.
#[test]
fn connections_to_a_server_that_another_one_replaced_are_ended() {
    let old = RedisServer::start();
    let new = RedisServer::start_with(&["--replicaof", "127.0.0.1", &old.port().to_string()]);
    let proxy = Proxy::to(old.port(), Duration::ZERO);
    let generator = DLockGenerator::connect(&proxy.url()).unwrap();
    touch(&generator);
    assert!(ours(&old) > 0);
    // The name leads elsewhere from now on; what is open stays open.
    new.run::<()>(&["REPLICAOF", "NO", "ONE"]);
    proxy.lead_to(new.port());
    // The first thread that waits makes a subscription, which is a new connection.
    let held = RedisLockProcessor::connect(&new.url()).unwrap();
    let other = DLockGenerator::new(held).unwrap();
    let guard = lock_of(&other, "wait").lock_owned().unwrap();
    let waits =
        spawn_with(&generator, move |generator| lock_of(generator, "wait").lock_owned().map(|guard| guard.unlock()));
    eventually("no connection leads to the old server", || ours(&old) == 0);
    eventually("it waits at the new one", || lock_of(&other, "wait").inspect().unwrap().waiting == 1);
    guard.unlock().unwrap();
    waits.join().unwrap().unwrap();
}

/// A user who may not ask who the server is: each new connection counts as one to another server, and none ends another.
#[test]
fn without_the_right_to_ask_every_connection_counts_as_one_to_a_new_server() {
    let mut server = RedisServer::start();
    let user = ["ACL", "SETUSER", "dlock", "on", ">pw", "~*", "&*", "+@all", "-info"];
    server.run::<()>(&user);
    let url = server.url().replace("//", "//dlock:pw@");
    let store = RedisLockProcessor::connect(&url).unwrap();
    let last = last_server(&store);
    let generator = DLockGenerator::connect(&url).unwrap();
    let guard = lock_of(&generator, "held").lock_owned().unwrap();
    let lost = guard.lost();
    // A subscription is one more connection: it ends no other one, or they would end each other for ever.
    let before = ours(&server);
    let _inbox = store.queue().unwrap().open_inbox("somebody", crate::support::LONG).unwrap();
    assert_eq!(last.load(Ordering::SeqCst), 1);
    assert_eq!(ours(&server), before + 1);
    server.restart();
    server.run::<()>(&user);
    touch(&generator);
    lost.recv_timeout(crate::support::LONG).expect("told of the loss");
}

/// Nothing is asked where nothing has changed: the number stays, however many connections there are.
#[test]
fn the_same_server_stays_the_same_over_any_number_of_connections() {
    let server = RedisServer::start();
    let store = RedisLockProcessor::connect(&server.url()).unwrap();
    let last = last_server(&store);
    for n in 0..4 {
        let _inbox = store.queue().unwrap().open_inbox(&format!("client-{n}"), crate::support::LONG).unwrap();
        server.run::<()>(&["CLIENT", "KILL", "TYPE", "normal"]);
        eventually("the store answers", || store.inspect("DLOCK_x_y", crate::support::LONG).is_ok());
    }
    assert_eq!(last.load(Ordering::SeqCst), 0);
}
