//! The clock for tests: [`ManualClock`].

use super::{Clock, Moment, nanos};
use crate::sync::Mutex;
use std::fmt;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A clock that stands still until it is moved, for tests.
///
/// [`advance`](Self::advance) wakes every thread that sleeps by this clock: `lost()`, waiting calls, probes, renewals and
/// retries that have become due follow at once. Give the same clock to
/// [`GeneratorBuilder::clock`](crate::GeneratorBuilder::clock) and to
/// [`MemoryLockProcessor::with_clock`](crate::MemoryLockProcessor::with_clock). No time passes by itself: on a clock that
/// nobody moves, `try_lock_for` waits for a lock that is held until it gets it. Only a store that does not answer ends it: then the
/// call returns the error when its limit has passed in real time, because the answers of a store follow real time.
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
    /// For each generator, the function that wakes its sleepers.
    wakes: Mutex<Vec<Weak<dyn Fn() + Send + Sync>>>,
}

impl ManualClock {
    /// Creates a clock that stands at one second after its origin.
    #[must_use]
    pub const fn new() -> Self {
        Self { now: AtomicU64::new(1_000_000_000), wakes: Mutex::new(Vec::new()) }
    }

    /// Moves the clock forward and wakes every thread that sleeps by it. They act on their own threads: wait for what they do,
    /// not for a time.
    ///
    /// Does not wait for those threads. Several threads may call this at once. The clock stops just before [`Moment::NEVER`].
    pub fn advance(&self, by: Duration) {
        let moved = |now: u64| Some(now.saturating_add(nanos(by)).min(Moment::NEVER.0 - 1));
        let _ = self.now.fetch_update(Ordering::SeqCst, Ordering::SeqCst, moved);
        let wakes: Vec<_> = self.wakes.lock().iter().filter_map(Weak::upgrade).collect();
        for wake in wakes {
            wake();
        }
    }
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
        let mut wakes = self.wakes.lock();
        if wakes.len() == wakes.capacity() {
            // Remove dead entries before the list grows, so that a clock shared by many generators in succession keeps nothing
            // of those that are gone.
            wakes.retain(|wake| wake.strong_count() > 0);
        }
        wakes.push(wake);
        true
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.now()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_clock_keeps_nothing_of_generators_that_are_gone() {
        let clock = Arc::new(ManualClock::new());
        let generator =
            || crate::DLockGenerator::builder().clock(clock.clone()).build(crate::MemoryLockProcessor::new());
        let living: Vec<_> = (0..3).map(|_| generator().expect("random numbers")).collect();
        for _ in 0..10_000 {
            drop(generator());
        }
        clock.advance(Duration::from_secs(1));
        let wakes = clock.wakes.lock();
        assert!(wakes.capacity() <= 8, "{}", wakes.capacity());
        assert_eq!(wakes.iter().filter(|wake| wake.strong_count() > 0).count(), living.len());
    }
}
