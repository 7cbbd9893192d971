//! The clock of a client, and the threads that sleep until a moment of it.
//!
//! On a clock that follows real time, a thread sleeps for the time that is left and then reads the clock again. A clock that is
//! moved by hand wakes its sleepers after each move ([`Clock::wake_on_move`]). A sleeper reads the clock while it holds a
//! mutex, and gives the mutex up only by going to sleep. The waking thread takes the same mutex first. So no move can fall
//! between the reading and the sleep.

use crate::clock::{Clock, Moment};
use crate::sync::Mutex;
use crate::timing::LONGEST_SLEEP;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

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
