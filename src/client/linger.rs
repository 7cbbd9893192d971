//! Lingering tenures: kept for the next thread of this process when a hold ends and nobody waits.

use crate::client::core::Core;
use crate::client::turn::Turn;
use crate::clock::Moment;
use crate::config::DLockConfig;
use crate::error::LossCause;
use crate::event::HoldEnd;
use crate::log;
use crate::state::key::Key;
use crate::state::machine::{Phase, State};
use crate::state::owner::current_thread;
use crate::state::tenure::Tenure;
use crate::sync::{MutexGuard, mutant};
use std::sync::Arc;

/// What an arriving thread gets from a lingering tenure.
pub(crate) enum Lingering {
    /// No tenure lingers, or others want it.
    No,
    /// The calling thread has the next hold.
    Taken,
    /// Its deadline has passed. The caller must release it, and has the turn to ask.
    Over(Box<Tenure>),
}

impl Core {
    /// Keeps the tenure for the next thread to arrive, if the tenure may linger. Returns whether it does.
    pub(super) fn linger(&self, key: &Arc<Key>, mut state: MutexGuard<'_, State>, now: Moment) -> bool {
        match &state.phase {
            Phase::Held(tenure) if tenure.may_linger(self.subscription.hears(key)) && !tenure.needs_numbers() => {}
            _ => return false,
        }
        if self.retries.start().is_err() {
            return false;
        }
        let Phase::Held(mut tenure) = std::mem::replace(&mut state.phase, Phase::Idle) else { return false };
        tenure.hold_ended();
        let queued = self.events.queue_released(&tenure, key.hold.token(), now, HoldEnd::Lingers);
        let until = now + tenure.settings.linger();
        if !std::mem::replace(&mut tenure.watched, true) && !mutant!(LingersUnwatched) {
            // Not again for each hold: the retry thread checks when this linger would end, and then considers any
            // later one.
            self.retries.ask_at(key, until);
        }
        state.phase = Phase::Lingering { tenure, until };
        key.hold.end();
        let ended = std::mem::take(&mut state.watchers);
        drop(state);
        drop(ended);
        queued.finish();
        true
    }

    /// Takes up a lingering tenure for the calling thread.
    pub(crate) fn take_up(&self, key: &Arc<Key>, state: &mut State, settings: &DLockConfig) -> Lingering {
        let Phase::Lingering { tenure, .. } = &mut state.phase else { return Lingering::No };
        let now = self.clock.now();
        let is_over = now >= tenure.deadline();
        if !is_over && (tenure.is_contended() && !mutant!(TakesUpRecalled) || !tenure.tokens().advance()) {
            return Lingering::No;
        }
        let lingering = std::mem::replace(&mut state.phase, Phase::Asking { turn: None, about: None });
        let Phase::Lingering { mut tenure, .. } = lingering else { return Lingering::No };
        if is_over {
            self.renewals.forget(key);
            return Lingering::Over(Box::new(tenure));
        }
        tenure.kept_on = true;
        tenure.hold_begins(now);
        if tenure.settings.max_hold().is_some() {
            // The hold may reach its limit before the lease thread would check.
            self.renewals.put(key, &tenure);
        }
        key.hold.begin(current_thread(), settings.reentry(), tenure.token(), tenure.valid_until());
        state.phase = Phase::Held(tenure);
        Lingering::Taken
    }

    /// Ends the lingering of a tenure if its time is over, others want it, or `at_once` is set. The caller must
    /// release the returned tenure before it drops the turn. Call it for a key that was taken out of the retry
    /// thread's schedule.
    pub(crate) fn end_linger(&self, key: &Arc<Key>, at_once: bool) -> Option<(Turn<'_>, Tenure)> {
        let mut state = key.state();
        let is_wanted = !state.queue.is_empty();
        match &mut state.phase {
            Phase::Lingering { tenure, until } => {
                if !at_once && !is_wanted && self.clock.now() < *until && !tenure.is_contended() {
                    self.retries.ask_at(key, *until);
                    return None;
                }
            }
            Phase::Held(tenure) => {
                tenure.watched = false;
                return None;
            }
            _ => return None,
        }
        let mut tenure = self.leave_lingering(key, &mut state, Phase::Releasing { ended: None, about: None })?;
        if !at_once {
            state.tenure_ends(&mut tenure, self.clock.now());
        }
        Some((Turn::of(self, key), tenure))
    }

    /// Ends a lingering tenure that was lost. There is no holder to tell, and the first waiter asks the store.
    pub(crate) fn lose_lingering(&self, key: &Arc<Key>, mut state: MutexGuard<'_, State>, cause: &LossCause) {
        let left = self.leave_lingering(key, &mut state, Phase::Asking { turn: None, about: None });
        drop(state);
        if let Some(tenure) = left {
            log::debug!(LEASE, "lock {:?}: lost while nobody held it: {cause}", key.name);
            self.release_later(&key.name, &tenure);
            drop(Turn::of(self, key));
        }
    }

    pub(super) fn leave_lingering(&self, key: &Key, state: &mut State, next: Phase) -> Option<Tenure> {
        if !matches!(state.phase, Phase::Lingering { .. }) {
            return None;
        }
        self.renewals.forget(key);
        match std::mem::replace(&mut state.phase, next) {
            Phase::Lingering { tenure, .. } => Some(tenure),
            _ => None,
        }
    }
}
