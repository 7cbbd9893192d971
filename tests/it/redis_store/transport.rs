//! Time-outs, broken and stalled servers, and many threads on one connection.

use super::outcomes::{acquire, extend, poll, release, setup};
use crate::support::{LONG, RedisServer};
use redis_dlock::{
    AcquireOutcome, BackendFailure, Busy, Error, LockProcessor, PollOutcome, ProbeOutcome, ProbeRequest,
    RedisLockProcessor, ReleaseOutcome, ReleaseRequest, Request,
};
use rustix::process::Signal;
use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(50);
/// What a call of 50 ms may take on a crowded machine; the I/O time-out of these tests is far longer.
const BOUND: Duration = Duration::from_secs(5);

fn failure<T: Debug>(result: Result<T, Error>) -> BackendFailure {
    match result {
        Err(Error::Backend { failure, .. }) => failure,
        other => panic!("{other:?}"),
    }
}

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
                    let taken = store.acquire(&acquire(&key, &locker, false), LONG).unwrap();
                    assert!(matches!(taken, AcquireOutcome::Acquired(_)), "{taken:?}");
                    match store.acquire(&acquire(&key, &rival, false), LONG).unwrap() {
                        AcquireOutcome::Busy(Busy { holder, .. }) => assert_eq!(holder, locker),
                        other => panic!("{other:?}"),
                    }
                    if n % 7 == 0 {
                        // Some leave before their answer.
                        let _ = store.probe(&ProbeRequest { key: &key, locker: &rival }, Duration::from_micros(1));
                    }
                    let polled = store.poll(&poll(&key, &locker), LONG).unwrap();
                    assert!(matches!(polled, PollOutcome::Acquired(_)), "{polled:?}");
                    let released = store.release(&release(&key, &locker, None), LONG).unwrap();
                    assert_eq!(released, ReleaseOutcome::Released { waiting: 0 });
                }
            });
        }
    });
}

#[test]
fn a_stalled_server_holds_nobody_beyond_its_time_and_the_link_recovers() {
    let server = RedisServer::start();
    let store = RedisLockProcessor::builder(&server.url()).unwrap().io_timeout(LONG * 10).connect().unwrap();
    store.acquire(&acquire("k", "a-1", false), LONG).unwrap();
    let links = || server.run::<String>(&["CLIENT", "LIST"]).matches("name=redis-dlock").count();
    let id = || {
        server.run::<String>(&["CLIENT", "LIST"]).lines().find(|l| l.contains("redis-dlock")).map(|l| l[..8].to_owned())
    };
    let before = id();
    server.signal(Signal::STOP);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| failure(store.probe(&ProbeRequest { key: "k", locker: "a-1" }, SHORT)));
        }
    });
    assert_eq!(
        failure(store.probe(&ProbeRequest { key: "k", locker: "a-1" }, Duration::ZERO)),
        BackendFailure::NotExecuted
    );
    // Whatever is due, it is written; what becomes of it nobody can say yet.
    assert_eq!(failure(store.acquire(&acquire("j", "b-1", false), SHORT)), BackendFailure::Unknown);
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
    server.signal(Signal::CONT);
    let probed = store.probe(&ProbeRequest { key: "k", locker: "a-1" }, LONG).unwrap();
    assert_eq!(probed, ProbeOutcome::Ours);
    assert_eq!(id(), before, "the same link goes on");
    let polled = store.poll(&poll("j", "b-1"), LONG).unwrap();
    assert!(matches!(polled, PollOutcome::Acquired(_)), "it was executed: {polled:?}");

    // A renewal that ends unanswered breaks the link, the next goes on a fresh one.
    server.signal(Signal::STOP);
    let start = Instant::now();
    let renewals = store.batch(&[Request::Extend(extend("k", "a-1", false)), Request::Poll(poll("k", "z-1"))], SHORT);
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
    assert!(renewals.into_iter().all(|renewal| failure(renewal) == BackendFailure::Unknown));
    server.signal(Signal::CONT);
    store.extend(&extend("k", "a-1", false), LONG).unwrap();
    assert_ne!(id(), before);
    let end = Instant::now() + LONG;
    while links() != 1 {
        assert!(Instant::now() < end, "the broken link stays open");
    }
}

