//! Version 0.1 and the present one lock the same keys on the same server. The manual's page "Upgrading" says what each does beside the other. On etcd and
//! Consul, which 0.1 does not know, an earlier build takes its place: its waiters do not confirm what they are given.
//!
//! `tests/run.sh two-versions` takes both from the repository's history.

#![allow(dead_code, reason = "this uses a part of the kit")]

#[path = "../support/consensus/mod.rs"]
mod consensus;
#[path = "../support/crew.rs"]
mod crew;
#[path = "../support/history.rs"]
mod history;
#[path = "../support/ports.rs"]
mod ports;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/queue.rs"]
mod queue;
#[path = "../support/redis_server.rs"]
mod redis_server;
/// Where the kit of etcd and Consul finds the others.
mod support {
    pub(crate) use super::{crew, ports, process};
}

use consensus::{ConsensusStore, Consul, Etcd, Quorum};
use crew::eventually;
use first_version as first;
use history::{Hold, exclusive};
use redis_dlock::{BreakOutcome, DLockConfig, DLockGenerator};
use redis_server::RedisServer;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

const KEY: &str = "DLOCK_ORDER_4711";

/// Nothing ends by itself in a test, unless it waits for that.
const LEASE: Duration = Duration::from_secs(60);

fn earlier(server: &RedisServer) -> first::DistributedReentrantLock {
    earlier_with(server, LEASE)
}

fn earlier_with(server: &RedisServer, lease: Duration) -> first::DistributedReentrantLock {
    let generator = first::DLockGenerator::connect(&server.url()).unwrap();
    generator.generate_with(first::DLockConfig::new("ORDER", "4711").with_lease(lease)).unwrap()
}

fn config() -> DLockConfig {
    DLockConfig::new("ORDER", "4711").with_lease(LEASE)
}

fn present(server: &RedisServer) -> DLockGenerator {
    DLockGenerator::connect(&server.url()).unwrap()
}

#[test]
fn processes_of_both_versions_count_under_one_lock() {
    let server = RedisServer::start();
    count(&server, &server.url(), "0.1", 300);
}

#[test]
fn etcd_has_processes_of_both_builds_count_under_one_lock() {
    count(&RedisServer::start(), &Etcd::start(1).url("two"), "before", 100);
}

#[test]
fn consul_has_processes_of_both_builds_count_under_one_lock() {
    count(&RedisServer::start(), &Consul::start(1).url("two"), "before", 100);
}

