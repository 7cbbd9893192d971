//! Decides whether a caller polls for its answer before it sleeps, and whether it yields before it writes.
//!
//! A caller should sleep only if it expects to wait for longer than a wake-up takes. To put a caller to sleep and to wake it takes two
//! system calls, in two threads, and the core that it slept on may have to be woken, too. A server on the same machine has answered by
//! then. So a caller polls first, and yields (`sched_yield`) between its polls: the server, if it is on the same core, and other callers
//! run meanwhile.
//!
//! * *A caller that is alone*, on its connection and in polling, polls at once, until its *bound* is over ([`POLLS_FOR`], or what the program
//!   has set).
//! * *Several callers* want the same cores. Each of them yields before each of its [`POLLS`] polls. The answer has usually come when the
//!   yield returns. A writer yields once before it writes, so that callers that were answered together with it can queue their calls first.
//! * *A task*, for which another thread of the client waits, yields where a caller that is alone would poll. It looks for its answer each time that
//!   it is polled by its runtime, so the thread of the runtime does not sleep meanwhile.
//!
//! In two cases polling or yielding costs more than it gains. Both cases are detected:
//!
//! * *The answer takes longer*, because the server is far or busy. After a caller has polled in vain, the next caller sleeps at once. Each
//!   further time this number doubles, up to [`MOST_SKIPS`] callers, until a caller that polls finds its answer again.
//! * *Other threads want the core for longer than callers do*. A thread that computes then keeps the core for milliseconds, and a caller
//!   that sleeps and is woken gets it back sooner. When yields return late, no caller yields for a while.
//!
//! The state of the first case is a count of callers, and that of the second case is a moment. The connections that callers share have both
//! in common, because both describe the server and this machine.

use super::super::timing::{LATE, LATER_EACH, LATEST, MOST_LOST, NO_YIELD, POLLS_FOR};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, now, random_u32, thread};
use std::time::{Duration, Instant};

/// The greatest number of callers that sleep at once after one has polled in vain. If one caller in 128 polls for 100 µs in vain, that
/// costs less than a microsecond for each caller.
const MOST_SKIPS: u32 = 128;

/// How many times each of several callers polls before it sleeps.
const POLLS: u32 = 4;

/// What late yields have cost is forgiven as time passes. The time since the last late yield is divided by one of these numbers: the first one if a
/// caller is alone, and the second one if several share the connection. A caller that is alone saves only its own wake-up. Several callers save more,
/// because one write carries the commands of all.
const FORGIVEN_PARTS: [u32; 2] = [32, 4];

/// Whether a thread that waits for the answer to a command polls for it before it sleeps. See
/// [`RedisBuilder::polling`](crate::RedisBuilder::polling).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Polling {
    /// A thread that has a connection for itself polls for up to 100 µs, and lets other threads run in between. Threads that share a
    /// connection at the same time poll a few times each.
    #[default]
    Automatic,
    /// No thread polls: each sleeps at once, and leaves the core to others while its answer is on the way.
    Off,
    /// The same as `Automatic`, but for up to this time. More suits a server that takes longer than 100 µs to answer, where cores are idle
    /// meanwhile.
    AtMost(Duration),
}

/// See the module. The connections that callers share have one in common.
#[derive(Debug)]
pub(in super::super) struct PollPolicy {
    /// How long a caller polls. Zero if no caller polls.
    bound: Duration,
    /// How long a yield may take before it counts as late, if the connection has this number of callers.
    in_time: fn(usize) -> Duration,
    // ORDERING: Relaxed, for all three atomics: they estimate. After a lost update or a stale value, one caller more or less polls or yields.
    // No other data is read through them.
    /// The number of callers that poll now, on all connections.
    pollers: AtomicU32,
    /// The low half is the number of next callers that sleep at once. The high half is the value from which the low half last counted down;
    /// zero if the last caller that polled found its answer.
    skips: AtomicU32,
    /// The moment until which no caller yields, in nanoseconds since `origin`.
    cools_until: AtomicU64,
    late: Mutex<Late>,
    origin: Instant,
}

/// What late yields have cost.
#[derive(Debug)]
struct Late {
    /// When the last late yield returned.
    until: Instant,
    lost: Duration,
}

/// A caller that polls. Dropping it counts the caller out, so that a panic does so, too.
struct Poller<'a> {
    pollers: &'a AtomicU32,
    is_first: bool,
}

impl<'a> Poller<'a> {
    fn enter(pollers: &'a AtomicU32) -> Self {
        Self { pollers, is_first: pollers.fetch_add(1, Ordering::Relaxed) == 0 } // ORDERING: Relaxed: an estimate.
    }
}

impl Drop for Poller<'_> {
    fn drop(&mut self) {
        self.pollers.fetch_sub(1, Ordering::Relaxed); // ORDERING: Relaxed: an estimate.
    }
}

impl PollPolicy {
    pub(in super::super) fn new(polling: Polling) -> Self {
        let bound = match polling {
            // Polling would disturb the writer on platforms that cannot read one half without waiting.
            _ if cfg!(not(unix)) => Duration::ZERO,
            Polling::Automatic => POLLS_FOR,
            Polling::Off => Duration::ZERO,
            Polling::AtMost(bound) => bound,
        };
        let origin = now();
        Self {
            bound,
            in_time,
            pollers: AtomicU32::new(0),
            skips: AtomicU32::new(0),
            cools_until: AtomicU64::new(0),
            late: Mutex::new(Late { until: origin, lost: Duration::ZERO }),
            origin,
        }
    }

