//! Decides whether a caller polls for its answer before it sleeps, and whether it yields before it writes.
//!
//! Sleep only when the wait is expected to be longer than a wake. A caller that sleeps and is woken costs two system calls, in two threads.
//!
//! * *Callers that share a connection* want the same cores. They yield (`sched_yield`) before each of [`POLLS`] polls: so the others, and the
//!   server if it runs there, get on meanwhile, and the answer has usually come when the yield returns. A writer yields once before it
//!   writes, so that callers that were answered together with it can queue their calls first.
//! * *A caller that is alone* sleeps at once, unless the program has set a *bound*: then it polls until its answer is there, or until the
//!   bound is over. Whether that is a gain depends on the machine: on the one where it was measured a lock and its unlock take three quarters
//!   of the time, and one and a half times the processor time; beside a program that computes they take longer. It does not yield: beside
//!   other programs that want the core, a yield costs a time slice of each of them, milliseconds.
//!
//! Two cases would turn this into a loss. Both are detected:
//!
//! * *The answer takes longer*, because the server is far or busy, or cannot run while the caller polls. After polling in vain the next 1, 2,
//!   4 … [`MOST_SKIPS`] callers sleep at once, until one that polls finds its answer again.
//! * *Other threads want the core for longer than callers do*. A thread that computes then keeps the core for milliseconds, and a
//!   caller that slept and was woken would get it sooner. When yields return late, nobody yields for a while.
//!
//! The state of the first case is a number, that of the second a moment; both are shared by all connections to a server, because they
//! describe that server, and this machine.

use super::timing::{LATE, LATER_EACH, LATEST, MOST_LOST, NO_YIELD};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, now, spin_loop, thread};
use std::time::{Duration, Instant};

/// How many times each of several callers polls before it sleeps.
const POLLS: u32 = 4;

/// The most callers that sleep at once after one has polled in vain. Polling for 100 µs costs one caller in so many less than a microsecond
/// each.
const MOST_SKIPS: u32 = 128;

/// Of the time between two late yields, one part in so many is forgiven.
const FORGIVEN_PART: u32 = 4;

/// Whether a thread that waits for the answer to a command polls for it before it sleeps: see [`RedisBuilder::polling`](crate::RedisBuilder::polling).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Polling {
    /// Threads that share a connection at the same time poll a few times, and let others run in between. A thread that has a connection for
    /// itself sleeps at once.
    #[default]
    Automatic,
    /// Never: a thread sleeps at once.
    Off,
    /// A thread that has a connection for itself polls, too, without a pause and for up to this time. For a server that answers sooner
    /// than that, where cores are to spare: 100 µs is a good choice for one on the same machine or in the same rack.
    AtMost(Duration),
}

/// See the module. All connections of a transport share one.
#[derive(Debug)]
pub(super) struct PollPolicy {
    polling: Polling,
    // ORDERING: Relaxed, for all of them: they count and estimate. A lost update or a stale value lets one caller more or less poll or yield,
    // and nothing is read through them.
    /// How many callers poll now.
    pollers: AtomicU32,
    /// In the low half, how many of the next callers sleep at once. In the high half, how many that were after the last polling; zero if it
    /// found its answer.
    skips: AtomicU32,
    /// Until this moment nobody yields, in nanoseconds since `origin`.
    cools_until: AtomicU64,
    late: Mutex<Late>,
    origin: Instant,
}

/// What late yields have cost.
#[derive(Debug)]
struct Late {
    /// When the last one returned.
    until: Instant,
    lost: Duration,
}

/// One of those that poll now, even in a panic.
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

    /// Yields to other threads. Returns the moment at which the yield ended, or `None` if nobody may yield now or the yield returned late.
    pub(super) fn yield_once(&self, before: Instant, callers: usize) -> Option<Instant> {
        if self.is_cooling_down(before) {
            return None;
        }
        thread::yield_now();
        let at = now();
        self.is_back(before, at, callers).then_some(at)
    }

    /// Returns `true` if one of so many callers may poll. A caller for which that is not so needs no look at its call and at the clock.
    pub(super) fn may_poll(&self, callers: usize) -> bool {
        match self.polling {
            Polling::Automatic => callers > 1,
            Polling::Off => false,
            Polling::AtMost(_) => true,
        }
    }

    /// Polls by `find`, which returns `true` if there is nothing more to poll for, and then asks `is_found` whether the answer was found. A
    /// caller that polls alone ends at its `deadline`, too. `callers` use the connection. Several callers that begin at once may disturb the count of those that
    /// sleep at once, which does no harm. On platforms that cannot read without waiting nobody polls, because that would disturb the writer.
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

    /// Polls until the bound or the deadline is over, or somebody else polls, too. Returns `false` if it has ended before the bound without
    /// a find, which says nothing about the server.
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
