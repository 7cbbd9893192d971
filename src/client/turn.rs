//! The turn to ask the store for a key: who has it, how it ends, and what the retry thread does with it.

use crate::backoff::Backoff;
use crate::client::core::Core;
use crate::client::question::{Answer, Question};
use crate::client::twin;
use crate::clock::Moment;
use crate::config::DEFAULT_LEASE;
use crate::error::{BackendFailure, Error};
use crate::log;
use crate::state::key::Key;
use crate::state::machine::{About, Phase, State};
use crate::state::queue::Waiter;
use crate::state::tenure::{Tenure, Unsettled};
use crate::store::processor::{Grant, Outcome};
use crate::sync::mutant;
use crate::timing;
use std::sync::Arc;
use std::time::Duration;

/// The right to leave `Asking` or `Releasing`. When it is dropped, the turn goes to the first waiter. So no code
/// path, not even a panic of a store, leaves a key that waiters want and nobody asks for.
#[derive(Debug)]
pub(crate) struct Turn<'c> {
    core: &'c Core,
    key: Arc<Key>,
    mine: bool,
}

impl<'c> Turn<'c> {
    /// Creates the turn for the thread that has set the phase.
    pub(crate) fn of(core: &'c Core, key: &Arc<Key>) -> Self {
        Self { core, key: Arc::clone(key), mine: true }
    }

    /// Consumes the turn without passing it on: the phase has changed, or another `Turn` takes its place.
    pub(crate) fn end(mut self) {
        self.mine = false;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.mine && !mutant!(DropsTurn) {
            let mut state = self.key.state();
            // The inbox has already delivered this grant and no thread will claim it: release it.
            let orphan = state.heard().and_then(|_| state.about().map(|about| Arc::clone(&about.locker)));
            let again = state.release_ends();
            let next = state.pass_turn();
            drop(state);
            for locker in orphan.into_iter().chain(again) {
                self.core.give_up_grant(&self.key.name, &locker);
            }
            if let Some(waiter) = next {
                waiter.parked.notify_one();
            }
        }
    }
}

impl Turn<'_> {
    pub(crate) fn key(&self) -> &Arc<Key> {
        &self.key
    }

    /// Ends the retry thread's turn, whose request was sent at `sent_at`. Returns a tenure that was granted after
    /// every waiter had given up: release it before this turn is dropped.
    pub(crate) fn end_retry(self, answer: Answer, sent_at: Moment) -> Option<(Self, Tenure)> {
        let (core, key) = (self.core, Arc::clone(&self.key));
        let mut state = key.state();
        match answer {
            Answer::Acquired(tenure) => {
                let Some(waiter) = state.queue.pop() else {
                    state.phase = Phase::Releasing { ended: None, about: None };
                    drop(state);
                    return Some((self, tenure)).filter(|_| !mutant!(KeepsUnwanted));
                };
                core.grant(&key, &mut state, tenure, (&waiter).into());
                self.end();
                drop(state);
                waiter.parked.notify_one();
            }
            // A refusal is for the first waiter, which asks again itself and gets the error as its own.
            answer if state.queue.is_empty() || answer.is_refusal(core) => {
                drop(state);
                core.abandon(&key.name, answer.into_unsettled());
            }
            answer => {
                let settled = core.wait_more(&key, &mut state, answer, sent_at, true);
                self.end();
                drop(state);
                settled.tell();
            }
        }
        None
    }
}

impl Core {
    /// Interprets the result of a request. Abandons a locker that may still be on its way to the store.
    pub(crate) fn take_in(
        &self,
        key: &Key,
        question: Question,
        result: Result<Outcome, Error>,
        sent_at: Moment,
        heard: Option<Grant>,
    ) -> Answer {
        let is_first = question.is_first();
        let locker = Arc::clone(question.locker());
        let mut answer = question.answer(result, sent_at, heard, &self.clock);
        if is_first {
            answer = twin::checked(self, key, &locker, answer);
        }
        if let Answer::Gone { abandoned } = &mut answer {
            self.abandon(&key.name, abandoned.take());
        }
        answer
    }

    /// Takes the retry thread's turn if somebody still waits.
    pub(crate) fn begin_retry(&self, key: &Arc<Key>) -> Option<(Turn<'_>, Question)> {
        let mut state = key.state();
        let settings = Arc::clone(&state.queue.head()?.settings);
        let Phase::Waiting { unsettled } = &mut state.phase else { return None };
        let question = match unsettled.take() {
            Some(unsettled) => Question::again(unsettled),
            None => Question::fresh(self.next_locker(&settings), settings, self.subscription.hears(key)),
        };
        state.phase = Phase::Asking { turn: None, about: None };
        state.ask_about(question.locker());
        Some((Turn::of(self, key), question))
    }