    /// Yields for a task that has waited since this moment, and returns `true`, if callers poll now, their bound is not over, and the yield has
    /// returned in time. A task does not note whether its polls find the answer: the thread that waits for the answer does.
    pub(in super::super) fn yield_for_task(&self, since: Instant) -> bool {
        // ORDERING: Relaxed: a count that may be disturbed.
        let sleeps = self.skips.load(Ordering::Relaxed) & 0xffff > 0;
        let at = now();
        !sleeps && at.saturating_duration_since(since) < self.bound && self.yield_once(at, 1).is_some()
    }

    /// Yields to other threads. Returns the moment at which the yield ended, or `None` if no caller may yield now or the yield returned
    /// late.
    pub(super) fn yield_once(&self, before: Instant, callers: usize) -> Option<Instant> {
        if self.is_cooling_down(before) {
            return None;
        }
        thread::yield_now();
        let at = now();
        self.is_back(before, at, callers).then_some(at)
    }

    /// Polls by calling `find` with the time, which returns `true` if there is nothing more to poll for. Then asks `is_found` whether the
    /// answer was found. `callers` returns the number of callers that use the connection. The bound counts from the moment `at`. A caller
    /// whose time is nearly over does not poll: a yield may return late.
    ///
    /// Several callers that begin at the same time may miscount the callers that sleep at once, which does no harm.
    pub(super) fn poll(
        &self,
        callers: impl Fn() -> usize,
        mut at: Instant,
        deadline: Instant,
        find: impl Fn(Instant) -> bool,
        is_found: impl Fn() -> bool,
    ) {
        if self.bound.is_zero() || self.is_cooling_down(at) || at + LATEST >= deadline {
            return;
        }
        if cfg!(all(test, dlock_shuttle)) && !random_u32(0).is_multiple_of(4) {
            // In the model most callers do not poll: polling would hide what happens to those that sleep.
            return;
        }
        // ORDERING: Relaxed: a count that may be disturbed.
        let skips = self.skips.load(Ordering::Relaxed);
        if skips & 0xffff > 0 {
            return self.skips.store(skips - 1, Ordering::Relaxed);
        }
        let poller = Poller::enter(&self.pollers);
        let (until, began_with) = (at + self.bound, callers());
        let is_alone = began_with < 2 && poller.is_first;
        let (mut polls, mut is_over) = (0, false);
        // A caller that is not alone lets the others run first.
        while !((is_alone || polls > 0) && find(at)) {
            if is_over {
                return self.note(false);
            }
            let back = self.yield_once(at, began_with);
            at = back.unwrap_or_else(now);
            if at >= deadline || is_alone && callers() > 1 {
                // This says nothing about the server.
                return;
            }
            polls += 1;
            is_over = back.is_none() || if is_alone { at >= until } else { polls == POLLS };
        }
        self.note(is_found());
    }

    /// Notes whether a caller that polled found its answer.
    fn note(&self, found: bool) {
        // ORDERING: Relaxed: a count that may be disturbed.
        let skips = self.skips.load(Ordering::Relaxed);
        let next = if found { 0 } else { (2 * (skips >> 16)).clamp(1, MOST_SKIPS) };
        let next = next << 16 | next;
        if next != skips {
            self.skips.store(next, Ordering::Relaxed);
        }
    }

    fn is_cooling_down(&self, at: Instant) -> bool {
        self.nanos(at) < self.cools_until.load(Ordering::Relaxed) // ORDERING: Relaxed: an estimate.
    }

    fn is_back(&self, before: Instant, at: Instant, callers: usize) -> bool {
        let late = at.saturating_duration_since(before) > (self.in_time)(callers);
        if late {
            self.note_late(before, at, usize::from(callers > 1));
        }
        !late
    }

    #[cold]
    fn note_late(&self, begin: Instant, end: Instant, kind: usize) {
        // The loss of several yields at the same time is counted once. A caller does not wait for the mutex: the thread that has it may be of low
        // priority, and kept from its core.
        let Some(mut late) = self.late.try_lock() else { return };
        let forgiven = begin.saturating_duration_since(late.until) / FORGIVEN_PARTS[kind];
        late.lost = late.lost.saturating_sub(forgiven) + end.saturating_duration_since(begin.max(late.until));
        late.until = late.until.max(end);
        if late.lost > MOST_LOST[kind] {
            late.lost = Duration::ZERO;
            self.cools_until.store(self.nanos(end + NO_YIELD), Ordering::Relaxed); // ORDERING: Relaxed: an estimate.
        }
    }

    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.origin).as_nanos()).unwrap_or(u64::MAX)
    }
}

fn in_time(callers: usize) -> Duration {
    (LATE + LATER_EACH.saturating_mul(u32::try_from(callers).unwrap_or(u32::MAX))).min(LATEST)
}

#[cfg(test)]
#[path = "../../../../../tests/white_box/store/redis/transport/mux/polling.rs"]
mod tests;
