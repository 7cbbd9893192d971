//! Decides whether a caller polls for its answer before it sleeps, and whether it yields before it writes.
//!
//! A caller should sleep only if it expects to wait for longer than a wake-up takes. To put a caller to sleep and to wake it takes two
//! system calls, in two threads.
//!
//! * *Callers that share a connection* want the same cores. They yield (`sched_yield`) before each of [`POLLS`] polls. During the yield the
//!   other callers run, and so does a server on the same machine, so the answer has usually come when the yield returns. A writer yields
//!   once before it writes, so that callers that were answered together with it can queue their calls first.
//! * *A caller that is alone* sleeps at once, unless the program has set a *bound*. Then it polls until its answer is there, or until the
//!   bound is over. Whether that is a gain depends on the machine. On the machine where it was measured, a lock and its unlock take three
//!   quarters of the time and one and a half times the processor time. Beside a program that computes they take longer than without
//!   polling. Such a caller does not yield: each other program that wants the core would use a whole time slice first, which is
//!   milliseconds.
//!
//! In two cases polling or yielding costs more than it gains. Both cases are detected:
//!
//! * *The answer takes longer*, because the server is far or busy, or cannot run while the caller polls. After a caller has polled in vain,
//!   the next caller sleeps at once. Each further time this number doubles, up to [`MOST_SKIPS`] callers, until a caller that polls finds
//!   its answer again.
//! * *Other threads want the core for longer than callers do*. A thread that computes then keeps the core for milliseconds, and a caller
//!   that sleeps and is woken gets it back sooner. When yields return late, no caller yields for a while.
//!
//! The state of the first case is a count of callers, and that of the second case is a moment. All connections to a server share both,
//! because they describe that server and this machine.

use super::timing::{LATE, LATER_EACH, LATEST, MOST_LOST, NO_YIELD};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, now, spin_loop, thread};
use std::time::{Duration, Instant};

/// How many times each of several callers polls before it sleeps.
const POLLS: u32 = 4;

/// The greatest number of callers that sleep at once after one has polled in vain. If one caller in 128 polls for 100 µs in vain, that
/// costs less than a microsecond for each caller.
const MOST_SKIPS: u32 = 128;

/// A late yield is forgiven the time since the last late yield, divided by this number.
const FORGIVEN_PART: u32 = 4;

/// Whether a thread that waits for the answer to a command polls for it before it sleeps. See
/// [`RedisBuilder::polling`](crate::RedisBuilder::polling).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Polling {
    /// Threads that share a connection at the same time poll a few times, and let others run in between. A thread that has a connection for
    /// itself sleeps at once.
    #[default]
    Automatic,
    /// No thread polls: each sleeps at once.
    Off,
    /// A thread that has a connection for itself polls, too, without a pause and for up to this time. This suits a server that answers
    /// sooner than that, on a machine with cores to spare: 100 µs is a good choice for a server on the same machine or in the same rack.
    AtMost(Duration),
}

/// See the module. All connections of a transport share one.
#[derive(Debug)]
pub(super) struct PollPolicy {
    polling: Polling,
    // ORDERING: Relaxed, for all three atomics: they count and estimate. After a lost update or a stale value, one caller more or less
    // polls or yields. No other data is read through them.
    /// The number of callers that poll now.
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

/// Counts a caller that polls. Dropping it counts the caller out, so that a panic does so, too.
struct Poller<'a>(&'a AtomicU32);

impl Drop for Poller<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed); // ORDERING: Relaxed: an estimate.
    }
}