#[test]
fn an_overdue_reply_breaks_the_link_for_all_that_wait_on_it() {
    let server = RedisServer::start();
    let store = RedisLockProcessor::builder(&server.url()).unwrap().io_timeout(SHORT).connect().unwrap();
    store.acquire(&acquire("k", "a-1", false), LONG).unwrap();
    server.signal(Signal::STOP);
    assert_eq!(failure(store.probe(&ProbeRequest { key: "k", locker: "a-1" }, LONG)), BackendFailure::Unknown);
    server.signal(Signal::CONT);
    assert_eq!(store.probe(&ProbeRequest { key: "k", locker: "a-1" }, LONG).unwrap(), ProbeOutcome::Ours);
}

#[test]
fn a_killed_server_fails_by_name_and_a_restarted_one_is_used() {
    let (mut server, store) = setup();
    store.acquire(&acquire("k", "a-1", false), LONG).unwrap();
    let mut inbox = store.open_inbox("a", LONG).unwrap();
    server.kill();
    let _ = failure(store.acquire(&acquire("k", "a-2", false), LONG));
    assert_eq!(failure(store.acquire(&acquire("k", "a-3", false), LONG)), BackendFailure::NotExecuted);
    assert_eq!(failure(inbox.next(LONG)), BackendFailure::Unknown);
    assert_eq!(failure(inbox.next(LONG)), BackendFailure::Unknown);
    server.restart();
    assert!(matches!(store.acquire(&acquire("k", "a-4", false), LONG).unwrap(), AcquireOutcome::Acquired(_)));

    // A link that was closed while idle is noticed before it is used.
    server.kill();
    server.restart();
    std::thread::sleep(Duration::from_millis(1100));
    assert!(matches!(store.acquire(&acquire("k", "a-5", false), LONG).unwrap(), AcquireOutcome::Acquired(_)));
}

#[test]
fn half_a_reply_is_an_unknown_outcome_and_answered_requests_keep_their_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        for tail in ["*2\r\n:0\r\n$3\r\nb-", ":1\r\n*2\r\n:0", "HTTP/1.1 400 Bad Request\r\n", ":5\r\n"] {
            let (mut socket, _) = listener.accept().unwrap();
            let mut buffer = [0u8; 4096];
            let _ = socket.read(&mut buffer).unwrap();
            socket.write_all(b"*4\r\n+version\r\n+7.0.15\r\n+mode\r\n+standalone\r\n").unwrap();
            let _ = socket.read(&mut buffer).unwrap();
            socket.write_all(tail.as_bytes()).unwrap();
        }
    });
    let store = RedisLockProcessor::builder(&url).unwrap().build().unwrap();
    let probe = ProbeRequest { key: "k", locker: "a-1" };
    assert_eq!(failure(store.probe(&probe, LONG)), BackendFailure::Unknown);
    let release = ReleaseRequest { key: "k", locker: "a-1", lease: LONG, next: None, gap: None };
    let mut both = store.batch(&[Request::Probe(probe), Request::Release(release)], LONG).into_iter();
    assert!(both.next().unwrap().is_ok());
    assert_eq!(failure(both.next().unwrap()), BackendFailure::Unknown);
    assert_eq!(failure(store.probe(&probe, LONG)), BackendFailure::Unknown);
    // A whole reply of a shape that no script has.
    assert_eq!(failure(store.probe(&probe, LONG)), BackendFailure::Unknown);
    server.join().unwrap();
}

#[test]
fn after_close_every_call_says_so() {
    let (server, store) = setup();
    store.acquire(&acquire("k", "a-1", false), LONG).unwrap();
    server.signal(Signal::STOP);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| store.probe(&ProbeRequest { key: "k", locker: "a-1" }, LONG));
        std::thread::sleep(SHORT);
        store.close();
        assert!(waits.join().unwrap().is_err());
    });
    assert!(matches!(store.acquire(&acquire("k", "a-2", false), LONG), Err(Error::ShutDown)));
    assert!(matches!(store.open_inbox("a", LONG).err(), Some(Error::ShutDown)));
    server.signal(Signal::CONT);
}

#[test]
fn a_unix_socket_works_as_well() {
    let server = RedisServer::start_with(&["--unixsocket", "socket"]);
    let store = RedisLockProcessor::connect(&format!("unix://{}", server.file("socket").display())).unwrap();
    assert!(matches!(store.acquire(&acquire("k", "a-1", false), LONG).unwrap(), AcquireOutcome::Acquired(_)));
}
