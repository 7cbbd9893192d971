//! The times of the plain attempt.

use std::time::Duration;

/// How old a proof may be when a number is requested under it.
pub(super) const FRESH: Duration = Duration::from_secs(1);

/// How old the latest proof may be when the number is read.
pub(super) const STALE: Duration = Duration::from_secs(2);
