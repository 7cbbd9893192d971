//! What this binary shares with `tests/it`.

#![allow(dead_code, reason = "each of the two binaries uses a part of it")]

#[path = "../../it/support/crew.rs"]
pub(crate) mod crew;
#[path = "../../it/support/dice.rs"]
pub(crate) mod dice;
#[path = "../../it/support/monitor.rs"]
pub(crate) mod monitor;
#[path = "../../it/support/process.rs"]
pub(crate) mod process;
#[path = "../../it/support/proxy/mod.rs"]
pub(crate) mod proxy;
#[path = "../../it/support/redis_server.rs"]
mod redis_server;
#[path = "../../it/support/worker.rs"]
pub(crate) mod worker;

pub(crate) use proxy::Proxy;
pub(crate) use redis_server::RedisServer;
