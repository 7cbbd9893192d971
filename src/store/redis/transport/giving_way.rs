//! When a caller lets other threads run before it sleeps, or before it writes.
//!
//! To sleep and to be woken are two system calls of two threads; to give way (`sched_yield`) is one. On a core that many callers
//! share, the answer is mostly there when the turn comes back. So a caller that shares its connection looks for its answer a few times,
//! giving way in between, before it sleeps; and who is about to write lets those call first that were answered together with it.
//!
//! Two things would make that a loss, and are noticed:
//!
//! * *The answer takes longer* (a server that is far, or busy, or a core that nobody else wants): callers that look in vain make others
//!   sleep without a look, twice as many each time, up to [`MOST_SKIPS`], until one finds its answer again.
//! * *Others want the core, and for longer than callers do* (a thread that computes keeps it for milliseconds, where one that was woken
//!   would get it sooner): when a turn comes back late, nobody gives way for a while.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{now, thread};
use std::time::{Duration, Instant};

/// How often a caller looks before it sleeps.
pub(super) const LOOKS: u32 = 4;

/// The most callers that sleep without a look because others looked in vain.
const MOST_SKIPS: u32 = 64;

/// How late a turn may come back: so long, and so much longer for each caller of the connection, of which there may be as many on
/// every other one; but never as late as after a thread that computes, whose turn takes about 3 ms.
const LATE: Duration = Duration::from_micros(1500);
const LATER_EACH: Duration = Duration::from_micros(60);
const LATEST: Duration = Duration::from_micros(2500);

/// So much time may be lost by turns that come back late before that is no accident; the part of all time that is forgiven.
const MOST_LOST: Duration = Duration::from_millis(16);
const FORGIVEN_PART: u64 = 4;

/// For how long nobody gives way then: long against what was lost.
const REST: Duration = Duration::from_millis(500);

/// See the module. One for all connections of a client.
#[derive(Debug)]
pub(super) struct GivingWay {
    /// How many callers are to sleep without a look.
    skips: AtomicU32,
    /// How many were, the last time.
    skipped: AtomicU32,
    /// Until when nobody gives way, in nanoseconds since `origin`.
    rests_until: AtomicU64,
    /// When the last turn that came back late did so, and how much time was lost by such.
    late_until: AtomicU64,
    lost: AtomicU64,
    origin: Instant,
}

impl GivingWay {
    pub(super) fn new() -> Self {
        Self {
            skips: AtomicU32::new(0),
            skipped: AtomicU32::new(0),
            rests_until: AtomicU64::new(0),
            late_until: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            origin: now(),
        }
    }

    /// Lets other threads run; returns when the turn came back, or `None` when it is not the time for that, or it came back late.
    pub(super) fn give_way(&self, before: Instant, callers: usize) -> Option<Instant> {
        if self.rests(before) {
            return None;
        }
        thread::yield_now();
        let at = now();
        self.is_back(before, at, callers).then_some(at)
    }

    /// Whether a caller may look before it sleeps. The numbers are about right when several ask at once, which does. (Where there is
    /// no way to read without waiting, looking would disturb who writes.)
    pub(super) fn may_look(&self) -> bool {
        if cfg!(not(unix)) || is_spared() {
            return false;
        }
        let skips = self.skips.load(Ordering::Relaxed);
        if skips > 0 {
            self.skips.store(skips - 1, Ordering::Relaxed);
        }
        skips == 0
    }

    /// Notes whether a caller that looked has found its answer.
    pub(super) fn looked(&self, found: bool) {
        let skipped = self.skipped.load(Ordering::Relaxed);
        let skips = if found { 0 } else { (2 * skipped).clamp(1, MOST_SKIPS) };
        if skips != skipped {
            self.skipped.store(skips, Ordering::Relaxed);
        }
        if !found {
            self.skips.store(skips, Ordering::Relaxed);
        }
    }

    fn rests(&self, at: Instant) -> bool {
        self.nanos(at) < self.rests_until.load(Ordering::Relaxed)
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
        let last = self.late_until.fetch_max(end, Ordering::Relaxed);
        if begin < last {
            // Of all who waited at the same time one counts.
            return;
        }
        let forgiven = (begin - last) / FORGIVEN_PART;
        let lost = self.lost.load(Ordering::Relaxed).saturating_sub(forgiven) + (end - begin);
        let rests = lost > nanos(MOST_LOST);
        self.lost.store(if rests { 0 } else { lost }, Ordering::Relaxed);
        if rests {
            self.rests_until.store(end + nanos(REST), Ordering::Relaxed);
        }
    }

    fn nanos(&self, at: Instant) -> u64 {
        nanos(at.saturating_duration_since(self.origin))
    }
}

/// In the model most callers do not look: it hides what becomes of those that sleep.
#[cfg(all(test, dlock_shuttle))]
fn is_spared() -> bool {
    !crate::sync::die(0).is_multiple_of(4)
}

#[cfg(not(all(test, dlock_shuttle)))]
fn is_spared() -> bool {
    false
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_in_vain_lets_more_and_more_sleep_and_who_finds_ends_that() {
        let giving = GivingWay::new();
        let skips = || (0..).take_while(|_| !giving.may_look()).count();
        assert_eq!(skips(), 0);
        for expected in [1, 2, 4, 8, 16, 32, 64, 64] {
            giving.looked(false);
            assert_eq!(skips(), expected);
        }
        giving.looked(true);
        assert_eq!(skips(), 0);
        giving.looked(false);
        assert_eq!(skips(), 1);
    }

    /// Gives way from one moment to another, in milliseconds; whether the turn came back in time.
    fn is_back(giving: &GivingWay, begin: u64, end: u64, callers: usize) -> bool {
        giving.is_back(after(giving, begin), after(giving, end), callers)
    }

    fn after(giving: &GivingWay, millis: u64) -> Instant {
        giving.origin + Duration::from_millis(millis)
    }

    #[test]
    fn many_callers_may_need_longer() {
        let giving = GivingWay::new();
        assert!(!is_back(&giving, 0, 2, 4));
        assert!(is_back(&giving, 0, 2, 40));
        assert!(!is_back(&giving, 0, 3, 4000));
    }

    #[test]
    fn nobody_gives_way_for_a_while_when_turns_come_back_late() {
        let giving = GivingWay::new();
        let rests = |at| giving.rests(after(&giving, at));
        // Sixteen who wait at the same time lose what one loses.
        assert!((0..16).all(|_| !is_back(&giving, 10, 14, 4)));
        for n in 0..4 {
            assert!(!rests(14 + 4 * n));
            assert!(!is_back(&giving, 14 + 4 * n, 18 + 4 * n, 4));
        }
        assert!(rests(30));
        assert!(rests(529));
        assert!(!rests(530));
    }

    #[test]
    fn a_turn_that_is_late_now_and_then_is_forgiven() {
        let giving = GivingWay::new();
        for n in 1..100 {
            assert!(!is_back(&giving, 20 * n, 20 * n + 4, 4));
            assert!(!giving.rests(after(&giving, 20 * n + 4)));
        }
    }
}
