//! What a lock is kept in: the [contract](processor) of a store, and the stores.

pub(crate) mod memory;
pub mod processor;
#[cfg(feature = "redis")]
pub(crate) mod redis;
