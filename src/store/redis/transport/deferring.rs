//! Decides when a poster may leave before its call is written.
//!
//! A thread that posts a call usually makes another one at once, and one write can carry both commands, and those of other threads. So a
//! poster that finds another caller about to write may leave its call to that caller, which usually writes it 20 to 100 µs later.
//!
//! The poster's program may rely on the write, so two rules keep late writes rare:
//!
//! * *Any caller helps.* Where sixty threads share a core, the caller that is about to write may wait while fifty others run. So every
//!   caller first checks, on all connections, whether a call was left for 100 µs, and if so writes it.
//! * *Late writes are rationed.* For each call that is left, the time from the poster's return to the write is measured. Over time at most
//!   one post of [`POSTS`] is later than [`LATE`]: each post in time adds 1 to a budget, each late one takes [`POSTS`] from it, and a call
//!   is left only while the budget pays for a late one. Where writes come late, as on a core on which a process computes, nearly all
//!   posters write for themselves.

use super::CALLERS;
use crate::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// A write that comes later than this counts as late.
pub(super) const LATE: Duration = Duration::from_micros(200);

/// How long a posted call may be left before the next caller, whichever it is, writes it. (In the model time means nothing.)
#[cfg(not(all(test, dlock_shuttle)))]
const LEFT_LONG: Duration = Duration::from_micros(100);

/// A poster may leave its call only while at most this many posted calls, its own included, are queued on its connection. If the writer
/// is kept off its core, no more calls than these are late.
pub(super) const MOST_LEFT: usize = 16;

/// One post in this many may be written late.
const POSTS: i64 = 500;

/// The largest budget, which is also the first one. It pays for one stall of the machine, which makes all calls late that were left. With
/// a larger one, more writes in a row could be late after a long time without any. With a smaller one, a stall would stop leaving for long.
const LARGEST: i64 = (CALLERS * MOST_LEFT) as i64 * POSTS;

/// See the module. All connections of a client share one.
#[derive(Debug)]
pub(super) struct Deferring {
    // ORDERING: Relaxed: a ration. Additions and subtractions are atomic, so none is lost, and nothing is read through it.
    budget: AtomicI64,
}

impl Deferring {
    pub(super) fn new() -> Self {
        Self { budget: AtomicI64::new(LARGEST) }
    }

    /// Returns `true` if a poster may leave its call to the caller that is about to write.
    pub(super) fn is_allowed(&self) -> bool {
        may_defer(self.budget.load(Ordering::Relaxed)) // ORDERING: Relaxed: a ration.
    }

    /// Notes that a posted call is written, `after` the poster left it to another caller; zero if the poster stayed.
    pub(super) fn note_written(&self, after: Duration) {
        // ORDERING: Relaxed: a ration. Threads that add at the same time may exceed the largest budget by their number.
        if after > LATE {
            self.budget.fetch_sub(POSTS, Ordering::Relaxed);
        } else if self.budget.load(Ordering::Relaxed) < LARGEST {
            self.budget.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(not(all(test, dlock_shuttle)))]
fn may_defer(budget: i64) -> bool {
    budget >= POSTS
}

/// In the model time means nothing: some calls are left, and some are not.
#[cfg(all(test, dlock_shuttle))]
fn may_defer(_: i64) -> bool {
    crate::sync::random_u32(0).is_multiple_of(2)
}

/// Returns `true` if any caller should write a call that was left for this long.
#[cfg(not(all(test, dlock_shuttle)))]
pub(super) fn is_left_long(time: Duration) -> bool {
    time > LEFT_LONG
}

/// In the model time means nothing: some calls are left for long, and some are not.
#[cfg(all(test, dlock_shuttle))]
pub(super) fn is_left_long(_: Duration) -> bool {
    crate::sync::random_u32(0).is_multiple_of(2)
}

/// Returns the time from `since` to `at`, or zero if `since` was not noted.
pub(super) fn time_since(since: Option<Instant>, at: Instant) -> Duration {
    since.map_or(Duration::ZERO, |since| at.saturating_duration_since(since))
}

#[cfg(all(test, not(dlock_shuttle)))]
mod tests {
    use super::*;

    /// The number of late writes that the first budget pays for.
    const FIRST: usize = CALLERS * MOST_LEFT;

    #[test]
    fn over_time_at_most_one_post_of_five_hundred_is_late() {
        let deferring = Deferring::new();
        let (mut late, mut posts) = (0_usize, 0_usize);
        for n in 0..1_000_000 {
            // Every call that is left is late. Up to seven calls are left at once.
            let burst = 1 + n % 7;
            let left = deferring.is_allowed();
            for _ in 0..burst {
                deferring.note_written(if left { 2 * LATE } else { Duration::ZERO });
            }
            posts += burst;
            late += if left { burst } else { 0 };
        }
        assert!(late > posts / 1000, "{late} of {posts}");
        assert!(late <= posts / 500 + FIRST + 7, "{late} of {posts}");
    }

    #[test]
    fn a_long_time_without_a_late_write_allows_one_stall() {
        let deferring = Deferring::new();
        (0..100_000).for_each(|_| deferring.note_written(LATE));
        let in_a_row = std::iter::from_fn(|| deferring.is_allowed().then(|| deferring.note_written(2 * LATE))).count();
        assert_eq!(in_a_row, FIRST);
    }
}
