//! The times of a connection.

#[cfg(unix)]
use crate::backoff::Backoff;
use std::time::Duration;

/// An address that leads to two servers in turn does so within this time.
pub(super) const IN_TURN: Duration = Duration::from_secs(5);

/// The shortest socket time-out that is set; zero would mean "none".
pub(super) const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);

/// After this long without traffic the operating system probes the connection: an inbox may receive nothing for days.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(15);

/// The pauses between two attempts while a local server's queue of connections is full.
#[cfg(unix)]
pub(super) const FULL: Backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(16)).exact();
