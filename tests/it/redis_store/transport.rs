//! Time-outs, broken and stalled servers, and many threads on one connection.

use super::outcomes::{LEASE, setup};
use crate::support::crew::HANG;
use crate::support::{Asking, claim};
use crate::support::{LONG, RedisServer};
use redis_dlock::processor::{Limit, Operations};
use redis_dlock::{
    AcquireOutcome, BackendFailure, Busy, Error, LockProcessor, PollOutcome, ProbeOutcome, RedisLockProcessor,
    ReleaseOutcome, Request,
};
use rustix::process::Signal;
use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(50);

fn failure<T: Debug>(result: Result<T, Error>) -> BackendFailure {
    match result {
        Err(Error::Backend { failure, .. }) => failure,
        other => panic!("{other:?}"),
    }
}

/// Shows: S15.
#[test]
fn replies_of_many_threads_are_never_mixed_up() {
    let (_server, store) = setup();
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let store = &store;
            scope.spawn(move || {
                let key = format!("k{thread}");
                for n in 0..200 {
                    let (locker, rival) = (format!("t{thread}-{n}"), format!("r{thread}-{n}"));
                    let taken = store.acquire(&claim(&key, &locker, LEASE), LONG).unwrap();
                    assert!(matches!(taken, AcquireOutcome::Acquired(_)), "{taken:?}");
                    match store.acquire(&claim(&key, &rival, LEASE), LONG).unwrap() {
                        AcquireOutcome::Busy(Busy { holder, .. }) => assert_eq!(holder, Some(locker.clone())),
                        other => panic!("{other:?}"),
                    }
                    if n % 7 == 0 {
                        // Some leave before their answer.
                        let _ = store.probe(&claim(&key, &rival, LEASE), Duration::from_micros(1));
                    }
                    let polled = store.poll(&claim(&key, &locker, LEASE), LONG).unwrap();
                    assert!(matches!(polled, PollOutcome::Acquired(_)), "{polled:?}");
                    let released = store.release(&claim(&key, &locker, LEASE), LONG).unwrap();
                    assert_eq!(released, ReleaseOutcome::Released { waiting: 0 });
                }
            });
        }
    });
}

/// Shows: G12, L5.
#[test]
fn a_stalled_server_holds_nobody_beyond_its_time_and_the_link_recovers() {
    let server = RedisServer::start();
    let store = RedisLockProcessor::builder(&server.url()).unwrap().io_timeout(HANG * 8).connect().unwrap();
    store.acquire(&claim("k", "a-1", LEASE), LONG).unwrap();
    let links = || server.run::<String>(&["CLIENT", "LIST"]).matches("name=redis-dlock").count();
    let id = || {
        server.run::<String>(&["CLIENT", "LIST"]).lines().find(|l| l.contains("redis-dlock")).map(|l| l[..8].to_owned())
    };
    let before = id();
    server.signal(Signal::STOP);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| failure(store.probe(&claim("k", "a-1", LEASE), SHORT)));
        }
    });
    assert_eq!(failure(store.probe(&claim("k", "a-1", LEASE), Duration::ZERO)), BackendFailure::NotExecuted);
    // Whatever is due, it is written; what becomes of it nobody can say yet.
    assert_eq!(failure(store.acquire(&claim("j", "b-1", LEASE), SHORT)), BackendFailure::Unknown);
    assert!(start.elapsed() < HANG, "a call has waited for the time-out of the connection");
    server.signal(Signal::CONT);
    let probed = store.probe(&claim("k", "a-1", LEASE), LONG).unwrap();
    assert_eq!(probed, ProbeOutcome::Ours);
    assert_eq!(id(), before, "the same link goes on");
    let polled = store.poll(&claim("j", "b-1", LEASE), LONG).unwrap();
    assert!(matches!(polled, PollOutcome::Acquired(_)), "it was executed: {polled:?}");

    // A renewal that ends unanswered breaks the link, the next goes on a fresh one.
    server.signal(Signal::STOP);
    let start = Instant::now();
    let renewals = store.run(
        &[Request::Extend(claim("k", "a-1", LEASE)), Request::Poll(claim("k", "z-1", LEASE))],
        Limit::Attempt(SHORT),
    );
    assert!(start.elapsed() < HANG, "a call has waited for the time-out of the connection");
    assert!(renewals.into_iter().all(|renewal| failure(renewal) == BackendFailure::Unknown));
    server.signal(Signal::CONT);
    store.extend(&claim("k", "a-1", LEASE), LONG).unwrap();
    assert_ne!(id(), before);
    let end = Instant::now() + LONG;
    while links() != 1 {
        assert!(Instant::now() < end, "the broken link stays open");
    }
}

