//! Local time: a monotonic clock that includes the time in suspend, and that tests can replace; and the threads that sleep until a moment of
//! it.
//!
//! A lease keeps running down while this machine sleeps. A clock that stops during suspend (`CLOCK_MONOTONIC`, which
//! [`std::time::Instant`] reads on Linux) would let a holder believe in a lease that ended on the server long ago.
//!
//! A client reads its clock through a `Timer`, which has the list of its sleepers. On a clock that follows real time, a thread sleeps for the
//! time that is left and then reads the clock again. A clock that is moved by hand wakes its sleepers after each move
//! ([`Clock::wake_on_move`]). A sleeper reads the clock while it holds a mutex, and gives the mutex up only by going to sleep. The waking
//! thread takes the same mutex first. So no move can fall between the reading and the sleep.

#[cfg(any(test, feature = "test-util"))]
mod manual;

use crate::sync::Mutex;
use crate::timing::LONGEST_SLEEP;
use std::fmt;
use std::ops::Add;
use std::sync::{Arc, Weak};
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
/// The wall clock is not such a source, because it may step. No reading ever leaves the process: the store alone counts down the leases, and a client
/// only compares its own readings with one another.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// Reads the clock. Does not block, and does not panic: a thread of the generator that reads the clock would end, and leases would no longer be
    /// extended.
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

/// A thread that sleeps until a moment of the clock.
pub(crate) trait Sleeper: Send + Sync {
    /// Wakes the sleeper, so that it reads the clock again. Takes the mutex under which the sleeper read it.
    fn wake(&self);

    /// Returns until when it sleeps: [`Moment::NEVER`] if it waits for something else than a moment, [`AT_WORK`] if it does not sleep.
    fn sleeps_until(&self) -> Moment;
}

/// The moment until which a thread sleeps that does not sleep: one that has come on every clock.
pub(crate) const AT_WORK: Moment = Moment::from_nanos(0);

/// The clock of a client.
#[derive(Clone)]
pub(crate) struct Timer {
    clock: Arc<dyn Clock>,
    moved: Option<Moved>,
}

/// What a timer needs for a clock that is moved by hand.
#[derive(Clone)]
struct Moved {
    sleepers: Arc<Sleepers>,
    /// The clock has weak pointers to these functions, which work for as long as a copy of the timer lives.
    _wake: Arc<dyn Fn() + Send + Sync>,
    _next_wake: Arc<dyn Fn() -> Moment + Send + Sync>,
}

/// The threads that sleep by a clock, or wait with a cancel token.
#[derive(Default)]
pub(crate) struct Sleepers(Mutex<Vec<Arc<dyn Sleeper>>>);

impl Timer {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let sleepers = Arc::new(Sleepers::default());
        let woken = Arc::clone(&sleepers);
        let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || woken.wake());
        let weak: Weak<dyn Fn() + Send + Sync> = Arc::downgrade(&wake);
        let moved = clock.wake_on_move(weak).then(|| {
            let asked = Arc::clone(&sleepers);
            let next_wake: Arc<dyn Fn() -> Moment + Send + Sync> = Arc::new(move || asked.next_wake());
            let weak: Weak<dyn Fn() -> Moment + Send + Sync> = Arc::downgrade(&next_wake);
            clock.tell_next_wake(weak);
            Moved { sleepers, _wake: wake, _next_wake: next_wake }
        });
        Self { clock, moved }
    }

    #[inline]
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Returns whether the clock is moved by hand, so that it may stand still.
    pub(crate) fn is_moved_by_hand(&self) -> bool {
        self.moved.is_some()
    }

    /// Returns how long a sleeper sleeps, from `now` on, before it checks again whether the moment `at` has come.
    pub(crate) fn sleep(&self, at: Moment, now: Moment) -> Duration {
        if self.moved.is_some() { LONGEST_SLEEP } else { at.since(now).min(LONGEST_SLEEP) }
    }

    /// Returns the moment from which the pause after a question counts: now, or, for a clock that is moved by hand, when the
    /// question was sent. Such a clock may have been moved since then. That move may be the one that should end the pause, and
    /// there may be no other.
    pub(crate) fn pause_begins(&self, sent_at: Moment) -> Moment {
        if self.moved.is_some() { sent_at } else { self.now() }
    }

    /// Has a sleeper woken whenever the clock is moved, until the registration is dropped. The sleeper must read the clock
    /// after this call. `None` for a clock that follows real time.
    pub(crate) fn register(&self, sleeper: impl FnOnce() -> Arc<dyn Sleeper>) -> Option<Registration> {
        Some(self.moved.as_ref()?.sleepers.register(sleeper()))
    }
}

impl Sleepers {
    /// Has a sleeper woken by [`wake`](Self::wake), until the registration is dropped.
    pub(crate) fn register(self: &Arc<Self>, sleeper: Arc<dyn Sleeper>) -> Registration {
        self.0.lock().push(Arc::clone(&sleeper));
        Registration { among: Arc::clone(self), sleeper }
    }

    /// Wakes all sleepers.
    pub(crate) fn wake(&self) {
        let sleepers = self.0.lock().clone();
        for sleeper in sleepers {
            sleeper.wake();
        }
    }

    /// Returns the earliest moment until which one of them sleeps.
    fn next_wake(&self) -> Moment {
        let sleepers = self.0.lock().clone();
        sleepers.iter().map(|sleeper| sleeper.sleeps_until()).min().unwrap_or(Moment::NEVER)
    }
}

impl fmt::Debug for Sleepers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It does not wait for the mutex: a thread that is being debugged may call this.
        f.debug_tuple("Sleepers").field(&self.0.try_lock().map(|sleepers| sleepers.len())).finish()
    }
}

/// An entry in the list of sleepers; dropping it removes the entry.
#[must_use]
pub(crate) struct Registration {
    among: Arc<Sleepers>,
    sleeper: Arc<dyn Sleeper>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut sleepers = self.among.0.lock();
        let place = sleepers.iter().position(|other| Arc::ptr_eq(other, &self.sleeper));
        let removed = place.map(|place| sleepers.swap_remove(place));
        drop(sleepers);
        drop(removed);
    }
}

#[cfg(test)]
#[path = "../tests/white_box/clock.rs"]
mod tests;
