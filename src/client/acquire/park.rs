//! How a thread waits in the local queue.

use super::{Acquire, Progress};
use crate::client::events::Events;
use crate::client::parts::Parts;
use crate::client::turn::Turn;
use crate::client::wait_limit::WaitLimit;
use crate::clock::Moment;
use crate::error::Error;
use crate::event::How;
use crate::state::key::Key;
use crate::state::machine::{Phase, State, Waiter};
use crate::sync::MutexGuard;
use crate::timer::{AT_WORK, Sleeper, Timer};
use crate::timing::STORE_LOOK_PAUSES;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A thread that waits for a key.
struct Parked {
    key: Arc<Key>,
    waiter: Arc<Waiter>,
}

impl Sleeper for Parked {
    fn wake(&self) {
        self.key.nudge(&self.waiter);
    }

    fn sleeps_until(&self) -> Moment {
        let state = self.key.state.lock();
        let owner = self.waiter.owner;
        if self.key.hold.is_owned_by(owner) || state.is_turn_of(owner) { AT_WORK } else { self.waiter.parked_until() }
    }
}

impl Acquire<'_> {
    /// Waits in the local queue for the hold or for the turn to ask.
    pub(super) fn park(&mut self, waiter: &Arc<Waiter>) -> Result<Progress, Error> {
        let (parts, key, limit) = (self.parts, self.key, self.limit);
        let _counted = parts.core.events.count_waiter(&waiter.settings);
        let sleeper = || Arc::new(Parked { key: Arc::clone(key), waiter: Arc::clone(waiter) }) as Arc<dyn Sleeper>;
        let mut patience = Patience::of(limit, &parts.core.clock);
        // Register before the first check, so that no wake-up after it is missed.
        let _registered = (limit.register(sleeper), parts.core.clock.register(sleeper));
        let (mut circle_at, mut long_wait) = (Events::circle_at(waiter), None);
        let mut state = key.state.lock();
        loop {
            if key.hold.is_owned_by(waiter.owner) {
                return Ok(Progress::Holds(How::Granted));
            }
            if state.is_turn_of(waiter.owner) {
                return Ok(Progress::HasTurn);
            }
            let now = parts.core.clock.now();
            let in_vain = patience.as_mut().is_some_and(|patience| patience.is_in_vain(parts, key, &state));
            if parts.core.activity.is_closed() || limit.is_over(now) || in_vain {
                return self.leave(waiter, state);
            }
            if let Some(at) = self.slow_at.take_if(|at| *at <= now) {
                drop(state);
                parts.core.events.tell_slow(key, &waiter.settings, now.since(at), long_wait.as_ref());
                state = key.state.lock();
                continue;
            }
            if circle_at.take_if(|at| *at <= now).is_some() {
                drop(state);
                long_wait = Some(parts.core.events.waits_long(key, waiter));
                state = key.state.lock();
                continue;
            }
            let until = [limit.until, self.slow_at, circle_at].into_iter().flatten().min().unwrap_or(Moment::NEVER);
            let sleep = patience.as_ref().map_or(Duration::MAX, Patience::left).min(parts.core.clock.sleep(until, now));
            waiter.park(&mut state, until, sleep);
        }
    }

    /// Leaves the local queue without the lock.
    pub(super) fn leave(&self, waiter: &Waiter, mut state: MutexGuard<'_, State>) -> Result<Progress, Error> {
        let (parts, key) = (self.parts, self.key);
        let failure = if parts.core.activity.is_closed() { Some(Error::ShutDown) } else { state.failure.clone() };
        let unsettled = Turn::leave_queue(parts, key, &mut state, waiter.owner);
        drop(state);
        parts.retries.abandon(&key.name, unsettled);
        self.limit.outcome(failure).map(|()| Progress::Ended)
    }
}

/// The end, in real time, of a wait with a limit, for a clock that is moved by hand.
///
/// While such a clock stands still, no limit that counts by it ends. A test may want that for a wait for a lock that is held. But a store
/// answers in real time, so a wait for its answer must end in real time, too. If the store fails, a call whose limit has passed in real
/// time ends with the store's failure.
struct Patience {
    ends: Instant,
    pause: Duration,
}

impl Patience {
    /// Returns the end, in real time, of a wait with this limit. `None` without a limit, and for a clock that follows real time.
    fn of(limit: WaitLimit<'_>, clock: &Timer) -> Option<Self> {
        // The model of the threads has no real time.
        if cfg!(dlock_shuttle) || !clock.is_moved_by_hand() {
            return None;
        }
        let left = limit.until?.since(clock.now());
        let (shortest, longest) = STORE_LOOK_PAUSES;
        Some(Self { ends: Instant::now().checked_add(left)?, pause: left.clamp(shortest, longest) })
    }

    /// Returns how long to sleep before the next check.
    fn left(&self) -> Duration {
        self.ends.saturating_duration_since(Instant::now())
    }

    /// Returns whether the limit has passed in real time, and the last request to the store has failed. If the limit has passed and no
    /// request has failed, this makes the retry thread ask once more, because the clock that would start the next request stands still. The
    /// next check, after a pause, sees the answer.
    fn is_in_vain(&mut self, parts: &Parts, key: &Arc<Key>, state: &State) -> bool {
        if !self.left().is_zero() {
            return false;
        }
        if state.failure.is_none() && matches!(state.phase, Phase::Waiting { .. }) {
            parts.retries.ask_at(key, parts.core.clock.now());
        }
        self.ends = Instant::now() + self.pause;
        state.failure.is_some()
    }
}
