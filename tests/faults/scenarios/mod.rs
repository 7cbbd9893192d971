//! The faults, each with the rule that it would break.

pub(crate) mod access;
pub(crate) mod cluster;
pub(crate) mod consensus;
mod failover;
pub(crate) mod holder;
mod limits;
pub(crate) mod meddling;
mod messages;
pub(crate) mod network;
mod restart;
pub(crate) mod sentinel;
mod server;
pub(crate) mod terms;
pub(crate) mod together;
mod unheard;
mod waiter;
