//! The moment until which a call may go on.

use super::timing::UNLIMITED;
use redis_dlock::{BackendFailure, Error};
use std::time::{Duration, Instant};

/// The end of the time that a caller gives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Option<Instant>);

impl Deadline {
    /// Begins now. A limit that the clock cannot represent counts as no limit.
    pub(super) fn after(limit: Duration) -> Self {
        Self(Instant::now().checked_add(limit))
    }

    /// Returns this moment, or the moment after `limit` from now, whichever is earlier.
    pub(super) fn at_most(self, limit: Duration) -> Self {
        let Some(other) = Instant::now().checked_add(limit) else { return self };
        Self(Some(self.0.map_or(other, |at| at.min(other))))
    }

    /// Returns the time that is left.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if none is: nothing is sent then.
    pub(super) fn left(self) -> Result<Duration, Error> {
        let left = self.0.map_or(UNLIMITED, |at| at.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Err(Error::backend(
                BackendFailure::NotExecuted,
                "the time for the request was over before it was sent",
            ));
        }
        Ok(left)
    }
}
