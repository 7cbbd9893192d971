//! The stores that keep locks, and their [contract](processor).

pub(crate) mod memory;
pub mod processor;
#[cfg(any(feature = "consul", feature = "etcd"))]
pub(crate) mod raft;
#[cfg(feature = "redis")]
pub(crate) mod redis;
