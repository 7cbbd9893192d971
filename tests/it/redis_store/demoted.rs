//! Numbers rise over a server that stops being a master, and is one again, while nobody looks.

use super::outcomes::{LEASE, setup};
use crate::conformance::suite::prove;
use crate::support::claim;
use crate::support::{LONG, RedisServer};
use redis_dlock::processor::Operations;
use redis_dlock::{AcquireOutcome, RedisLockProcessor};
use std::thread;
use std::time::Duration;

const KEY: &str = "DLOCK_t_demoted";

/// Longer than a connection may be quiet without being taken for another one, and far shorter than a proof lasts.
const UNSEEN: Duration = Duration::from_millis(150);

fn take(store: &RedisLockProcessor, locker: &str) -> u64 {
    match store.acquire(&claim(KEY, locker, LEASE), LONG).unwrap() {
        AcquireOutcome::Acquired(grant) => grant.number,
        other => panic!("{other:?}"),
    }
}

fn give(store: &RedisLockProcessor, locker: &str) {
    store.release(&claim(KEY, locker, LEASE), LONG).unwrap();
}

/// What another master issues while this one is a replica, and nobody asks it anything.
fn fail_over_and_back(server: &RedisServer, other: &RedisLockProcessor) -> u64 {
    server.run::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    thread::sleep(UNSEEN);
    let number = take(other, "b-1");
    give(other, "b-1");
    server.run::<()>(&["REPLICAOF", "NO", "ONE"]);
    number
}

/// Shows: G7, S2.
#[test]
fn numbers_rise_over_a_demotion_that_an_idle_client_or_a_holder_does_not_see() {
    for is_held in [false, true] {
        let [(server, store), (_another, other)] = [(); 2].map(|()| setup());
        for round in 0..5 {
            // The first number is a script's; the second is counted under its proof.
            prove(&store);
            take(&store, "a-1");
            if !is_held {
                give(&store, "a-1");
                prove(&store);
                take(&store, "a-1");
                give(&store, "a-1");
            }
            let theirs = fail_over_and_back(&server, &other);
            if is_held {
                // The release is the first command after it, and issues no number.
                give(&store, "a-1");
            }
            let ours = take(&store, "a-2");
            assert!(ours > theirs, "round {round}, held: {is_held}: {ours} after {theirs}");
            give(&store, "a-2");
        }
    }
}

/// Shows: G7, S2.
#[test]
fn a_refusal_that_was_told_to_nobody_ends_the_proof() {
    let [(server, store), (_another, other)] = [(); 2].map(|()| setup());
    prove(&store);
    server.run::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    server.run::<()>(&["CLIENT", "PAUSE", "60", "ALL"]);
    // Its answer is READONLY, and comes when the caller has left.
    store.acquire(&claim(KEY, "a-1", LEASE), Duration::from_millis(5)).unwrap_err();
    let theirs = take(&other, "b-1");
    server.run::<()>(&["REPLICAOF", "NO", "ONE"]);
    let ours = take(&store, "a-2");
    assert!(ours > theirs, "{ours} after {theirs}");
}
