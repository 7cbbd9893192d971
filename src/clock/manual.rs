//! The clock for tests: [`ManualClock`].

use super::{Clock, Moment, nanos};
use crate::sync::Mutex;
use crate::timing::LOOK_AGAIN;
use std::fmt;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A clock that stands still until it is moved, for tests.
///
/// [`advance`](Self::advance) wakes every thread that sleeps by this clock: `lost()`, waiting calls, probes, renewals and
/// retries that have become due follow at once. Give the same clock to
/// [`GeneratorBuilder::clock`](crate::GeneratorBuilder::clock) and to
/// [`MemoryLockProcessor::with_clock`](crate::MemoryLockProcessor::with_clock). No time passes by itself: on a clock that
/// nobody moves, `try_lock_for` waits for a lock that is held until it gets it. Only a store that does not answer ends it: then the
/// call returns the error when its limit has passed in real time, because the answers of a store follow real time. A task that
/// awaits a hold has no such end: if the store does not answer, `try_hold_async_for` waits until the clock is moved.
///
/// [`advance`](Self::advance) moves the clock in one step, as if the process had stood still: nothing is renewed on the way.
/// [`pass`](Self::pass) moves it as time passes in a process that runs: what becomes due on the way is done on the way.
///
/// Requires the feature `test-util`.
///
/// ```
/// use redis_dlock::{Clock, DLockGenerator, ManualClock, MemoryLockProcessor};
/// use std::{sync::Arc, time::Duration};
///
/// let clock = Arc::new(ManualClock::new());
/// let store = MemoryLockProcessor::with_clock(clock.clone());
/// let generator = DLockGenerator::builder().clock(clock.clone()).build(store)?;
/// let lock = generator.generate("ORDER", "4711")?; // with a lease of 30 s
/// let guard = lock.lock()?;
/// clock.advance(Duration::from_secs(30));
/// assert!(!guard.is_valid());
/// guard.lost().recv().expect("one message");
/// # Ok::<_, redis_dlock::Error>(())
/// ```
pub struct ManualClock {
    now: AtomicU64,
    generators: Mutex<Generators>,
}

/// The generators that sleep by the clock.
struct Generators {
    /// For each, the function that wakes its sleepers.
    wakes: Vec<Weak<dyn Fn() + Send + Sync>>,
    /// For each, the function that returns until when its sleepers sleep.
    next_wakes: Vec<Weak<dyn Fn() -> Moment + Send + Sync>>,
}

impl ManualClock {
    /// Creates a clock that stands at one second after its origin.
    #[must_use]
    pub const fn new() -> Self {
        let generators = Generators { wakes: Vec::new(), next_wakes: Vec::new() };
        Self { now: AtomicU64::new(1_000_000_000), generators: Mutex::new(generators) }
    }

    /// Moves the clock forward and wakes every thread that sleeps by it. They act on their own threads: wait for what they do,
    /// not for a time.
    ///
    /// Does not wait for those threads. Several threads may call this at once. The clock stops just before [`Moment::NEVER`].
    pub fn advance(&self, by: Duration) {
        let moved = |now: u64| Some(now.saturating_add(nanos(by)).min(Moment::NEVER.0 - 1));
        let _ = self.now.fetch_update(Ordering::SeqCst, Ordering::SeqCst, moved);
        let wakes: Vec<_> = self.generators.lock().wakes.iter().filter_map(Weak::upgrade).collect();
        for wake in wakes {
            wake();
        }
    }

    /// Moves the clock forward as time passes: from one wake-up to the next, until `by` has passed. Before each move, and before
    /// it returns, it waits until every thread that has become due has done its work and sleeps again. So a lease of 30 s whose
    /// holder runs is renewed 40 times in a quarter of an hour, however busy the machine is.
    ///
    /// Blocks for as long as these threads work, and for ever while one of them is kept from going on, by a store that does not
    /// answer for example: use [`advance`](Self::advance) then. What follows in real time may still be on its way when this
    /// returns: messages between generators, and calls of hooks.
    ///
    /// ```
    /// use redis_dlock::{DLockGenerator, ManualClock, MemoryLockProcessor};
    /// use std::{sync::Arc, time::Duration};
    ///
    /// let clock = Arc::new(ManualClock::new());
    /// let store = MemoryLockProcessor::with_clock(clock.clone());
    /// let generator = DLockGenerator::builder().clock(clock.clone()).build(store)?;
    /// let lock = generator.generate("ORDER", "4711")?; // with a lease of 30 s
    /// let guard = lock.lock()?;
    /// clock.pass(Duration::from_secs(900));
    /// assert!(guard.is_valid());
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn pass(&self, by: Duration) {
        let end = Moment((self.now() + by).0.min(Moment::NEVER.0 - 1));
        loop {
            let (now, next) = (self.now(), self.next_wake());
            if next <= now {
                thread::sleep(LOOK_AGAIN);
            } else if now >= end {
                return;
            } else {
                self.advance(next.min(end).since(now));
            }
        }
    }

    /// Returns until when the threads sleep that sleep by this clock: the earliest of these moments. It is not later than now if
    /// one of the threads is at work, or has become due and is about to work, and [`Moment::NEVER`] if none waits for a moment.
    ///
    /// For tests that decide before each move whether to move on; [`pass`](Self::pass) does it for a given time.
    #[must_use]
    pub fn next_wake(&self) -> Moment {
        let next_wakes: Vec<_> = self.generators.lock().next_wakes.iter().filter_map(Weak::upgrade).collect();
        next_wakes.iter().map(|next_wake| next_wake()).min().unwrap_or(Moment::NEVER)
    }
}

/// Adds an entry to a list. Removes dead entries before the list grows, so that a clock shared by many generators in succession
/// keeps nothing of those that are gone.
fn add<F: ?Sized>(entries: &mut Vec<Weak<F>>, entry: Weak<F>) {
    if entries.len() == entries.capacity() {
        entries.retain(|entry| entry.strong_count() > 0);
    }
    entries.push(entry);
}

// A panic leaves the moment and the list of functions intact, so a test may use the clock after it.
impl std::panic::RefUnwindSafe for ManualClock {}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        Moment(self.now.load(Ordering::SeqCst))
    }

    fn wake_on_move(&self, wake: Weak<dyn Fn() + Send + Sync>) -> bool {
        add(&mut self.generators.lock().wakes, wake);
        true
    }

    fn tell_next_wake(&self, next_wake: Weak<dyn Fn() -> Moment + Send + Sync>) {
        add(&mut self.generators.lock().next_wakes, next_wake);
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.now()).finish()
    }
}

#[cfg(test)]
#[path = "../../tests/white_box/clock/manual.rs"]
mod tests;
