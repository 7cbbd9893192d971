//! The connection on which a client hears of grants.

use crate::support::RedisServer;
use crate::support::crew::{eventually, spawn_with};
use crate::support::lab::config;
use redis_dlock::{DLockGenerator, RedisLockProcessor};

/// Shows: L1.
#[test]
fn a_listener_that_was_cut_off_subscribes_again_and_nobody_waits_in_vain() {
    let server = RedisServer::start();
    let [holder, waiting] = [(); 2].map(|()| {
        let processor = RedisLockProcessor::connect(&server.url()).unwrap();
        DLockGenerator::builder().listener(true).build(processor).unwrap()
    });
    let held = holder.generate_with(config("x", 6000)).unwrap();
    let lock = waiting.generate_with(config("x", 600)).unwrap();
    let subscribers = || server.run::<String>(&["CLIENT", "LIST", "TYPE", "pubsub"]).lines().count();
    for _ in 0..5 {
        let guard = held.lock().unwrap();
        let waiter = spawn_with(&lock, |other| drop(other.lock().unwrap()));
        eventually("it waits and listens", || lock.queue_length() == 1 && subscribers() == 1);
        assert_eq!(server.run::<u64>(&["CLIENT", "KILL", "TYPE", "pubsub"]), 1);
        guard.unlock().unwrap();
        waiter.join();
        eventually("it listens again", || subscribers() == 1);
    }
}
