//! While replicas are missing, every command that may take a lock is answered late. The time that the server waits comes on top of the time
//! that a command has anyway, however long the two are.

use super::{builder_with, connections, failure, lock_of, replicated, signal_replicas};
use crate::support::RedisServer;
use crate::support::crew::{eventually, spawn};
use redis_dlock::{BackendFailure, DLockGenerator, DistributedReentrantLock};
use rustix::process::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A client that lets the server wait for so long, which is the longest time that its time-out allows.
fn generator(server: &RedisServer, longest: Duration) -> DLockGenerator {
    let store = builder_with(&server.url(), 1, longest).io_timeout(longest * 2).connect().unwrap();
    DLockGenerator::new(store).unwrap()
}

fn locks(generator: &DLockGenerator, count: usize) -> Vec<DistributedReentrantLock> {
    (0..count).map(|n| lock_of(generator, &n.to_string())).collect()
}

/// An attempt may be kept by the replicas of earlier attempts and by its own, twice where the server does not know the script, and by those
/// of others before it is undone. Each time may be as long as half of what a command may take.
#[test]
fn attempts_fail_by_name_however_long_the_server_waits() {
    let service = replicated(1);
    let master = &service.servers[0];
    // A busy machine keeps a server off its cores for less.
    let generator = generator(master, Duration::from_secs(1));
    let locks = locks(&generator, 32);
    signal_replicas(&service, Signal::STOP);
    let before = connections(master);
    let members: Vec<_> = locks
        .into_iter()
        .map(|lock| spawn(move || (0..3).map(|_| failure(lock.try_lock())).collect::<Vec<_>>()))
        .collect();
    let failures: Vec<_> = members.into_iter().flat_map(|member| member.join()).collect();
    assert!(failures.iter().all(|failure| *failure == BackendFailure::Unacknowledged), "{failures:?}");
    assert_eq!(master.run::<Vec<String>>(&["KEYS", "DLOCK_ACKS_*"]), Vec::<String>::new());
    let opened = connections(master) - before;
    assert!(opened <= 8, "{opened} connections");
    signal_replicas(&service, Signal::CONT);
}

/// The thread that asks for all who wait sends its questions over several connections, and waits for them one after another.
#[test]
fn many_that_wait_without_a_limit_cost_no_connection() {
    let service = replicated(1);
    let master = &service.servers[0];
    let longest = Duration::from_millis(300);
    let generator = generator(master, longest);
    let locks = locks(&generator, 64);
    signal_replicas(&service, Signal::STOP);
    let before = connections(master);
    let went_on = Arc::new(AtomicBool::new(false));
    let members: Vec<_> = locks
        .into_iter()
        .map(|lock| {
            let went_on = Arc::clone(&went_on);
            spawn(move || {
                let guard = lock.lock().unwrap();
                assert!(went_on.load(Ordering::SeqCst));
                guard.unlock().unwrap();
            })
        })
        .collect();
    thread::sleep(longest * 20);
    let opened = connections(master) - before;
    went_on.store(true, Ordering::SeqCst);
    signal_replicas(&service, Signal::CONT);
    members.into_iter().for_each(|member| member.join());
    assert!(opened <= 10, "{opened} connections");
    eventually("nothing is left", || master.run::<Vec<String>>(&["KEYS", "DLOCK_ACKS_*"]).is_empty());
}
