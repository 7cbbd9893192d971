//! What callers read of a lane, and note on it, without its mutex, which the users of the connection need. The fields in `lane.rs` say why
//! that is enough.

use super::super::line::Line;
use super::{Lane, QUIET};
use crate::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl<L: Line> Lane<L> {
    /// Returns the number of callers that write to this lane or wait for it.
    pub(crate) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed) // ORDERING: Relaxed: an estimate.
    }

    /// Returns `true` if the lane has a connection. Approximate.
    pub(crate) fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed) // ORDERING: Relaxed: a hint.
    }

    /// Returns the epoch in which a command sent at this moment is written, or `None` if it begins a new epoch. Approximate.
    pub(crate) fn epoch_at(&self, at: Instant) -> Option<u64> {
        // ORDERING: Relaxed: a guess, which the epoch of the answer corrects.
        let written = self.since + Duration::from_nanos(self.written.load(Ordering::Relaxed));
        let epoch = self.epoch.load(Ordering::Relaxed);
        (at.saturating_duration_since(written) <= QUIET && !self.is_deposed(epoch)).then_some(epoch)
    }

    /// Returns `true` if the server has said in that epoch, or later, that it is no master.
    pub(crate) fn is_deposed(&self, epoch: u64) -> bool {
        self.deposed.load(Ordering::Relaxed) >= epoch // ORDERING: Relaxed: the mutex of the call whose reply was taken comes after `take_in`.
    }

    /// Records that a fence number was read in that epoch.
    pub(crate) fn mark_numbered(&self, epoch: u64) {
        self.numbered.fetch_max(epoch, Ordering::Relaxed); // ORDERING: Relaxed: seen too late, it costs one write.
    }

    pub(crate) fn mark_unnumbered(&self) {
        self.numbered.store(0, Ordering::Relaxed); // ORDERING: Relaxed: the lane's mutex orders it before later calls.
    }
}
