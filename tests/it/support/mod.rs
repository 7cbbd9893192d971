//! What the tests of several topics share. What other binaries use, too, is in the kit.

pub(crate) mod allocations;
pub(crate) mod clock_shim;
pub(crate) mod commands;
pub(crate) mod journal;
mod jvm;
#[path = "../../support/mod.rs"]
mod kit;
pub(crate) mod lab;
pub(crate) mod resolver_shim;
pub(crate) mod stalls;
pub(crate) mod watched;

pub(crate) use jvm::Jvm;
pub(crate) use kit::{Proxy, RedisServer, crew, dice, monitor, process, proxy, worker};
use std::time::Duration;

/// Far more than anything takes.
pub(crate) const LONG: Duration = Duration::from_secs(20);
