//! The times of the plain attempt.

use std::time::Duration;

/// How old a watermark may be when a number is requested under it.
pub(super) const FRESH: Duration = Duration::from_secs(1);

/// How old the latest watermark may be when the number is read.
pub(super) const STALE: Duration = Duration::from_secs(2);