/// Two processes of each version count under one lock. None loses a count, the tokens rise across all, and the lock goes from each version to
/// the other.
fn count(server: &RedisServer, url: &str, earlier: &str, rounds: usize) {
    server.run::<()>(&["SET", "counter", "0"]);
    let start = |(process, version): (usize, &str)| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
        command.args([version, url, &server.url(), &process.to_string(), &rounds.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut workers: Vec<_> = (1..).zip([earlier, "0.2", earlier, "0.2"]).map(start).collect();
    let mut said: Vec<_> =
        workers.iter_mut().map(|worker| BufReader::new(worker.stdout.take().unwrap()).lines()).collect();
    for lines in &mut said {
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
    }
    workers.iter_mut().for_each(|worker| drop(worker.stdin.take()));
    let holds: Vec<Hold> = said.into_iter().flatten().map(|line| line.unwrap().parse().unwrap()).collect();
    workers.iter_mut().for_each(ended);

    assert_eq!(server.run::<usize>(&["GET", "counter"]), 4 * rounds);
    let holds = exclusive(holds);
    assert_eq!(holds.len(), 4 * rounds);
    let goes = |from: usize, to: usize| {
        holds.windows(2).filter(|pair| pair[0].process % 2 == from && pair[1].process % 2 == to).count()
    };
    let (to_the_present, to_the_earlier) = (goes(1, 0), goes(0, 1));
    println!("from {earlier} to 0.2 {to_the_present} times, from 0.2 to {earlier} {to_the_earlier} times");
    assert!(to_the_present > 10 && to_the_earlier > 10, "{to_the_present}, {to_the_earlier}");
}

fn ended(worker: &mut Child) {
    assert!(worker.wait().unwrap().success());
}

/// The holder finds out by its next probe, and is not told why.
#[test]
fn a_broken_holder_of_the_first_version_finds_out_by_its_probe() {
    let server = RedisServer::start();
    // A probe comes after half a second, and a renewal, which would say so, too, after more than two.
    let holder = earlier_with(&server, Duration::from_secs(3));
    let guard = holder.lock().unwrap();
    let present = present(&server);
    let locker = holder.holder().unwrap().unwrap().locker;
    let broken = present.break_lock("ORDER", "4711", &locker, "a test").unwrap();
    assert_eq!(broken, BreakOutcome::Broken { next: None, waiting: 0 });
    guard.lost().recv_timeout(crew::HANG).unwrap();
    match guard.ensure_valid() {
        Err(first::Error::LeaseLost(loss)) => assert_eq!(loss.cause, first::LossCause::Deleted),
        other => panic!("{other:?}"),
    }
}

/// It shows only the locker of a client of 0.1, which also waits in the queue that both have.
#[test]
fn of_the_first_version_only_lockers_are_described() {
    let server = RedisServer::start();
    let (holder, present) = (earlier(&server), present(&server));
    let guard = holder.lock().unwrap();
    let waiter = earlier(&server);
    let waiting = thread::spawn(move || waiter.lock().unwrap().unlock().unwrap());
    eventually("the other one waits", || server.waiters_of(KEY).len() == 1);
    let described = present.describe("ORDER", "4711").unwrap();
    let party = described.holder.unwrap();
    assert_eq!(Some(party.locker), server.run(&["GET", KEY]));
    assert_eq!((party.client, party.told), (None, None));
    let [party] = &described.waiting[..] else { panic!("{:?}", described.waiting) };
    assert_eq!(party.locker, server.waiters_of(KEY)[0]);
    assert_eq!((&party.client, &party.told), (&None, &None));
    guard.unlock().unwrap();
    waiting.join().unwrap();
}

/// A waiter that nobody hears keeps its place at a release by the present version, and is dropped by one of version 0.1.
#[test]
fn a_release_by_the_first_version_drops_places_that_are_kept() {
    let server = RedisServer::start();
    let present = present(&server);
    let lock = present.generate_with(config()).unwrap();
    let first_lock = earlier(&server);
    for by_the_first in [false, true] {
        let release: Box<dyn FnOnce() + '_> = if by_the_first {
            let guard = first_lock.lock().unwrap();
            Box::new(|| guard.unlock().unwrap())
        } else {
            let guard = lock.lock().unwrap();
            Box::new(|| guard.unlock().unwrap())
        };
        let waiter = earlier(&server);
        let (has_it, had) = channel();
        let (go, goes) = channel::<()>();
        let waiting = thread::spawn(move || {
            let guard = waiter.lock().unwrap();
            has_it.send(()).unwrap();
            goes.recv().unwrap();
            guard.unlock().unwrap();
        });
        eventually("it waits", || server.waiters_of(KEY).len() == 1);
        // In front of it stands a locker whose client has no inbox.
        let queue = server.queue_of(KEY).unwrap();
        server.run::<()>(&["LPUSH", &queue, "60000 nobody-1"]);
        release();
        had.recv_timeout(crew::HANG).unwrap();
        let keeps = server.waiters_of(KEY) == ["nobody-1"];
        assert_eq!(keeps, !by_the_first, "{:?}", server.entries_of(KEY));
        go.send(()).unwrap();
        waiting.join().unwrap();
        server.run::<()>(&["DEL", &queue]);
    }
}

/// Clients of 0.1 see a holder with a time to live, and wait for it.
#[test]
fn a_lock_that_is_kept_after_its_hold_is_held_for_the_first_version() {
    let server = RedisServer::start();
    let present = present(&server);
    let kept = Duration::from_secs(40);
    present.generate_with(config()).unwrap().lock().unwrap().unlock_after(kept).unwrap();
    // It asks every sixth of its lease.
    let other = earlier_with(&server, Duration::from_secs(3));
    assert!(other.try_lock().unwrap().is_none());
    let holder = other.holder().unwrap().unwrap();
    assert!(holder.remaining.unwrap() <= kept, "{holder:?}");
    // It gets the lock when the time is over.
    let waiting = thread::spawn(move || other.lock().unwrap().fencing_token());
    eventually("it waits", || server.waiters_of(KEY).len() == 1);
    server.run::<()>(&["PEXPIRE", KEY, "1"]);
    assert!(waiting.join().unwrap() > 0);
}

/// Clients of 0.1 see a longer time to live, and wait for it.
#[test]
fn a_lock_delay_is_a_longer_lease_for_the_first_version() {
    let server = RedisServer::start();
    let present = present(&server);
    let lock = present.generate_with(config().with_lock_delay(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    let other = earlier(&server);
    assert!(other.try_lock().unwrap().is_none());
    let holder = other.holder().unwrap().unwrap();
    assert!(holder.remaining.unwrap() > LEASE, "{holder:?}");
    guard.unlock().unwrap();
    assert!(other.try_lock().unwrap().is_some());
}

/// Nothing that the present version leaves in the server disturbs 0.1, and the tokens go on.
#[test]
fn one_can_go_back() {
    let server = RedisServer::start();
    let generator = present(&server);
    let lock = generator.generate_with(config().with_reason("a test")).unwrap();
    let guard = lock.lock().unwrap();
    let record = || !server.run::<Vec<String>>(&["KEYS", "DLOCK:1:client:*"]).is_empty();
    eventually("it has written its client record", record);
    let token = guard.fencing_token();
    guard.unlock().unwrap();
    generator.close();
    let back = earlier(&server);
    let guard = back.try_lock().unwrap().unwrap();
    assert!(guard.fencing_token() > token);
    guard.unlock().unwrap();
}