/// Shows: L5.
#[test]
fn an_overdue_reply_breaks_the_link_for_all_that_wait_on_it() {
    let server = RedisServer::start();
    let store = RedisLockProcessor::builder(&server.url()).unwrap().io_timeout(SHORT).connect().unwrap();
    store.acquire(&claim("k", "a-1", LEASE), LONG).unwrap();
    server.signal(Signal::STOP);
    assert_eq!(failure(store.probe(&claim("k", "a-1", LEASE), LONG)), BackendFailure::Unknown);
    server.signal(Signal::CONT);
    assert_eq!(store.probe(&claim("k", "a-1", LEASE), LONG).unwrap(), ProbeOutcome::Ours);
}

#[test]
fn a_killed_server_fails_by_name_and_a_restarted_one_is_used() {
    let (mut server, store) = setup();
    store.acquire(&claim("k", "a-1", LEASE), LONG).unwrap();
    let mut inbox = store.open("a", LONG).unwrap();
    server.kill();
    let _ = failure(store.acquire(&claim("k", "a-2", LEASE), LONG));
    assert_eq!(failure(store.acquire(&claim("k", "a-3", LEASE), LONG)), BackendFailure::NotExecuted);
    assert_eq!(failure(inbox.next(LONG)), BackendFailure::Unknown);
    assert_eq!(failure(inbox.next(LONG)), BackendFailure::Unknown);
    server.restart();
    assert!(matches!(store.acquire(&claim("k", "a-4", LEASE), LONG).unwrap(), AcquireOutcome::Acquired(_)));

    // A link that was closed while idle is noticed before it is used.
    server.kill();
    server.restart();
    std::thread::sleep(Duration::from_millis(1100));
    assert!(matches!(store.acquire(&claim("k", "a-5", LEASE), LONG).unwrap(), AcquireOutcome::Acquired(_)));
}

/// Shows: L5.
#[test]
fn half_a_reply_is_an_unknown_outcome_and_answered_requests_keep_their_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        for tail in ["*2\r\n:0\r\n$3\r\nb-", ":1\r\n*2\r\n:0", "HTTP/1.1 400 Bad Request\r\n", ":5\r\n"] {
            let (mut socket, _) = listener.accept().unwrap();
            let mut buffer = [0u8; 4096];
            let _ = socket.read(&mut buffer).unwrap();
            socket.write_all(b"*4\r\n+version\r\n+7.0.15\r\n+mode\r\n+standalone\r\n-NOPERM no INFO\r\n").unwrap();
            let _ = socket.read(&mut buffer).unwrap();
            socket.write_all(tail.as_bytes()).unwrap();
        }
    });
    let store = RedisLockProcessor::builder(&url).unwrap().build().unwrap();
    let probe = claim("k", "a-1", LEASE);
    assert_eq!(failure(store.probe(&probe, LONG)), BackendFailure::Unknown);
    let release = claim("k", "a-1", LONG);
    let mut both = store.run(&[Request::Probe(probe), Request::Release(release)], Limit::Attempt(LONG)).into_iter();
    assert!(both.next().unwrap().is_ok());
    assert_eq!(failure(both.next().unwrap()), BackendFailure::Unknown);
    assert_eq!(failure(store.probe(&probe, LONG)), BackendFailure::Unknown);
    // A whole reply of a shape that no script has.
    assert_eq!(failure(store.probe(&probe, LONG)), BackendFailure::Unknown);
    server.join().unwrap();
}

/// Shows: L5.
#[test]
fn after_close_every_call_says_so() {
    let (server, store) = setup();
    store.acquire(&claim("k", "a-1", LEASE), LONG).unwrap();
    server.signal(Signal::STOP);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| store.probe(&claim("k", "a-1", LEASE), LONG));
        std::thread::sleep(SHORT);
        store.close();
        assert!(waits.join().unwrap().is_err());
    });
    assert!(matches!(store.acquire(&claim("k", "a-2", LEASE), LONG), Err(Error::ShutDown)));
    assert!(matches!(store.open("a", LONG).err(), Some(Error::ShutDown)));
    server.signal(Signal::CONT);
}
