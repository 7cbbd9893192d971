//! Dropped guards: the release is on its way when `drop` returns, and what comes of it is seen to later.

use crate::support::crew::{HANG, eventually};
use crate::support::lab::{builder, config, connect};
use crate::support::proxy::{Lot, Sent};
use crate::support::{Proxy, RedisServer};
use crossbeam_channel::{Receiver, bounded, unbounded};
use redis_dlock::{DLockGenerator, DistributedReentrantLock, LeaseLoss, LossCause, RedisLockProcessor};
use rustix::process::Signal;
use std::thread;
use std::time::Duration;

const HOUR: u64 = 3_600_000;

/// A lock whose server is known to know the scripts.
fn warm(generator: &DLockGenerator) -> DistributedReentrantLock {
    let lock = generator.generate_with(config("x", HOUR)).unwrap();
    lock.lock().unwrap().unlock().unwrap();
    lock
}

/// A client, and the losses that it tells.
fn telling(server: &RedisServer) -> (DLockGenerator, Receiver<LeaseLoss>) {
    let (say, losses) = unbounded();
    let store = RedisLockProcessor::connect(&server.url()).unwrap();
    let generator = builder().on_lost(move |loss| say.send(loss.clone()).unwrap()).build(store).unwrap();
    (generator, losses)
}

fn exists(server: &RedisServer, lock: &DistributedReentrantLock) -> bool {
    server.run::<u64>(&["EXISTS", lock.key()]) == 1
}

/// Drops a guard whose key is gone. Returns the channel of its loss.
fn drop_when_lost(server: &RedisServer, lock: &DistributedReentrantLock) -> Receiver<()> {
    let guard = lock.lock().unwrap();
    server.run::<()>(&["DEL", lock.key()]);
    guard.lost()
}

#[test]
fn a_drop_does_not_wait_for_the_answer() {
    let server = RedisServer::start();
    // Whoever waits for the stopped server, waits for longer than this test does.
    let patient = RedisLockProcessor::builder(&server.url()).unwrap().io_timeout(HANG * 2).build().unwrap();
    let generator = builder().build(patient).unwrap();
    let lock = warm(&generator);
    let guard = lock.lock().unwrap();
    server.signal(Signal::STOP);
    let (say, dropped) = bounded(1);
    let in_time = thread::scope(|scope| {
        let server = &server;
        let other = scope.spawn(move || {
            let in_time = dropped.recv_timeout(HANG).is_ok();
            server.signal(Signal::CONT);
            in_time
        });
        drop(guard);
        say.send(()).unwrap();
        other.join().unwrap()
    });
    assert!(in_time, "before the server went on");
    eventually("it is released", || !exists(&server, &lock));
}

/// Shows: G11, L2.
#[test]
fn a_release_that_gets_lost_is_repeated_though_nobody_calls_any_more() {
    let server = RedisServer::start();
    for lot in [Lot::LoseRequest, Lot::LoseReply, Lot::Reset, Lot::CutReply(1)] {
        let proxy = Proxy::to(server.port(), Duration::ZERO);
        let generator = connect(&proxy.url());
        let lock = warm(&generator);
        let guard = lock.lock().unwrap();
        let fired = proxy.trap(Sent::Release, 0, lot);
        drop(guard);
        eventually("it is met", || fired.is_fired());
        eventually("it is released", || !exists(&server, &lock));
        // All the same to those who come.
        drop(lock.try_lock_for(HANG).unwrap().expect("the lock is free"));
        // Before the network ends, and with it what is under way.
        eventually("it is released again", || !exists(&server, &lock));
    }
}

/// Shows: S17.
#[test]
fn the_next_lock_of_a_key_comes_behind_its_release() {
    let server = RedisServer::start();
    let generator = connect(&server.url());
    thread::scope(|scope| {
        for n in 0..6 {
            let lock = generator.generate_with(config(&n.to_string(), HOUR)).unwrap();
            scope.spawn(move || {
                for _ in 0..500 {
                    drop(lock.try_lock().unwrap().expect("nobody else wants it"));
                }
            });
        }
    });
}

