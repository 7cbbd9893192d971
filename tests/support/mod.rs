//! One kit for all that starts servers and processes: `tests/it`, `tests/faults`, `crates/cli/tests/command` and `benches/report` include this module by
//! its path. tests/README.md says what it has, and what stays apart from it.

#![allow(dead_code, unused_imports, reason = "each of the binaries uses a part of it")]

pub(crate) mod certificates;
pub(crate) mod cluster;
pub(crate) mod crew;
pub(crate) mod dice;
pub(crate) mod history;
pub(crate) mod monitor;
pub(crate) mod ports;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod queue;
mod redis_server;
pub(crate) mod sentinels;
pub(crate) mod stores_page;
pub(crate) mod worker;

pub(crate) use ports::free_port;
pub(crate) use proxy::Proxy;
pub(crate) use redis_server::{RedisServer, serves};
