//! What the experiments share.

pub(crate) mod crew;
#[path = "../../../tests/support/mod.rs"]
pub(crate) mod kit;
pub(crate) mod pin;
pub(crate) mod plot;
pub(crate) mod proxy;
pub(crate) mod raw;
pub(crate) mod recording;
pub(crate) mod report;
pub(crate) mod server;
pub(crate) mod stats;
pub(crate) mod worker;

/// As the kit of the consensus stores knows it.
pub(crate) use kit::{ports, process};