/// Shows: G6.
#[test]
fn a_loss_that_the_release_finds_is_told() {
    let server = RedisServer::start();
    let (generator, losses) = telling(&server);
    let lock = warm(&generator);
    let lost = drop_when_lost(&server, &lock);
    assert_eq!(lost.recv_timeout(HANG), Ok(()));
    assert_eq!(losses.recv_timeout(HANG).unwrap().cause, LossCause::Deleted);

    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    drop(guard);
    assert!(lost.recv_timeout(HANG).is_err_and(|error| error.is_disconnected()), "released in time");
    assert!(losses.is_empty());
}

/// Shows: G6.
#[test]
fn a_loss_is_told_also_when_all_is_dropped_at_once() {
    let server = RedisServer::start();
    for _ in 0..20 {
        let (generator, losses) = telling(&server);
        let lock = warm(&generator);
        let lost = drop_when_lost(&server, &lock);
        drop((lock, generator));
        assert_eq!(lost.recv_timeout(HANG), Ok(()));
        assert_eq!(losses.recv_timeout(HANG).unwrap().cause, LossCause::Deleted);
    }
}

/// Shows: L2, L6.
#[test]
fn who_drops_all_leaves_nothing() {
    let server = RedisServer::start();
    for _ in 0..50 {
        let generator = connect(&server.url());
        let lock = warm(&generator);
        drop(lock.lock().unwrap());
        let key = lock.key().to_owned();
        drop((lock, generator));
        assert_eq!(server.run::<u64>(&["EXISTS", &key]), 0);
    }
}

/// Drops a guard of a lock whose scripts the server has forgotten, and tries it at once; how often it is said to be held.
fn missed(server: &RedisServer, lock: &DistributedReentrantLock, forget: impl Fn()) -> usize {
    let mut missed = 0;
    for _ in 0..200 {
        let guard = lock.lock().unwrap();
        server.run::<()>(&["SCRIPT", "FLUSH"]);
        forget();
        drop(guard);
        missed += usize::from(lock.try_lock().unwrap().is_none());
    }
    missed
}

/// Shows: S17.
#[test]
fn a_dropped_lock_is_free_at_once_when_the_server_has_forgotten_the_scripts() {
    let server = RedisServer::start();
    let generator = connect(&server.url());
    assert_eq!(missed(&server, &warm(&generator), || ()), 0);
}

/// Shows: S17.
#[test]
fn a_dropped_lock_is_free_at_once_when_the_server_knows_only_the_script_that_takes_it() {
    let server = RedisServer::start();
    let (generator, other) = (connect(&server.url()), connect(&server.url()));
    let lock = warm(&generator);
    let (elsewhere, apart) = (other.generate_with(config("x", HOUR)).unwrap(), config("apart", HOUR));
    let missed = missed(&server, &lock, || {
        // A fresh client asks by the script first, and leaves its own lock.
        let apart = connect(&server.url()).generate_with(apart.clone()).unwrap().unguarded();
        let _ = apart.try_lock().unwrap();
    });
    assert_eq!(missed, 0);
    // The same with a lock that was busy a moment ago, which is asked for by the script.
    let mut missed = 0;
    for n in 0..50 {
        let held = elsewhere.lock().unwrap();
        assert!(lock.try_lock().unwrap().is_none());
        held.unlock().unwrap();
        let guard = lock.lock().unwrap();
        server.run::<()>(&["SCRIPT", "FLUSH"]);
        connect(&server.url()).generate_with(config(&format!("apart-{n}"), HOUR)).unwrap().unguarded().lock().unwrap();
        drop(guard);
        missed += usize::from(lock.try_lock().unwrap().is_none());
    }
    assert_eq!(missed, 0);
}
