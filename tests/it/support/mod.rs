//! What the tests of several topics share. What other binaries use, too, is in the kit.

pub(crate) mod allocations;
mod asking;
pub(crate) mod clock_shim;
pub(crate) mod commands;
pub(crate) mod fork;
pub(crate) mod holder;
pub(crate) mod journal;
mod jvm;
#[path = "../../support/mod.rs"]
mod kit;
pub(crate) mod lab;
pub(crate) mod owned;
pub(crate) mod resolver_shim;
pub(crate) mod stalls;
pub(crate) mod time;
pub(crate) mod twin_shim;
pub(crate) mod watched;

pub(crate) use asking::{Asking, claim, last_server};
pub(crate) use crew::is_long;
pub(crate) use jvm::Jvm;
pub(crate) use kit::{
    Proxy, RedisServer, certificates, cluster, crew, dice, free_port, history, monitor, process, proxy, queue,
    sentinels, stores_page, worker,
};
pub(crate) use lab::{LONG, cause};
use redis_dlock::port;

/// A holder of any bytes as people see it.
pub(crate) fn shown(holder: &[u8]) -> String {
    std::str::from_utf8(holder).map_or_else(|_| holder.escape_ascii().to_string(), str::to_owned)
}
