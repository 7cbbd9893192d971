//! Local time: a monotonic clock that includes the time in suspend, and that tests can replace.
//!
//! A lease keeps running down while this machine sleeps. A clock that stops during suspend (`CLOCK_MONOTONIC`, which
//! [`std::time::Instant`] reads on Linux) would let a holder believe in a lease that ended on the server long ago.

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
    /// The moment that never comes: later than all others.
    pub const NEVER: Self = Self(u64::MAX);

    /// Creates the moment `nanos` nanoseconds after the clock's origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the clock's origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this moment; zero if `earlier` is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns this moment minus `duration`, but not before the clock's origin.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}

/// Adds a duration. An overflow becomes [`Moment::NEVER`], so `Duration::MAX` waits for ever.
impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A source of local time that is monotonic and includes the time for which the machine was suspended.
///
/// The wall clock is not such a source, because it may step. No reading ever leaves the process: Redis alone counts down the
/// leases, and a client only compares its own readings with one another.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// Reads the clock. Does not block.
    fn now(&self) -> Moment;

    /// Gives the clock a function that wakes the threads of one generator that sleep by this clock. Called once for each
    /// generator.
    ///
    /// A clock that is moved by hand keeps `wake`, calls it after each move for as long as it can be upgraded, and returns
    /// `true`. The threads then sleep until they are woken, because no time passes by itself. `wake` does not block for long.
    /// Any thread may call it, and several may at once. Call it without holding a mutex that [`now`](Self::now) takes.
    ///
    /// The default returns `false`, for a clock that follows real time: each thread sleeps for the real time that is left, and
    /// then reads the clock again.
    fn wake_on_move(&self, wake: Weak<dyn Fn() + Send + Sync>) -> bool {
        let _ = wake;
        false
    }

    /// Gives the clock a function that returns until when the threads of one generator sleep by this clock: the earliest of these
    /// moments, a moment that has come if one of the threads is at work, and [`Moment::NEVER`] if none sleeps until a moment.
    /// Called once for each generator, if [`wake_on_move`](Self::wake_on_move) has returned `true`.
    ///
    /// A clock that is moved by hand can so be moved from one wake-up to the next: see [`ManualClock::pass`]. The function takes
    /// mutexes of the generator, but does not block for long. Call it without holding a mutex that [`now`](Self::now) takes.
    ///
    /// The default ignores it.
    ///
    /// [`ManualClock::pass`]: https://docs.rs/redis-dlock/latest/redis_dlock/struct.ManualClock.html#method.pass
    fn tell_next_wake(&self, next_wake: Weak<dyn Fn() -> Moment + Send + Sync>) {
        let _ = next_wake;
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
#[path = "../tests/white_box/clock.rs"]
mod tests;