impl PollPolicy {
    pub(super) fn new(polling: Polling) -> Self {
        let origin = now();
        Self {
            polling,
            pollers: AtomicU32::new(0),
            skips: AtomicU32::new(0),
            cools_until: AtomicU64::new(0),
            late: Mutex::new(Late { until: origin, lost: Duration::ZERO }),
            origin,
        }
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

    /// Returns `true` if one of `callers` callers may poll. Otherwise the caller can skip reading the clock and the state of its call.
    pub(super) fn may_poll(&self, callers: usize) -> bool {
        match self.polling {
            Polling::Automatic => callers > 1,
            Polling::Off => false,
            Polling::AtMost(_) => true,
        }
    }

    /// Polls by calling `find`, which returns `true` if there is nothing more to poll for. Then asks `is_found` whether the answer was
    /// found. A caller that polls alone also stops at its `deadline`. `callers` is the number of callers that use the connection.
    ///
    /// Several callers that begin at the same time may miscount the callers that sleep at once, which does no harm. No caller polls on
    /// platforms that cannot read one half without waiting, because polling would disturb the writer there.
    pub(super) fn poll(&self, callers: usize, deadline: Instant, find: impl Fn() -> bool, is_found: impl Fn() -> bool) {
        if cfg!(not(unix)) || is_spared() {
            return;
        }
        let bound = match self.polling {
            Polling::Automatic if callers > 1 => None,
            Polling::Automatic | Polling::Off => return,
            Polling::AtMost(bound) => Some(bound),
        };
        // ORDERING: Relaxed: a count that may be disturbed.
        let skips = self.skips.load(Ordering::Relaxed);
        if low_half(skips) > 0 {
            return self.skips.store(skips - 1, Ordering::Relaxed);
        }
        let poller = Poller(&self.pollers);
        let alone = self.pollers.fetch_add(1, Ordering::Relaxed) == 0 && callers < 2; // ORDERING: Relaxed: an estimate.
        let is_conclusive = match bound {
            Some(bound) if alone => self.poll_alone(bound, deadline, find),
            _ => self.poll_among(callers, find),
        };
        drop(poller);
        if is_conclusive {
            self.note(is_found());
        }
    }

    /// Polls until `find` returns `true`, until the bound or the deadline is over, or until another caller polls. Returns `false` if it
    /// ends before the bound without a result, which says nothing about the server.
    fn poll_alone(&self, bound: Duration, deadline: Instant, find: impl Fn() -> bool) -> bool {
        let until = now() + bound;
        while !find() {
            let at = now();
            if at >= until {
                return true;
            }
            // ORDERING: Relaxed: an estimate.
            if at >= deadline || self.pollers.load(Ordering::Relaxed) > 1 {
                return false;
            }
            spin_loop();
        }
        true
    }

    /// Polls a few times, and yields before each. Returns `false` if a yield was late, which says nothing about the server.
    fn poll_among(&self, callers: usize, find: impl Fn() -> bool) -> bool {
        let mut at = now();
        for _ in 0..POLLS {
            let Some(back) = self.yield_once(at, callers) else { return false };
            at = back;
            if find() {
                break;
            }
        }
        true
    }

    /// Notes whether a caller that polled found its answer.
    fn note(&self, found: bool) {
        // ORDERING: Relaxed: a count that may be disturbed.
        let skips = self.skips.load(Ordering::Relaxed);
        let next = if found { 0 } else { (2 * high_half(skips)).clamp(1, MOST_SKIPS) };
        let next = next << 16 | next;
        if next != skips {
            self.skips.store(next, Ordering::Relaxed);
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
            self.note_late(before, at);
        }
        !late
    }

    #[cold]
    fn note_late(&self, begin: Instant, end: Instant) {
        let mut late = self.late.lock();
        if begin < late.until {
            // Of several yields at the same time only one counts.
            late.until = late.until.max(end);
            return;
        }
        let forgiven = (begin - late.until) / FORGIVEN_PART;
        late.lost = late.lost.saturating_sub(forgiven) + (end - begin);
        late.until = end;
        if late.lost > MOST_LOST {
            late.lost = Duration::ZERO;
            self.cools_until.store(self.nanos(end + NO_YIELD), Ordering::Relaxed); // ORDERING: Relaxed: an estimate.
        }
    }

    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.origin).as_nanos()).unwrap_or(u64::MAX)
    }
}

fn low_half(n: u32) -> u32 {
    n & 0xffff
}

fn high_half(n: u32) -> u32 {
    n >> 16
}

/// In the model most callers do not poll: polling would hide what happens to those that sleep.
#[cfg(all(test, dlock_shuttle))]
fn is_spared() -> bool {
    !crate::sync::random_u32(0).is_multiple_of(4)
}

#[cfg(not(all(test, dlock_shuttle)))]
fn is_spared() -> bool {
    false
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/transport/polling.rs"]
mod tests;