    /// Enters `Waiting` after a reply that is neither a success nor final, and schedules the next request of the
    /// retry thread: immediately if there is no place in the store's queue and the first waiter `may_ask`. Call
    /// [`tell`](AfterUnlock::tell) on the returned value after the mutex is released.
    pub(super) fn wait_more(
        &self,
        key: &Arc<Key>,
        state: &mut State,
        answer: Answer,
        sent_at: Moment,
        may_ask: bool,
    ) -> AfterUnlock {
        let now = self.clock.pause_begins(sent_at);
        let lease = state.queue.head().map_or(DEFAULT_LEASE, |head| head.settings.lease());
        let mut warning = None;
        let (due, unsettled) = match answer {
            Answer::Busy { busy, unsettled } => {
                // A place in the store's queue expires by the lease with which it was asked for. A thread with a
                // longer lease may have taken the place over from one that gave up.
                let lease = unsettled.as_ref().map_or(lease, |place| lease.min(place.settings.lease()));
                let pause = timing::ask_pause(lease, state.asked);
                let ends = busy.remaining.map_or(Duration::MAX, |left| left.saturating_add(self.limits.tick));
                state.asked = state.asked.saturating_add(1);
                state.failures = 0;
                state.failure = None;
                // The client is outside the store's queue for one of two reasons: the inbox was not open yet (now it
                // is), or the store looked at the key only.
                let late = unsettled.is_none() && self.subscription.hears(key) && may_ask;
                let changed = state.about().is_some_and(|about| about.changed);
                let due = match late || changed {
                    true if mutant!(WaitsUnqueued) => Moment::NEVER,
                    true => now,
                    false => now + pause.min(ends),
                };
                (due, unsettled)
            }
            Answer::Failed { error, unsettled } => {
                state.failures = state.failures.saturating_add(1);
                if state.failures == 1 || matches!(error, Error::Backend { failure: BackendFailure::Refused, .. }) {
                    warning =
                        Some(format!("lock {:?}: {error}; threads still waiting: {}", key.name, state.queue.len()));
                }
                state.failure = Some(error);
                (now + Backoff::capped(timing::longest_ask_retry(lease)).after(state.failures), unsettled)
            }
            Answer::Gone { .. } | Answer::Acquired(_) => (now, None),
        };
        if let (Some(unsettled), Some(About { locker, heard: Some(grant), .. })) = (&unsettled, state.about())
            && unsettled.locker == *locker
            && !mutant!(SettlesWithoutLook)
        {
            // The grant came after the reply was read: it goes to the first waiter.
            let tenure = unsettled.clone().heard(*grant);
            if let Some(waiter) = state.queue.pop() {
                self.grant(key, state, tenure, (&waiter).into());
                return AfterUnlock { warning, granted: Some(waiter) };
            }
        }
        state.phase = Phase::Waiting { unsettled };
        self.retries.ask_at(key, due);
        AfterUnlock { warning, granted: None }
    }
}

/// What to do after the mutex is released, when `Waiting` was entered.
#[must_use]
pub(super) struct AfterUnlock {
    warning: Option<String>,
    /// The thread to wake, because the lock was granted at the last moment.
    granted: Option<Arc<Waiter>>,
}

impl AfterUnlock {
    pub(super) fn tell(self) {
        if let Some(waiter) = self.granted {
            waiter.parked.notify_one();
        }
        if let Some(warning) = self.warning {
            log::warn!(ACQUIRE, "{warning}");
        }
    }
}

pub(crate) fn is_unknown(error: &Error) -> bool {
    matches!(error, Error::Backend { failure: BackendFailure::Unknown, .. })
}

impl Answer {
    /// Returns whether this is a failure that a blocking `lock()` does not wait out. Before the store's first reply
    /// every failure is one: a wrong address or password is then more likely than a server that is down.
    pub(super) fn is_refusal(&self, core: &Core) -> bool {
        match self {
            Self::Failed { error, .. } => {
                !matches!(error, Error::Backend { .. }) || !core.processor.status().has_answered
            }
            _ => false,
        }
    }

    pub(super) fn into_unsettled(self) -> Option<Unsettled> {
        match self {
            Self::Busy { unsettled, .. } | Self::Failed { unsettled, .. } => unsettled,
            Self::Gone { .. } | Self::Acquired(_) => None,
        }
    }
}
