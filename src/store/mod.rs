//! The stores that keep locks, and their [contract](processor).

pub(crate) mod memory;
pub mod processor;
#[cfg(feature = "redis")]
pub(crate) mod redis;
