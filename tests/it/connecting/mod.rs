//! A connect has its own time, `connect_timeout`. The limit of a caller bounds only how long that caller waits for it.

mod local_sockets;

use crate::support::crew::{HANG, eventually, spawn};
use crate::support::lab::{builder, config};
use crate::support::process::alone_in;
use crate::support::proxy::Way;
use crate::support::resolver_shim::{self, ResolverShim};
use crate::support::{Proxy, RedisServer};
use redis_dlock::{
    DLockGenerator, DLockGuard, DistributedReentrantLock, Error, LockProcessor, ProbeRequest, RedisBuilder,
    RedisLockProcessor, Request,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long a connect takes after the cut: shorter than `connect_timeout`, and longer than the callers have.
pub(crate) const CONNECT: Duration = Duration::from_millis(300);

/// After a silence of this length a connection is checked before it is used, so a cut costs no command its answer.
const IDLE: Duration = Duration::from_millis(1100);

/// An `io_timeout` that is shorter than a connect.
const SHORT_IO: Duration = Duration::from_millis(60);

type Tried<'a> = Result<Option<DLockGuard<'a>>, Error>;

fn settings(url: &str) -> RedisBuilder {
    RedisLockProcessor::builder(url).unwrap()
}

fn connect(settings: RedisBuilder) -> DLockGenerator {
    builder().build(settings.connect().unwrap()).unwrap()
}

/// A client whose connections are all for commands.
fn connect_deaf(settings: RedisBuilder) -> DLockGenerator {
    DLockGenerator::builder().listener(false).build(settings.connect().unwrap()).unwrap()
}

/// Makes connects slow, and ends the connections that there are.
fn cut(proxy: &Proxy) {
    proxy.delay_first_answers(CONNECT);
    proxy.reset();
    thread::sleep(IDLE);
}

/// Calls until the lock is there; how many calls failed.
fn repeat<'a>(lock: &'a DistributedReentrantLock, call: impl Fn(&'a DistributedReentrantLock) -> Tried<'a>) -> usize {
    let start = Instant::now();
    let mut failed = 0;
    loop {
        match call(lock) {
            Ok(Some(guard)) => {
                guard.unlock().unwrap();
                return failed;
            }
            Ok(None) => {}
            Err(Error::Backend { .. }) => failed += 1,
            Err(other) => panic!("{other}"),
        }
        assert!(start.elapsed() < HANG, "no lock after {failed} failed calls");
    }
}

/// A cut connection is replaced by one new one, whatever the limit of the callers.
pub(crate) fn heals_within_one_connect(proxy: &Proxy, settings: RedisBuilder) {
    let generator = connect_deaf(settings);
    let lock = generator.generate_with(config("x", 30_000)).unwrap();
    lock.lock().unwrap().unlock().unwrap();
    for limit in [Duration::from_millis(50), Duration::from_millis(1)] {
        let before = proxy.connections();
        cut(proxy);
        let failed = repeat(&lock, |lock| lock.try_lock_for(limit));
        assert!(failed > 1, "the connect outlasts a call");
        assert_eq!(proxy.connections() - before, 1, "{failed} calls with a limit of {limit:?} share one connect");
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
            proxy.reset();
            thread::sleep(IDLE);
            let failed = repeat(&lock, |lock| lock.try_lock_for(Duration::from_millis(50)));
            assert!(failed > 1, "the resolver outlasts a call");
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
    cut(&proxy);
    let failed = AtomicUsize::new(0);
    thread::scope(|scope| {
        for lock in &locks {
            scope.spawn(|| {
                let mine = repeat(lock, |lock| lock.try_lock_for(Duration::from_millis(2)));
                failed.fetch_add(mine, Ordering::Relaxed);
            });
        }
    });
    let (connects, failed) = (proxy.connections() - before, failed.into_inner());
    // Each connection for commands is made once, and not all of them are needed.
    assert!(connects <= 5 && failed > 5 * connects, "{connects} connects, {failed} failed calls");
}

#[test]
fn an_io_timeout_shorter_than_a_connect_keeps_nobody_out() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let generator = connect(settings(&proxy.url()).io_timeout(SHORT_IO));
    let lock = generator.generate_with(config("x", 30_000)).unwrap();
    lock.lock().unwrap().unlock().unwrap();
    cut(&proxy);
    repeat(&lock, DistributedReentrantLock::try_lock);
    cut(&proxy);
    let locking = lock.clone();
    spawn(move || drop(locking.lock().unwrap())).join();
}

#[test]
fn an_io_timeout_shorter_than_a_connect_costs_no_lease() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let generator = connect(settings(&proxy.url()).io_timeout(SHORT_IO));
    let lock = generator.generate_with(config("x", 2500)).unwrap();
    let guard = lock.lock().unwrap();
    proxy.delay_first_answers(CONNECT);
    proxy.reset();
    thread::sleep(Duration::from_millis(3500));
    guard.ensure_valid().unwrap();
    proxy.reset();
    drop(guard);
    let other = connect(settings(&server.url()));
    let other = other.generate_with(config("x", 2500)).unwrap();
    eventually("the release that found the connection cut", || other.try_lock().unwrap().is_some());
}

#[test]
fn a_renewal_whose_time_ends_spares_the_connection_that_was_made_for_it() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let store = settings(&proxy.url()).connect().unwrap();
    let probe = [Request::Probe(ProbeRequest { key: "k", locker: "a-1" })];
    let before = proxy.connections();
    cut(&proxy);
    // The answers are slow as well: the connect gets through in this time, and the answer to the probe does not.
    proxy.delay(Way::ToClient, CONNECT);
    assert!(store.batch(&probe, CONNECT * 2 + CONNECT / 2)[0].is_err());
    assert!(store.batch(&probe, HANG)[0].is_ok());
    assert_eq!(proxy.connections() - before, 1, "the connection that the first one has opened");
}
