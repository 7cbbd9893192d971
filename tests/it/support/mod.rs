//! What the tests of several topics share.

mod redis_server;

pub(crate) use redis_server::RedisServer;
use std::time::Duration;

/// Far more than anything takes.
pub(crate) const LONG: Duration = Duration::from_secs(20);
