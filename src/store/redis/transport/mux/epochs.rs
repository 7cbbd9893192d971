//! The epochs of a mux, which others may read without its mutex.
//!
//! An epoch is a time in which a connection was written to without a long pause. A connection has one or more, one after another. An answer
//! says in which epoch its call was written. The server's word that it is no master counts for the epoch in which it came, and a *stamp* is
//! written over bytes of the commands of one epoch alone.

use super::super::timing::QUIET;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::now;
use std::time::{Duration, Instant};

/// See the module.
pub(in super::super) struct Epochs {
    /// The current epoch.
    // ORDERING: Relaxed, also for `written`: stored with the mutex of the mux's `state` held. `at` loads without it, and may guess wrong: the
    // answer says in which epoch the call was written, and whoever relies on the epoch compares it.
    current: AtomicU64,
    /// When the connection was last written to, in nanoseconds after `since`.
    written: AtomicU64,
    since: Instant,
    /// The last epoch that is stamped.
    // ORDERING: Relaxed: stored under the mutex of whoever sets stamps, loaded by `write` under that of `state`, under which every call is
    // queued. So the calls that a thread sends after it has ended the stamp are written after that is seen. A stamp that is seen too late
    // costs the server one write.
    stamped: AtomicU64,
    /// The last epoch in which the server said that it is no master, even if only to a caller that had left.
    // ORDERING: Relaxed: `depose` stores it with the mutex of `state` held, before the reader delivers replies, each under the mutex of its
    // call. So whoever takes a reply sees what was read before that reply or together with it.
    deposed: AtomicU64,
}

impl Epochs {
    pub(super) fn new() -> Self {
        Self {
            current: AtomicU64::new(0),
            written: AtomicU64::new(0),
            since: now(),
            stamped: AtomicU64::new(0),
            deposed: AtomicU64::new(0),
        }
    }

    /// Returns the epoch in which a command sent at this moment is written, or `None` if it begins a new epoch. Approximate: it does not
    /// take the mutex, which the users of the connection need.
    pub(in super::super) fn at(&self, at: Instant) -> Option<u64> {
        // ORDERING: Relaxed: a guess, which the epoch of the answer corrects.
        let written = self.since + Duration::from_nanos(self.written.load(Ordering::Relaxed));
        let epoch = self.current.load(Ordering::Relaxed);
        (at.saturating_duration_since(written) <= QUIET && !self.is_deposed(epoch)).then_some(epoch)
    }

    /// Returns `true` if the server has said in that epoch, or later, that it is no master.
    pub(in super::super) fn is_deposed(&self, epoch: u64) -> bool {
        // ORDERING: Relaxed: the mutex of the call whose reply was taken comes after `depose`.
        self.deposed.load(Ordering::Relaxed) >= epoch
    }

    /// Notes that the server has said that it is no master. Call it before the reply that says so is delivered.
    pub(super) fn depose(&self) {
        self.deposed.fetch_max(self.current.load(Ordering::Relaxed), Ordering::Relaxed); // ORDERING: Relaxed: see the fields.
    }

    /// Stamps the commands that are written in that epoch.
    pub(in super::super) fn stamp(&self, epoch: u64) {
        self.stamped.fetch_max(epoch, Ordering::Relaxed); // ORDERING: Relaxed: seen too late, it costs one write.
    }

    /// Stamps no more commands.
    pub(in super::super) fn unstamp(&self) {
        self.stamped.store(0, Ordering::Relaxed); // ORDERING: Relaxed: the mutex of the mux orders it before later calls.
    }

    /// Begins an epoch, which is not stamped. The mutex of the mux must be held.
    pub(super) fn begin(&self, next: &mut u64, step: u64) -> u64 {
        let epoch = *next;
        *next += step;
        self.current.store(epoch, Ordering::Relaxed); // ORDERING: Relaxed: see the field.
        epoch
    }

    /// Notes a write, `quiet` after the one before it: after a long pause it begins an epoch. Returns its epoch, and whether that is stamped.
    /// The mutex of the mux must be held.
    pub(super) fn write(&self, at: Instant, quiet: Duration, next: &mut u64, step: u64) -> (u64, bool) {
        // ORDERING: Relaxed: the mutex of the mux is held. Only `stamped` is stored without it: see there.
        let mut epoch = self.current.load(Ordering::Relaxed);
        if quiet > QUIET || self.is_deposed(epoch) {
            epoch = self.begin(next, step);
        }
        let nanos = u64::try_from(at.saturating_duration_since(self.since).as_nanos()).unwrap_or(u64::MAX);
        self.written.store(nanos, Ordering::Relaxed);
        (epoch, self.stamped.load(Ordering::Relaxed) == epoch)
    }
}
