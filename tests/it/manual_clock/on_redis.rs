//! With a real server, leases go on by its clock; what a client thinks of them goes by its own.

use super::{LEASE, cause, let_sleep, settings, until_waiting};
use crate::support::RedisServer;
use crate::support::crew::{HANG, spawn};
use redis_dlock::{DLockGenerator, LossCause, ManualClock, RedisLockProcessor};
use std::sync::Arc;

const ROUNDS: usize = 30;

fn generator(server: &RedisServer, clock: &Arc<ManualClock>) -> DLockGenerator {
    let processor = RedisLockProcessor::connect(&server.url()).unwrap();
    crate::support::lab::builder().clock(clock.clone()).build(processor).unwrap()
}

/// Shows: G5, G6.
#[test]
fn a_lease_is_lost() {
    let server = RedisServer::start();
    for round in 0..ROUNDS {
        let clock = Arc::new(ManualClock::new());
        let lock = generator(&server, &clock).generate_with(settings()).unwrap();
        let guard = lock.lock().unwrap();
        let lost = guard.lost();
        let_sleep(round);
        clock.advance(LEASE);
        lost.recv_timeout(HANG).expect("whoever watches is told");
        assert!(!guard.is_valid());
        assert_eq!(cause(guard.unlock()), LossCause::Deadline);
    }
}

/// Shows: G12, L3.
#[test]
fn a_wait_is_over() {
    let server = RedisServer::start();
    for _ in 0..ROUNDS {
        let clock = Arc::new(ManualClock::new());
        let (holder, lock) = (generator(&server, &clock), generator(&server, &clock));
        let (holder, lock) = (holder.generate_with(settings()).unwrap(), lock.generate_with(settings()).unwrap());
        let guard = holder.lock().unwrap();
        let other = lock.clone();
        let waiter = spawn(move || other.try_lock_for(LEASE / 2).unwrap().is_none());
        until_waiting(&lock, 1);
        clock.advance(LEASE / 2);
        assert!(waiter.join());
        guard.unlock().unwrap();
    }
}
