//! The turn to ask the store for a key: which thread has it, how a tenure that lingers becomes one, and how a turn ends. What is asked stands
//! in [`question`](super::question).

use crate::client::cleanup::Ending;
use crate::client::parts::Parts;
use crate::error::{Error, LossCause};
use crate::log;
use crate::port::{Outcome, Request};
use crate::state::key::Key;
use crate::state::machine::{AskedBy, Departure, NextTurn, Phase, State, Waiter};
use crate::state::tenure::{Tenure, Unsettled};
use crate::sync::MutexGuard;
use std::sync::Arc;
use std::time::Duration;

/// The right to leave `Asking` or `Releasing`. When it is dropped, the turn goes to the first waiter, or to the retry thread if that is a task.
/// So no code path, not even a panic of a store, leaves a key that somebody waits for and no thread asks for.
pub(crate) struct Turn<'c> {
    pub(super) parts: &'c Parts,
    pub(super) key: Arc<Key>,
    mine: bool,
}

impl<'c> Turn<'c> {
    /// Creates the turn for the thread that has set the phase.
    pub(crate) fn of(parts: &'c Parts, key: &Arc<Key>) -> Self {
        Self { parts, key: Arc::clone(key), mine: true }
    }

    /// Ends the lingering of a tenure if its time is over, others want it, or the client is closed. The caller must release the returned tenure
    /// before it drops the turn. Call it for a key that was taken out of the retry thread's schedule.
    pub(crate) fn of_lingering(parts: &'c Parts, key: &Arc<Key>) -> Option<(Self, Box<Tenure>)> {
        let now = parts.core.clock.now();
        let mut state = key.state.lock();
        let is_wanted = !state.queue.is_empty();
        match &mut state.phase {
            Phase::Lingering { tenure, until } => {
                let is_closed = parts.core.activity.is_closed();
                if !is_wanted && now < *until && !tenure.others.wait() && !is_closed {
                    parts.retries.ask_at(key, *until);
                    return None;
                }
            }
            Phase::Held(tenure) => {
                tenure.watched = false;
                return None;
            }
            _ => return None,
        }
        state.set_gap(now);
        Self::leave_lingering(parts, key, &mut state, Phase::Releasing { ended: None, about: None })
    }

    /// Ends a lingering tenure that was lost. There is no holder to tell, and the first waiter asks the store.
    pub(crate) fn lose_lingering(
        parts: &'c Parts,
        key: &Arc<Key>,
        mut state: MutexGuard<'_, State>,
        cause: &LossCause,
    ) {
        let left = Self::leave_lingering(parts, key, &mut state, Phase::Asking { by: AskedBy::Arriving, about: None });
        drop(state);
        if let Some((turn, tenure)) = left {
            log::debug!(LEASE, "lock {:?}: lost while nobody held it: {cause}", key.name);
            parts.retries.release_later(&key.name, &tenure);
            drop(turn);
        }
    }

    /// Takes the turn, and the tenure, of a key whose tenure lingers. Drop the turn without the key's mutex.
    pub(super) fn leave_lingering(
        parts: &'c Parts,
        key: &Arc<Key>,
        state: &mut State,
        next: Phase,
    ) -> Option<(Self, Box<Tenure>)> {
        if !matches!(state.phase, Phase::Lingering { .. }) {
            return None;
        }
        parts.renewals.forget(key);
        match std::mem::replace(&mut state.phase, next) {
            Phase::Lingering { tenure, .. } => Some((Self::of(parts, key), tenure)),
            _ => None,
        }
    }

    /// Releases tenures that no thread wants any more, and passes their turns on.
    pub(super) fn release_all(parts: &Parts, unwanted: Vec<(Turn<'_>, Box<Tenure>)>, limit: Duration) {
        let requests: Vec<_> = unwanted.iter().map(|(turn, tenure)| turn.release_of(tenure)).collect();
        let results = parts.core.batch(&requests, limit);
        drop(requests);
        for ((turn, tenure), result) in unwanted.into_iter().zip(results) {
            turn.released(&tenure, &result);
        }
    }

    /// Takes a waiter that gives up out of the queue. Returns a locker that the caller must abandon, without the key's mutex.
    pub(super) fn leave_queue(parts: &Parts, key: &Arc<Key>, state: &mut State, waiter: &Waiter) -> Option<Unsettled> {
        if let Departure::Idle { unsettled } = state.give_up(waiter) {
            // Do this before the mutex is released: the next one that waits adds an entry of its own.
            parts.retries.forget(key);
            return unsettled;
        }
        if state.failures == 0 && matches!(state.phase, Phase::Waiting { unsettled: None }) {
            // There may have been no time to ask for a place in the store's queue. Those that still wait have that time.
            parts.retries.ask_at(key, parts.core.clock.now());
        }
        None
    }

    /// Ends the waits of all tasks for a key with an error.
    pub(super) fn send_tasks_away(parts: &Parts, key: &Arc<Key>, error: &Error) {
        let mut state = key.state.lock();
        let (waiters, departure) = state.take_tasks();
        for task in waiters.iter().filter_map(|waiter| waiter.task.as_ref()) {
            task.end(Err(error.clone()));
        }
        let unsettled = match departure {
            Departure::Idle { unsettled } => {
                parts.retries.forget(key);
                unsettled
            }
            Departure::Stays => None,
        };
        if matches!(state.phase, Phase::Waiting { .. }) {
            // The threads that still wait have a request of their own.
            parts.retries.ask_at(key, parts.core.clock.now());
        }
        drop(state);
        parts.retries.abandon(&key.name, unsettled);
        for waiter in &waiters {
            parts.dismiss(waiter);
        }
    }

    pub(super) fn release_of<'a>(&'a self, tenure: &'a Tenure) -> Request<'a> {
        Request::Release(self.parts.core.ending(&self.key.name, tenure))
    }

    /// Leaves a tenure to the clean-up list if its release has failed.
    pub(super) fn released(&self, tenure: &Tenure, result: &Result<Outcome, Error>) {
        if result.is_err() {
            let ending = Ending::ReleaseUnanswered(tenure.deadline());
            self.parts.retries.cleanup.add(&self.key.name, &tenure.locker, tenure.store_time(), ending, None);
        }
    }

    /// Consumes the turn without passing it on: the phase has changed, or another `Turn` takes its place.
    pub(crate) fn end(mut self) {
        self.mine = false;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.mine {
            let mut state = self.key.state.lock();
            // The inbox has already delivered this grant and no thread will claim it: release it.
            let orphan = state.about().filter(|about| about.heard.is_some()).map(|about| Arc::clone(&about.locker));
            let again = state.take_release_to_repeat();
            let next = state.pass_turn();
            if let NextTurn::Client = next {
                self.parts.retries.ask_at(&self.key, self.parts.core.clock.now());
            }
            drop(state);
            for locker in orphan.into_iter().chain(again) {
                self.parts.retries.give_up_grant(&self.key.name, &locker);
            }
            if let NextTurn::Thread(waiter) = next {
                waiter.wake();
            }
        }
    }
}
