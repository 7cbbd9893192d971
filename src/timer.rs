//! The clock of a client, and who sleeps until a moment of it.
//!
//! By a clock that goes with real time, a thread sleeps for a time and looks again. A clock that is moved by hand wakes its sleepers
//! after each move ([`Clock::wake_on_move`]). A sleeper looks at the clock under a mutex, sleeps with that mutex, and is woken by a
//! thread that has had it: so no move falls between the look and the sleep.

use crate::clock::{Clock, Moment};
use crate::sync::{Mutex, mutant};
use crate::timing::LONGEST_SLEEP;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Who sleeps until a moment of the clock.
pub(crate) trait Sleeper: fmt::Debug + Send + Sync {
    /// Wakes it, so that it looks at the clock again. Takes the mutex under which it looked.
    fn wake(&self);
}

/// The clock of a client.
#[derive(Clone)]
pub(crate) struct Timer {
    clock: Arc<dyn Clock>,
    moved: Option<Moved>,
}

/// What belongs to a clock that is moved by hand.
#[derive(Clone)]
struct Moved {
    sleepers: Arc<Sleepers>,
    /// The clock has it weakly: for as long as a copy of the timer lives.
    _wake: Arc<dyn Fn() + Send + Sync>,
}

/// Those who sleep by a clock, or wait with a token.
#[derive(Default)]
pub(crate) struct Sleepers(Mutex<Vec<Arc<dyn Sleeper>>>);

impl Timer {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let sleepers = Arc::new(Sleepers::default());
        let woken = Arc::clone(&sleepers);
        let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || woken.wake());
        let weak: Weak<dyn Fn() + Send + Sync> = Arc::downgrade(&wake);
        let moved = clock.wake_on_move(weak).then_some(Moved { sleepers, _wake: wake });
        Self { clock, moved }
    }

    #[inline]
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// How long a sleeper sleeps until it looks again, at `now`, whether it is `at`.
    pub(crate) fn sleep(&self, at: Moment, now: Moment) -> Duration {
        if self.moved.is_some() { LONGEST_SLEEP } else { at.since(now).min(LONGEST_SLEEP) }
    }

    /// From when a pause counts that follows on a question: from now, but from its sending where the clock may have been moved
    /// since. The move may be what should have ended that pause, and perhaps there is no other.
    pub(crate) fn pause_begins(&self, sent_at: Moment) -> Moment {
        if self.moved.is_some() && !mutant!(PausesFromAnswer) { sent_at } else { self.now() }
    }

    /// Has somebody woken whenever the clock is moved, for as long as the registration lives. It looks at the clock after this.
    pub(crate) fn register(&self, sleeper: impl FnOnce() -> Arc<dyn Sleeper>) -> Option<Registration> {
        let moved = self.moved.as_ref().filter(|_| !mutant!(SleepsUnregistered))?;
        Some(moved.sleepers.register(sleeper()))
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.clock.fmt(f)
    }
}

impl Sleepers {
    /// Has somebody woken by [`wake`](Self::wake), for as long as the registration lives.
    pub(crate) fn register(self: &Arc<Self>, sleeper: Arc<dyn Sleeper>) -> Registration {
        self.0.lock().push(Arc::clone(&sleeper));
        Registration { among: Arc::clone(self), sleeper }
    }

    /// Wakes everybody.
    pub(crate) fn wake(&self) {
        let sleepers = self.0.lock().clone();
        for sleeper in sleepers {
            sleeper.wake();
        }
    }
}

impl fmt::Debug for Sleepers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An entry among the sleepers.
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

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Registration { .. }")
    }
}
