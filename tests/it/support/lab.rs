//! The stores of these tests, each fresh, and the clients that meet there. Time is moved by hand, that of a Redis server, too.

#[path = "../../support/lab.rs"]
mod shared;

use super::clock_shim::ServerByHand;
use super::stalls::on_a_running_machine;
use super::time::Time;
use crate::conformance::suite::{MemoryStore, RedisStore};
use redis_dlock::{DLockConfig, DLockGenerator, ManualClock, RedisBuilder, RedisLockProcessor};
pub(crate) use shared::{LONG, Lab, STALL, builder, cause, is_listener_on, wait_with};
use std::sync::Arc;
use std::time::Duration;

/// The environment variable with the URLs of the masters of a cluster that the tests of one process share, one test at a time.
pub(crate) const ON_CLUSTER: &str = "DLOCK_TEST_CLUSTER";

impl Lab {
    pub(crate) fn memory() -> Self {
        let clock = Arc::new(ManualClock::new());
        Self::on(MemoryStore::by(clock.clone()), Time::by_hand(clock))
    }

    /// A server of its own, and that server.
    pub(crate) fn redis_and_server() -> (Self, Arc<ServerByHand>) {
        let clock = Arc::new(ManualClock::new());
        let server = Arc::new(ServerByHand::start(&clock));
        (Self::on(RedisStore::on(Arc::clone(&server), clock.clone()), Time::by_hand(clock)), server)
    }

    /// A server of its own; with [`ON_CLUSTER`], the masters of that cluster.
    pub(crate) fn redis() -> Self {
        let Ok(masters) = std::env::var(ON_CLUSTER) else {
            return Self::redis_and_server().0;
        };
        let masters: Vec<_> = masters.split(',').map(str::to_owned).collect();
        let seed = masters[0].replace("redis://", "redis+cluster://");
        Self::on(RedisStore::on_cluster(seed, &masters), Time::default())
    }
}

/// Runs a test on Redis. On a cluster, whose leases run in real time, a test that fails while the machine stands still is played again.
pub(crate) fn on_redis(test: impl Fn(&Lab)) {
    if std::env::var_os(ON_CLUSTER).is_some() {
        return on_a_running_machine(STALL, || test(&Lab::redis()));
    }
    test(&Lab::redis());
}

/// Settings for the server at `url`, with time-outs that no busy machine exceeds.
pub(crate) fn patient(url: &str) -> RedisBuilder {
    RedisLockProcessor::builder(url).unwrap().connect_timeout(LONG).io_timeout(LONG)
}

/// A new client of the server at `url`, with time-outs that no busy machine exceeds.
pub(crate) fn connect_patiently(url: &str) -> DLockGenerator {
    builder().build(patient(url).connect().unwrap()).unwrap()
}

/// A new client of the server at `url`.
pub(crate) fn connect(url: &str) -> DLockGenerator {
    builder().build(RedisLockProcessor::connect(url).unwrap()).unwrap()
}

/// Settings of a lock of these tests.
pub(crate) fn config(target: &str, lease_ms: u64) -> DLockConfig {
    DLockConfig::new("TEST", target).with_lease(Duration::from_millis(lease_ms))
}

/// Runs tests on every store: `on_both_stores!(a, b)` makes `memory::a`, `redis::a`, `memory::b` and `redis::b`.
macro_rules! on_both_stores {
    ($($name:ident),+ $(,)?) => {
        mod memory {
            $(#[test] fn $name() { super::$name(&crate::support::lab::Lab::memory()); })+
        }
        mod redis {
            $(#[test] fn $name() { crate::support::lab::on_redis(super::$name); })+
        }
    };
}

/// As [`on_both_stores!`], each test in a process of its own.
macro_rules! alone_on_both_stores {
    ($($name:ident),+ $(,)?) => {
        mod memory {
            $(#[test] fn $name() {
                let path = concat!(module_path!(), "::", stringify!($name));
                crate::support::process::alone(path, || super::$name(&crate::support::lab::Lab::memory()));
            })+
        }
        mod redis {
            $(#[test] fn $name() {
                let path = concat!(module_path!(), "::", stringify!($name));
                crate::support::process::alone(path, || crate::support::lab::on_redis(super::$name));
            })+
        }
    };
}

pub(crate) use {alone_on_both_stores, on_both_stores};
