//! Local time: monotonic, counting suspend, and injectable.
//!
//! A lease goes on ending while this machine sleeps, so a clock that stops during suspend (`CLOCK_MONOTONIC`, which
//! [`std::time::Instant`] reads on Linux) would let a holder believe in a lease that the server gave away long ago.

use crate::sync::Mutex;
use std::fmt;
use std::ops::Add;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A moment of local time, in nanoseconds since an origin that only its [`Clock`] knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The moment that never comes: later than every other.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the clock's origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long it is from `earlier` until this moment; zero when `earlier` is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This moment less `duration`, not before the clock's origin.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}

/// Adds a duration; what would overflow becomes [`Moment::NEVER`], so `Duration::MAX` waits for ever.
impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A source of local time: monotonic, and counting the time the machine was suspended.
///
/// The wall clock is no such source: it may step. No reading ever leaves the process; deadlines of leases are kept by
/// Redis alone, and a client only compares its own readings with one another.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// Reads the clock. Does not block.
    fn now(&self) -> Moment;

    /// Hands the clock what wakes the threads of one generator that sleep by it; called once for each generator.
    ///
    /// A clock that is moved by hand keeps `wake`, calls it after each move for as long as it can be upgraded, and returns `true`:
    /// the threads then sleep until they are woken, because no time passes by itself. `wake` does not block for long, and may be called by
    /// any thread and by several at once; call it without holding a mutex that [`now`](Self::now) takes.
    ///
    /// The default returns `false`, for a clock that goes with real time: the threads look at it again when so much real time has passed.
    fn wake_on_move(&self, wake: Weak<dyn Fn() + Send + Sync>) -> bool {
        let _ = wake;
        false
    }
}

/// The operating system's clock: `CLOCK_BOOTTIME` on Linux and Android, [`std::time::Instant`] elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn now(&self) -> Moment {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        Moment(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn now(&self) -> Moment {
        use once_cell::sync::Lazy;
        use std::time::Instant;
        static ORIGIN: Lazy<Instant> = Lazy::new(Instant::now);
        Moment(nanos(ORIGIN.elapsed()))
    }
}

/// A clock that stands still until it is moved, for tests.
///
/// [`advance`](Self::advance) wakes every thread that sleeps by it: `lost()`, waiting calls, probes, renewals and retries follow at
/// once, however much time they had left. Give the same clock to [`GeneratorBuilder::clock`](crate::GeneratorBuilder::clock) and to
/// [`MemoryLockProcessor::with_clock`](crate::MemoryLockProcessor::with_clock). No time passes by itself: `try_lock_for` on a
/// clock that nobody moves waits until it gets the lock.
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
    /// What wakes the sleepers of each generator.
    wakes: Mutex<Vec<Weak<dyn Fn() + Send + Sync>>>,
}

impl ManualClock {
    /// A clock that stands one second after its origin.
    #[must_use]
    pub const fn new() -> Self {
        Self { now: AtomicU64::new(1_000_000_000), wakes: Mutex::new(Vec::new()) }
    }

    /// Moves the clock forward and wakes all who sleep by it. They act on their own threads: wait for what they do, not for a time.
    ///
    /// Does not wait for them. May be called by several threads at once. The clock stops before [`Moment::NEVER`].
    pub fn advance(&self, by: Duration) {
        let moved = |now: u64| Some(now.saturating_add(nanos(by)).min(Moment::NEVER.0 - 1));
        let _ = self.now.fetch_update(Ordering::SeqCst, Ordering::SeqCst, moved);
        let wakes: Vec<_> = self.wakes.lock().iter().filter_map(Weak::upgrade).collect();
        for wake in wakes {
            wake();
        }
    }
}

// A panic leaves a moment and a list of hooks, both whole: a test may look at the clock after it.
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
            // Before the list grows: a clock that many generators shared, one after another, keeps nothing of those that are gone.
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
    fn system_clock_never_goes_back() {
        let clock = SystemClock;
        let mut last = clock.now();
        for _ in 0..1000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }

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

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Moment(7) + Duration::MAX, Moment::NEVER);
        assert_eq!(Moment(7).since(Moment(9)), Duration::ZERO);
        assert_eq!(Moment(7).before(Duration::from_secs(1)), Moment(0));
    }
}
