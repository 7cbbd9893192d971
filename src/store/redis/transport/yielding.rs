//! Decides when a caller yields to other threads before it sleeps, or before it writes.
//!
//! A caller that sleeps and is woken costs two system calls, in two threads; one that yields (`sched_yield`) costs one. On a core that
//! many callers share, the answer has usually come when the yield returns. So a caller that shares its connection *spins* before it
//! sleeps: it polls a few times for its answer, and yields in between. A writer yields before it writes, so that callers that were
//! answered together with it can queue their calls first.
//!
//! Two cases would turn this into a loss. Both are detected:
//!
//! * *The answer takes longer*, because the server is far or busy, or nobody else wants the core. After an unsuccessful spin the next 1,
//!   2, 4 … [`MOST_SKIPS`] callers sleep without spinning, until one that spins finds its answer again.
//! * *Other threads want the core for longer than callers do*. A thread that computes then keeps the core for milliseconds, and a
//!   caller that slept and was woken would get it sooner. When yields return late, nobody yields for a while.

use super::timing::{LATE, LATER_EACH, LATEST, MOST_LOST, YIELD_NO_MORE};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{now, thread};
use std::time::{Duration, Instant};

/// How many times a caller polls before it sleeps.
pub(super) const SPINS: u32 = 4;

/// The most callers that sleep without spinning after an unsuccessful spin.
const MOST_SKIPS: u32 = 64;

const FORGIVEN_PART: u64 = 4;

/// See the module. All connections of a client share one.
#[derive(Debug)]
pub(super) struct Yielding {
    // ORDERING: Relaxed, for all of them: they count and estimate. A lost update or a stale value lets one caller more or less spin or
    // yield, and nothing is read through them.
    /// How many of the next callers sleep without spinning.
    skips: AtomicU32,
    /// How many callers that was after the last spin; zero after one that found its answer.
    skipped: AtomicU32,
    /// Until this moment nobody yields, in nanoseconds since `origin`.
    cools_until: AtomicU64,
    /// When the last late yield returned, and how much time such yields have cost.
    late_until: AtomicU64,
    lost: AtomicU64,
    origin: Instant,
}

impl Yielding {
    pub(super) fn new() -> Self {
        Self {
            skips: AtomicU32::new(0),
            skipped: AtomicU32::new(0),
            cools_until: AtomicU64::new(0),
            late_until: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            origin: now(),
        }
    }

    /// Yields to other threads. Returns the moment at which the yield ended, or `None` if nobody may yield now or the yield returned late.
    pub(super) fn yield_once(&self, before: Instant, callers: usize) -> Option<Instant> {
        if self.is_cooling_down(before) {
            return None;
        }
        thread::yield_now();
        let at = now();
        self.is_back(before, at, callers).then_some(at)
    }

    /// Returns `true` if a caller may spin before it sleeps. Several callers that ask at once may disturb the count, which does no harm. On
    /// platforms that cannot read without waiting nobody spins, because that would disturb the writer.
    pub(super) fn may_spin(&self) -> bool {
        if cfg!(not(unix)) || is_spared() {
            return false;
        }
        // ORDERING: Relaxed: a count that may be disturbed.
        let skips = self.skips.load(Ordering::Relaxed);
        if skips > 0 {
            self.skips.store(skips - 1, Ordering::Relaxed);
        }
        skips == 0
    }

    /// Notes whether a caller that spun found its answer.
    pub(super) fn note_spin(&self, found: bool) {
        // ORDERING: Relaxed: counts that may be disturbed.
        let skipped = self.skipped.load(Ordering::Relaxed);
        let skips = if found { 0 } else { (2 * skipped).clamp(1, MOST_SKIPS) };
        if skips != skipped {
            self.skipped.store(skips, Ordering::Relaxed);
        }
        if !found {
            self.skips.store(skips, Ordering::Relaxed);
        }
    }

    fn is_cooling_down(&self, at: Instant) -> bool {
        self.nanos(at) < self.cools_until.load(Ordering::Relaxed) // ORDERING: Relaxed: an estimate.
    }

    fn is_back(&self, before: Instant, at: Instant, callers: usize) -> bool {
        let took = at.saturating_duration_since(before);
        let fair = (LATE + LATER_EACH.saturating_mul(u32::try_from(callers).unwrap_or(u32::MAX))).min(LATEST);
        let late = took > fair;
        if late {
            self.note_late(self.nanos(before), self.nanos(at));
        }
        !late
    }

    #[cold]
    fn note_late(&self, begin: u64, end: u64) {
        // ORDERING: Relaxed: of yields at the same time one alone sees the earlier `late_until` and goes on. The rest are estimates.
        let last = self.late_until.fetch_max(end, Ordering::Relaxed);
        if begin < last {
            // Of several yields at the same time only one counts.
            return;
        }
        let forgiven = (begin - last) / FORGIVEN_PART;
        let lost = self.lost.load(Ordering::Relaxed).saturating_sub(forgiven) + (end - begin);
        let is_cooling_down = lost > nanos(MOST_LOST);
        // ORDERING: as above.
        self.lost.store(if is_cooling_down { 0 } else { lost }, Ordering::Relaxed);
        if is_cooling_down {
            self.cools_until.store(end + nanos(YIELD_NO_MORE), Ordering::Relaxed);
        }
    }

    fn nanos(&self, at: Instant) -> u64 {
        nanos(at.saturating_duration_since(self.origin))
    }
}

/// In the model most callers do not spin: spinning would hide what happens to those that sleep.
#[cfg(all(test, dlock_shuttle))]
fn is_spared() -> bool {
    !crate::sync::random_u32(0).is_multiple_of(4)
}

#[cfg(not(all(test, dlock_shuttle)))]
fn is_spared() -> bool {
    false
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/transport/yielding.rs"]
mod tests;
