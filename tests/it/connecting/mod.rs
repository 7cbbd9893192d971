//! A connect has its own time, `connect_timeout`. The limit of a caller bounds only how long that caller waits for it.

mod local_sockets;

use crate::support::claim;
use crate::support::crew::{HANG, eventually, spawn_with};
use crate::support::lab::{builder, config};
use crate::support::process::alone_in;
use crate::support::proxy::Way;
use crate::support::resolver_shim::{self, ResolverShim};
use crate::support::{Proxy, RedisServer};
use crossbeam_channel::bounded;
use redis_dlock::processor::{Limit, ReleaseDone};
use redis_dlock::{
    DLockGenerator, DLockGuard, DistributedReentrantLock, Error, LockProcessor, RedisBuilder, RedisLockProcessor,
    Request,
};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long a connect takes where it takes long: longer than `io_timeout`, shorter than `connect_timeout`.
const CONNECT: Duration = Duration::from_millis(700);

/// An `io_timeout` that is shorter than such a connect.
const SHORT_IO: Duration = Duration::from_millis(200);

/// After a silence of this length a connection is checked before it is used, so a cut costs no command its answer.
const IDLE: Duration = Duration::from_millis(1100);

/// How many calls fail before a connect that was held up goes on.
const CALLS: usize = 5;

type Tried<'a> = Result<Option<DLockGuard<'a>>, Error>;

/// A connect may take as long as a test.
fn settings(url: &str) -> RedisBuilder {
    RedisLockProcessor::builder(url).unwrap().connect_timeout(4 * HANG)
}

fn connect(settings: RedisBuilder) -> DLockGenerator {
    builder().build(settings.connect().unwrap()).unwrap()
}

/// A client whose connections are all for commands, and whose threads send none by themselves.
fn connect_deaf(settings: RedisBuilder) -> DLockGenerator {
    DLockGenerator::builder().listener(false).client_record(false).build(settings.connect().unwrap()).unwrap()
}

/// Ends the connections that there are, at a time when no answer is due.
fn cut(proxy: &Proxy) {
    proxy.reset();
    thread::sleep(IDLE);
}

/// Calls until the lock is there, or until so many calls have failed; returns how many have.
fn repeat<'a>(
    lock: &'a DistributedReentrantLock,
    most: usize,
    call: impl Fn(&'a DistributedReentrantLock) -> Tried<'a>,
) -> usize {
    let start = Instant::now();
    let mut failed = 0;
    while failed < most {
        match call(lock) {
            Ok(Some(guard)) => {
                // Under load the answer may be late for a short `io_timeout`.
                let _ = guard.unlock();
                return failed;
            }
            Ok(None) => {}
            Err(Error::Backend { .. }) => failed += 1,
            Err(other) => panic!("{other}"),
        }
        assert!(start.elapsed() < HANG, "no lock after {failed} failed calls");
    }
    failed
}

/// Calls with this limit fail while the connect is held up, and share it when it goes on.
fn heals<'a>(
    lock: &'a DistributedReentrantLock,
    go_on: impl FnOnce(),
    call: impl Fn(&'a DistributedReentrantLock) -> Tried<'a>,
) {
    assert_eq!(repeat(lock, CALLS, &call), CALLS, "there is no connection");
    go_on();
    repeat(lock, usize::MAX, call);
}

/// A cut connection is replaced by one new one, whatever the limit of the callers.
pub(crate) fn heals_within_one_connect(proxy: &Proxy, settings: RedisBuilder) {
    let generator = connect_deaf(settings.connect_timeout(4 * HANG));
    let lock = generator.generate_with(config("x", 30_000)).unwrap();
    lock.lock().unwrap().unlock().unwrap();
    for limit in [Duration::from_millis(50), Duration::from_millis(1)] {
        let before = proxy.connections();
        proxy.hold_back_new(true);
        cut(proxy);
        heals(&lock, || proxy.hold_back_new(false), |lock| lock.try_lock_for(limit));
        assert_eq!(proxy.connections() - before, 1, "calls with a limit of {limit:?} share one connect");
    }
}

#[test]
fn a_cut_heals_within_one_connect_whoever_calls() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    heals_within_one_connect(&proxy, settings(&proxy.url()));
}

#[test]
fn a_cut_heals_with_a_slow_resolver() {
    let path = concat!(module_path!(), "::a_cut_heals_with_a_slow_resolver");
    let mut shim = None;
    alone_in(
        path,
        || shim.insert(ResolverShim::build()).variables(),
        || {
            let server = RedisServer::start();
            let proxy = Proxy::to(server.port(), Duration::ZERO);
            let generator = connect_deaf(settings(&format!("redis://localhost:{}/", proxy.port())));
            let lock = generator.generate_with(config("x", 30_000)).unwrap();
            lock.lock().unwrap().unlock().unwrap();
            let before = proxy.connections();
            resolver_shim::delay(CONNECT);
            cut(&proxy);
            repeat(&lock, usize::MAX, |lock| lock.try_lock_for(Duration::from_millis(50)));
            assert_eq!(proxy.connections() - before, 1);
        },
    );
}

