//! What the tests of several topics share. What other binaries use, too, is in the kit.

pub(crate) mod allocations;
mod asking;
pub(crate) mod clock_shim;
pub(crate) mod commands;
pub(crate) mod fork;
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
use redis_dlock::{Error, LossCause, port};
use std::time::Duration;

/// Far more than anything takes.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Why the lease was lost that this call tells of.
#[track_caller]
pub(crate) fn cause<T>(result: Result<T, Error>) -> LossCause {
    match result {
        Err(Error::LeaseLost(loss)) => loss.cause,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("no error"),
    }
}
