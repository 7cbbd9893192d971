//! The times of the embedded store, which are those of the scripts.

use std::time::Duration;

/// How long an unheard waiter keeps its place, as in `scripts/hand_over.lua`.
pub(super) const KEEP: Duration = Duration::from_secs(1);

/// The shortest time for which the store remembers a break, as in `scripts/break.lua`.
pub(super) const LEAST_TOLD: Duration = Duration::from_secs(60);
