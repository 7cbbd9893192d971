//! The stores that keep locks; their contract is the [port](crate::port).

pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;
