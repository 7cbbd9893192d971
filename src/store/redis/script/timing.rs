//! The times that the scripts know.

use std::time::Duration;

/// How long a waiter that nobody hears keeps its place. `scripts/hand_over.lua` says it in milliseconds.
pub(crate) const KEEP: Duration = Duration::from_secs(1);
