//! What the tests of several topics share.

pub(crate) mod allocations;
mod asking;
pub(crate) mod clock_shim;
pub(crate) mod commands;
pub(crate) mod crew;
pub(crate) mod dice;
pub(crate) mod journal;
mod jvm;
pub(crate) mod lab;
#[allow(dead_code, reason = "tests/faults has more of it")]
pub(crate) mod monitor;
pub(crate) mod process;
#[allow(dead_code, reason = "tests/faults has more of it")]
pub(crate) mod proxy;
mod redis_server;
pub(crate) mod resolver_shim;
pub(crate) mod stalls;
pub(crate) mod watched;
#[allow(dead_code, reason = "tests/faults has more of it")]
pub(crate) mod worker;

pub(crate) use asking::{Asking, claim};
pub(crate) use jvm::Jvm;
pub(crate) use proxy::Proxy;
pub(crate) use redis_server::RedisServer;
use std::time::Duration;

/// Far more than anything takes.
pub(crate) const LONG: Duration = Duration::from_secs(20);
