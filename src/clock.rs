//! Local time: monotonic, counting suspend, and injectable.
//!
//! A lease goes on ending while this machine sleeps, so a clock that stops during suspend (`CLOCK_MONOTONIC`, which
//! [`std::time::Instant`] reads on Linux) would let a holder believe in a lease that the server gave away long ago.

#[cfg(any(test, feature = "test-util"))]
mod manual;

use std::fmt;
use std::ops::Add;
use std::sync::Weak;
use std::time::Duration;

#[cfg(any(test, feature = "test-util"))]
pub use manual::ManualClock;

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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn arithmetic_saturates() {
        assert_eq!(Moment(7) + Duration::MAX, Moment::NEVER);
        assert_eq!(Moment(7).since(Moment(9)), Duration::ZERO);
        assert_eq!(Moment(7).before(Duration::from_secs(1)), Moment(0));
    }
}
