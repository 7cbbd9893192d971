//! The one lock of these tests: how clients are made, and what the server has of it.

use crate::support::lab::patient;
use crate::support::{LONG, RedisServer, claim};
use redis_dlock::processor::Operations;
use redis_dlock::{
    DLockConfig, DLockGenerator, DistributedReentrantLock, GeneratorBuilder, LockProcessor, RedisLockProcessor,
};
use std::time::Duration;

/// A lease in which nobody asks again, renews or probes.
pub(super) const HOUR: Duration = Duration::from_secs(3600);

/// The type, target and key of the lock.
pub(super) const TYPE: &str = "HAND";
pub(super) const TARGET: &str = "over";
pub(super) const KEY: &str = "DLOCK_HAND_over";

/// A server that has all scripts already: else their first calls would count twice.
pub(super) fn start() -> RedisServer {
    let server = RedisServer::start();
    let processor = processor(&server.url());
    let (key, locker, lease, limit) = ("DLOCK_HAND_first", "somebody-1", HOUR, LONG);
    processor.acquire(&claim(key, locker, lease), limit).unwrap();
    processor.poll(&claim(key, locker, lease), limit).unwrap();
    processor.extend(&claim(key, locker, lease), limit).unwrap();
    processor.probe(&claim(key, locker, lease), limit).unwrap();
    processor.release(&claim(key, locker, lease), limit).unwrap();
    processor.close();
    server
}

/// Settings of a client that is handed the lock.
pub(super) fn builder() -> GeneratorBuilder {
    DLockGenerator::builder().listener(true).client_record(false)
}

/// A client on a server.
pub(super) fn client(url: &str) -> DLockGenerator {
    builder().build(processor(url)).unwrap()
}

/// A client's way to a server. It waits long for a reply: some tests hold replies back.
pub(super) fn processor(url: &str) -> RedisLockProcessor {
    patient(url).connect().unwrap()
}

/// The settings of the lock.
pub(super) fn config(lease: Duration) -> DLockConfig {
    DLockConfig::new(TYPE, TARGET).with_lease(lease)
}

/// The lock, made by a client.
pub(super) fn lock(client: &DLockGenerator, lease: Duration) -> DistributedReentrantLock {
    client.generate_with(config(lease)).unwrap()
}

/// The locker that holds the lock.
pub(super) fn holder(server: &RedisServer) -> Option<String> {
    server.run(&["GET", KEY])
}

/// The lockers that stand in the queue, first to last.
pub(super) fn queue(server: &RedisServer) -> Vec<String> {
    server.waiters_of(KEY)
}

/// The process of a locker.
pub(super) fn process(locker: &str) -> u32 {
    locker.rsplit('-').nth(2).unwrap().parse().unwrap()
}

/// How many clients hear their inbox.
pub(super) fn inboxes(server: &RedisServer) -> usize {
    server.run::<Vec<String>>(&["PUBSUB", "CHANNELS", "DLOCK:1:inbox:*"]).len()
}