#[test]
fn many_threads_with_short_limits_share_the_connects() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let generator = connect_deaf(settings(&proxy.url()));
    let locks: Vec<_> = (0..8).map(|n| generator.generate_with(config(&format!("{n}"), 30_000)).unwrap()).collect();
    locks[0].lock().unwrap().unlock().unwrap();
    let before = proxy.connections();
    proxy.hold_back_new(true);
    cut(&proxy);
    let limit = Duration::from_millis(2);
    thread::scope(|scope| {
        for lock in &locks {
            scope.spawn(|| assert_eq!(repeat(lock, CALLS, |lock| lock.try_lock_for(limit)), CALLS));
        }
    });
    proxy.hold_back_new(false);
    thread::scope(|scope| {
        for lock in &locks {
            scope.spawn(|| repeat(lock, usize::MAX, |lock| lock.try_lock_for(limit)));
        }
    });
    // Each connection for commands is made once, and not all of them are needed.
    let connects = proxy.connections() - before;
    assert!(connects <= 5, "{connects} connects for {} calls", locks.len() * CALLS);
}

/// The retry thread posts them while it has tasks to tell of their holds.
#[test]
fn releases_that_are_kept_back_wait_for_no_connect() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let store = Arc::new(settings(&proxy.url()).connect().unwrap());
    proxy.hold_back_new(true);
    cut(&proxy);
    let (answer, answers) = bounded(1);
    let post = spawn_with(&store, |store| {
        let posting = store.posting().unwrap();
        assert!(posting.keeps_back());
        let done: ReleaseDone = Box::new(move |outcome| answer.send(outcome).unwrap());
        posting.post_releases_with_next(vec![(claim("k", "a-1", Duration::from_secs(1)), done)], 4 * HANG);
        posting.collect()
    });
    assert!(post.join(), "it is not answered yet");
    proxy.hold_back_new(false);
    eventually("it is answered", || {
        store.posting().unwrap().collect();
        answers.try_recv().is_ok_and(|outcome| outcome.is_ok())
    });
}

#[test]
fn an_io_timeout_shorter_than_a_connect_keeps_nobody_out() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let generator = builder().build(settings(&proxy.url()).io_timeout(SHORT_IO).build().unwrap()).unwrap();
    let lock = generator.generate_with(config("x", 30_000)).unwrap();
    repeat(&lock, usize::MAX, DistributedReentrantLock::try_lock);
    proxy.delay_first_answers(CONNECT);
    cut(&proxy);
    repeat(&lock, usize::MAX, DistributedReentrantLock::try_lock);
    cut(&proxy);
    spawn_with(&lock, |locking| drop(locking.lock().unwrap())).join();
}

#[test]
fn an_io_timeout_shorter_than_a_connect_costs_no_lease() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let generator = builder().build(settings(&proxy.url()).io_timeout(SHORT_IO).build().unwrap()).unwrap();
    let long = config("x", 20_000).with_renew_at(0.1);
    let lock = generator.generate_with(long.clone()).unwrap();
    repeat(&lock, usize::MAX, DistributedReentrantLock::try_lock);
    let guard = lock.lock().unwrap();
    proxy.delay_first_answers(CONNECT);
    proxy.reset();
    let end = || Instant::now() + guard.remaining();
    let before = end();
    eventually("it is renewed on a new connection", || end() > before + Duration::from_secs(1));
    guard.ensure_valid().unwrap();
    proxy.reset();
    drop(guard);
    let other = connect(settings(&server.url()));
    let other = other.generate_with(long).unwrap();
    eventually("the release that found the connection cut", || other.try_lock().unwrap().is_some());
}

#[test]
fn a_renewal_whose_time_ends_spares_the_connection_that_was_made_for_it() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let store = settings(&proxy.url()).io_timeout(HANG).connect().unwrap();
    // With a poll, which the connection of the renewals does not take.
    let poll = claim("k", "a-2", Duration::from_secs(1));
    let probe = [Request::Probe(claim("k", "a-1", Duration::from_secs(1))), Request::Poll(poll)];
    let before = proxy.connections();
    proxy.delay_first_answers(CONNECT / 2);
    cut(&proxy);
    // All answers are slow: the connect gets through in the limit, and the answer to the probe does not.
    proxy.delay(Way::ToClient, CONNECT / 2);
    assert!(store.run(&probe, Limit::Attempt(CONNECT + CONNECT / 4))[0].is_err());
    assert!(store.run(&probe, Limit::Attempt(HANG))[0].is_ok());
    assert_eq!(proxy.connections() - before, 1, "the connection that the first one has opened");
}
