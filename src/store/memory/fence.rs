//! Fence numbers: one rising sequence for all stores of this process.
//!
//! The rule is that of the Redis store: a number is the counter plus one, moved up to the wall clock in microseconds when it is more
//! than [`SLACK`] behind it. So the first number of a process is the time, and exceeds all numbers of an earlier process, as long as no
//! process issues numbers faster than the clock counts. Redis is too slow for that; a memory store is not, and therefore waits for the
//! microsecond to pass.
//!
//! The sequence belongs to the process, not to a store: two stores that protect one resource one after the other must not issue falling
//! numbers for it, even when the wall clock was stepped back between them.

use std::hint;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// How far, in microseconds, the counter may be behind the clock before it is moved up. For the same reason it limits the length of a
/// range of unissued numbers.
const SLACK: u64 = 10_000;

/// How often the clock is read at most while waiting for it to pass the last number, which takes some microseconds. A clock that was
/// stepped back, or that ticks in milliseconds, is not waited for; the numbers still rise, but ahead of the clock.
const READINGS: u32 = 100;

/// The last number issued.
// ORDERING: Relaxed: only the order of changes to this one value matters, and events that are ordered by the store's mutex, or by
// whatever passes between two stores, are ordered here as well.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Issues a number greater than every number before it.
pub(super) fn issue() -> u64 {
    let mut number = 0;
    // ORDERING: Relaxed: one value: see `LAST`.
    let _ = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
        number = next(last, clock_beyond(last));
        Some(number)
    });
    number
}

/// Reserves a range of numbers, up to the clock, that are issued nowhere else. Returns `None` when the clock is behind.
pub(super) fn issue_range() -> Option<RangeInclusive<u64>> {
    let mut range = None;
    // ORDERING: Relaxed: one value: see `LAST`.
    let _ = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
        range = range_after(last, clock_beyond(last));
        range.as_ref().map(|range| *range.end())
    });
    range
}

fn next(last: u64, clock: u64) -> u64 {
    let number = last + 1;
    if number < clock.saturating_sub(SLACK) { clock } else { number }
}

fn range_after(last: u64, clock: u64) -> Option<RangeInclusive<u64>> {
    (last < clock).then(|| last.max(clock.saturating_sub(SLACK)) + 1..=clock)
}

/// Waits until the wall clock is greater than `last`, and returns it. After enough readings returns the clock as it is.
fn clock_beyond(last: u64) -> u64 {
    for _ in 1..READINGS {
        let clock = wall_clock();
        if clock > last {
            return clock;
        }
        hint::spin_loop();
    }
    wall_clock()
}

/// Microseconds since 1970; zero before. Limited to the year 2255, so that a token fits a signed 64-bit column.
fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX).min((1 << 53) - 1)
}

#[cfg(test)]
#[path = "../../../tests/white_box/store/memory/fence.rs"]
mod tests;
