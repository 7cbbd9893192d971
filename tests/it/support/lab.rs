//! The stores of these tests, each fresh, and the clients that meet there. The time of the embedded one is moved by hand.

#[path = "../../support/lab.rs"]
mod shared;

use super::time::Time;
use crate::conformance::suite::{MemoryStore, RedisStore};
use redis_dlock::{DLockConfig, DLockGenerator, ManualClock, RedisLockProcessor};
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

    /// A server of its own; with [`ON_CLUSTER`], the masters of that cluster.
    pub(crate) fn redis() -> Self {
        let store = match std::env::var(ON_CLUSTER) {
            Ok(masters) => {
                let masters: Vec<_> = masters.split(',').map(str::to_owned).collect();
                let seed = masters[0].replace("redis://", "redis+cluster://");
                RedisStore::on_cluster(seed, masters)
            }
            Err(_) => RedisStore::start(),
        };
        Self::on(store, Time::default())
    }
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
            $(#[test] fn $name() { super::$name(&crate::support::lab::Lab::redis()); })+
        }
    };
}

/// As [`on_both_stores!`], for tests of leases: one that fails while the machine stands still is played again.
macro_rules! running_on_both_stores {
    ($($name:ident),+ $(,)?) => {
        mod memory {
            $(#[test] fn $name() { super::$name(&crate::support::lab::Lab::memory()); })+
        }
        mod redis {
            $(#[test] fn $name() {
                crate::support::stalls::on_a_running_machine(crate::support::lab::STALL, || {
                    super::$name(&crate::support::lab::Lab::redis());
                });
            })+
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
                crate::support::process::alone(path, || super::$name(&crate::support::lab::Lab::redis()));
            })+
        }
    };
}

pub(crate) use {alone_on_both_stores, on_both_stores, running_on_both_stores};
