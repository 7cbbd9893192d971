//! How a thread waits in the local queue.

use super::patience::Patience;
use super::{Acquire, Progress};
use crate::client::events::Events;
use crate::clock::Moment;
use crate::error::Error;
use crate::event::How;
use crate::state::key::Key;
use crate::state::machine::{Phase, State};
use crate::state::queue::Waiter;
use crate::sync::MutexGuard;
use crate::timer::{AT_WORK, Sleeper};
use std::sync::Arc;
use std::time::Duration;

/// A thread that waits for a key.
#[derive(Debug)]
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
        let thread = self.waiter.thread;
        if self.key.hold.is_owned_by(thread) || state.is_turn_of(thread) { AT_WORK } else { self.waiter.parked_until() }
    }
}

impl Acquire<'_> {
    /// Waits in the local queue for the hold or for the turn to ask.
    pub(super) fn park(&mut self, waiter: &Arc<Waiter>) -> Result<Progress, Error> {
        let (core, key, limit) = (self.core, self.key, self.limit);
        let _counted = core.events.count_waiter(&waiter.settings);
        let sleeper = || Arc::new(Parked { key: Arc::clone(key), waiter: Arc::clone(waiter) }) as Arc<dyn Sleeper>;
        let mut patience = Patience::of(limit, &core.clock);
        // Register before the first check, so that no wake-up after it is missed.
        let _registered = (limit.register(sleeper), core.clock.register(sleeper));
        let (mut circle_at, mut long_wait) = (Events::circle_at(waiter), None);
        let mut state = key.state.lock();
        loop {
            if key.hold.is_owned_by(waiter.thread) {
                return Ok(Progress::Holds(How::Granted));
            }
            if state.is_turn_of(waiter.thread) {
                return Ok(Progress::HasTurn);
            }
            let now = core.clock.now();
            let in_vain = patience.as_mut().is_some_and(|patience| patience.is_in_vain(core, key, &state));
            if core.is_closed() || limit.is_over(now) || in_vain {
                return self.leave(waiter, state, now);
            }
            if let Some(at) = self.slow_at.take_if(|at| *at <= now) {
                drop(state);
                core.events.tell_slow(key, &waiter.settings, now.since(at), long_wait.as_ref());
                state = key.state.lock();
                continue;
            }
            if circle_at.take_if(|at| *at <= now).is_some() {
                drop(state);
                long_wait = Some(core.events.waits_long(key, waiter));
                state = key.state.lock();
                continue;
            }
            let until = [limit.until(), self.slow_at, circle_at].into_iter().flatten().min().unwrap_or(Moment::NEVER);
            let sleep = patience.as_ref().map_or(Duration::MAX, Patience::left).min(core.clock.sleep(until, now));
            waiter.park(&mut state, until, sleep);
        }
    }

    /// Leaves the local queue without the lock.
    fn leave(&self, waiter: &Waiter, mut state: MutexGuard<'_, State>, now: Moment) -> Result<Progress, Error> {
        let (core, key) = (self.core, self.key);
        let failure = if core.is_closed() { Some(Error::ShutDown) } else { state.failure.clone() };
        let (was_last, unsettled) = state.give_up(waiter.thread);
        if was_last {
            // Do this before the mutex is released: the next thread that waits adds an entry of its own.
            core.retries.forget(key);
        }
        if !was_last && state.failures == 0 && matches!(state.phase, Phase::Waiting { unsettled: None }) {
            // There may have been no time to ask for a place in the store's queue. The threads that still wait have that time.
            core.retries.ask_at(key, now);
        }
        drop(state);
        core.releases.abandon(core, &key.name, unsettled);
        self.limit.outcome(failure).map(|()| Progress::Ended)
    }
}
