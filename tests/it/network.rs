//! Leases over a bad network: long round trips, and connections that fall silent.

use crate::support::lab::{builder, connect};
use crate::support::stalls::on_a_running_machine;
use crate::support::{Proxy, RedisServer};
use redis_dlock::{DLockConfig, DLockGenerator, DistributedReentrantLock, RedisLockProcessor};
use std::thread;
use std::time::Duration;

fn lock(generator: &DLockGenerator, target: &str, lease: Duration) -> DistributedReentrantLock {
    generator.generate_with(DLockConfig::new("NETWORK", target).with_lease(lease)).unwrap()
}

/// Shows: G3.
#[test]
fn a_lease_of_fifteen_round_trips_is_kept() {
    on_a_running_machine(Duration::from_millis(200), || {
        let server = RedisServer::start();
        // A quarter of the lease is long enough for a machine on which many others want to run.
        let round_trip = Duration::from_millis(160);
        let proxy = Proxy::to(server.port(), round_trip);
        let generator = connect(&proxy.url());
        let guard_of = lock(&generator, "short", 15 * round_trip);
        let guard = guard_of.lock().unwrap();
        thread::sleep(3 * 15 * round_trip);
        assert!(guard.is_valid());
        // One for callers, one for renewals.
        assert_eq!(proxy.connections(), 2, "no answer was given up");
        guard.unlock().unwrap();
    });
}

/// Shows: G3.
#[test]
fn a_silent_connection_costs_no_lease_also_when_a_thread_waits_on_it() {
    on_a_running_machine(Duration::from_millis(100), || {
        let server = RedisServer::start();
        let proxy = Proxy::to(server.port(), Duration::ZERO);
        let store = RedisLockProcessor::builder(&proxy.url()).unwrap().io_timeout(Duration::from_secs(3));
        let generator = builder().build(store.connect().unwrap()).unwrap();
        let (held, other) =
            (lock(&generator, "held", Duration::from_secs(2)), lock(&generator, "other", Duration::from_secs(60)));
        let guard = held.lock().unwrap();
        thread::sleep(Duration::from_millis(600));
        proxy.silence();
        // It leads on the silent connection, for a command's time-out; renewals must not wait for that.
        thread::scope(|scope| {
            let asker = scope.spawn(|| other.lock().map(drop));
            thread::sleep(Duration::from_secs(4));
            assert!(guard.is_valid());
            asker.join().unwrap().unwrap();
        });
        assert!(proxy.connections() > 1);
        guard.unlock().unwrap();
    });
}

/// Shows: G3.
#[test]
fn long_leases_that_cannot_be_probed_do_not_end_a_short_one() {
    on_a_running_machine(Duration::from_millis(200), || {
        let server = RedisServer::start();
        let proxy = Proxy::to(server.port(), Duration::ZERO);
        let generator = connect(&proxy.url());
        // Fifty probes of long leases between any two looks at the short one: one of them meets the silence first.
        let long: Vec<_> = (0..50).map(|n| lock(&generator, &format!("long{n}"), Duration::from_secs(20))).collect();
        let mut guards = Vec::new();
        for lock in &long {
            guards.push(lock.lock().unwrap());
            thread::sleep(Duration::from_millis(40));
        }
        let short = lock(&generator, "short", Duration::from_secs(4));
        let guard = short.lock().unwrap();
        for _ in 0..3 {
            proxy.silence();
            thread::sleep(Duration::from_secs(5));
            assert!(guard.is_valid());
        }
        assert!(proxy.connections() > 3);
        assert!(guards.iter().all(|guard| guard.is_valid()));
    });
}
