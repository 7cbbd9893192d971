//! The faults, each with the rule that it would break.

pub(crate) mod holder;
mod messages;
pub(crate) mod network;
mod restart;
mod server;
mod waiter;
