//! The turn to ask the store for a key: which thread has it, how it ends, and what the retry thread does with it. Also the request of a
//! turn, and the meaning of its reply.

use crate::client::core::Core;
use crate::client::twin;
use crate::clock::Moment;
use crate::config::DLockConfig;
use crate::error::{BackendFailure, Error, LossCause};
use crate::log;
use crate::port::{AcquireOutcome, Busy, Claim, Grant, Note, Outcome, PollOutcome, Request};
use crate::state::key::Key;
use crate::state::locker::ClientId;
use crate::state::machine::{Phase, State};
use crate::state::tenure::{Tenure, Unsettled};
use crate::sync::MutexGuard;
use crate::timing;
use std::sync::Arc;

/// The right to leave `Asking` or `Releasing`. When it is dropped, the turn goes to the first waiter. So no code path, not even a panic of
/// a store, leaves a key that threads wait for and no thread asks for.
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

    /// Takes the turn of the retry thread if threads wait for the key, and returns what to ask.
    pub(crate) fn of_waiters(core: &'c Core, key: &Arc<Key>) -> Option<(Self, Question)> {
        let mut state = key.state.lock();
        let settings = Arc::clone(&state.queue.front()?.settings);
        let Phase::Waiting { unsettled } = &mut state.phase else { return None };
        let question = match unsettled.take() {
            Some(unsettled) => Question::again(unsettled),
            None => Question::fresh(core.next_locker(&settings), settings, core.subscription.hears(core, key)),
        };
        state.phase = Phase::Asking { turn: None, about: None };
        state.ask_about(question.locker());
        Some((Self::of(core, key), question))
    }

    /// Ends the lingering of a tenure if its time is over, others want it, or `at_once` is set. The caller must
    /// release the returned tenure before it drops the turn. Call it for a key that was taken out of the retry
    /// thread's schedule.
    pub(crate) fn of_lingering(core: &'c Core, key: &Arc<Key>, at_once: bool) -> Option<(Self, Tenure)> {
        let now = core.clock.now();
        let mut state = key.state.lock();
        let is_wanted = !state.queue.is_empty();
        match &mut state.phase {
            Phase::Lingering { tenure, until } => {
                if !at_once && !is_wanted && now < *until && !tenure.is_contended() {
                    core.retries.ask_at(key, *until);
                    return None;
                }
            }
            Phase::Held(tenure) => {
                tenure.watched = false;
                return None;
            }
            _ => return None,
        }
        if !at_once {
            state.decide_gap(now);
        }
        Self::leave_lingering(core, key, &mut state, Phase::Releasing { ended: None, about: None })
    }

    /// Ends a lingering tenure that was lost. There is no holder to tell, and the first waiter asks the store.
    pub(crate) fn lose_lingering(core: &'c Core, key: &Arc<Key>, mut state: MutexGuard<'_, State>, cause: &LossCause) {
        let left = Self::leave_lingering(core, key, &mut state, Phase::Asking { turn: None, about: None });
        drop(state);
        if let Some((turn, tenure)) = left {
            log::debug!(LEASE, "lock {:?}: lost while nobody held it: {cause}", key.name);
            core.releases.release_later(core, &key.name, &tenure);
            drop(turn);
        }
    }

    /// Takes the turn, and the tenure, of a key whose tenure lingers. Drop the turn without the key's mutex.
    pub(super) fn leave_lingering(
        core: &'c Core,
        key: &Arc<Key>,
        state: &mut State,
        next: Phase,
    ) -> Option<(Self, Tenure)> {
        if !matches!(state.phase, Phase::Lingering { .. }) {
            return None;
        }
        core.renewals.forget(key);
        match std::mem::replace(&mut state.phase, next) {
            Phase::Lingering { tenure, .. } => Some((Self::of(core, key), tenure)),
            _ => None,
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
            let again = state.release_ends();
            let next = state.pass_turn();
            drop(state);
            for locker in orphan.into_iter().chain(again) {
                self.core.releases.give_up_grant(self.core, &self.key.name, &locker);
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
        let mut state = key.state.lock();
        match twin::without_given_up(core, &key.name, answer) {
            Answer::Acquired(tenure) => {
                let Some(waiter) = state.queue.pop_front() else {
                    state.phase = Phase::Releasing { ended: None, about: None };
                    drop(state);
                    return Some((self, tenure));
                };
                core.grant(&key, &mut state, tenure, (&waiter).into(), core.clock.now());
                self.end();
                drop(state);
                waiter.parked.notify_one();
            }
            // A refusal is for the first waiter, which asks again itself and gets the error as its own.
            answer if state.queue.is_empty() || answer.is_refusal(core) => {
                drop(state);
                core.releases.abandon(core, &key.name, answer.into_unsettled());
            }
            answer => self.wait_more(state, answer, sent_at, true),
        }
        None
    }

    /// Interprets the result of a request that was sent at `sent_at`. Abandons a locker that may still be on its way to the store.
    pub(crate) fn take_in(&self, question: Question, result: Result<Outcome, Error>, sent_at: Moment) -> Answer {
        let (core, key) = (self.core, &self.key);
        let fresh = if question.again { None } else { Some(Arc::clone(&question.about.locker)) };
        let heard = if question.wait { key.state.lock().heard() } else { None };
        match question.answer(result, sent_at, heard) {
            Answer::Busy { busy, unsettled } => {
                match twin::shown_by(core, &key.name, fresh.as_deref(), busy.holder.as_deref()) {
                    Some(error) => Answer::Failed { error, unsettled: None },
                    None => Answer::Busy { busy, unsettled },
                }
            }
            Answer::Gone { abandoned } => {
                core.releases.abandon(core, &key.name, abandoned);
                Answer::Gone { abandoned: None }
            }
            other => other,
        }
    }

    /// Enters `Waiting` after a reply that is neither a success nor final, which ends the turn, and schedules the next request of the
    /// retry thread: immediately if there is no place in the store's queue and the first waiter `may_ask`. The state is that of the key.
    pub(super) fn wait_more(self, mut guard: MutexGuard<'_, State>, answer: Answer, sent_at: Moment, may_ask: bool) {
        let (core, state) = (self.core, &mut *guard);
        let now = core.clock.pause_begins(sent_at);
        let mut warning = None;
        let (due, unsettled) = match twin::without_given_up(core, &self.key.name, answer) {
            Answer::Busy { busy, unsettled } => {
                // The client is outside the store's queue for one of two reasons: the inbox was not open yet (now it
                // is), or the store looked at the key only.
                let late = unsettled.is_none() && core.subscription.hears(core, &self.key) && may_ask;
                let left = busy.remaining.map(|left| left.saturating_add(core.limits.tick));
                let pause = state.busy_pause(left, unsettled.as_ref());
                let due = match late || state.about().is_some_and(|about| about.changed) {
                    true => now,
                    false => now + pause,
                };
                (due, unsettled)
            }
            Answer::Failed { error, unsettled } => {
                let is_refused = matches!(error, Error::Backend { failure: BackendFailure::Refused, .. });
                let text = format!("lock {:?}: {error}; threads still waiting: {}", self.key.name, state.queue.len());
                let failures = state.note_failure(error);
                warning = (failures == 1 || is_refused).then_some(text);
                (now + timing::retries(timing::longest_ask_retry(state.lease_wanted())).after(failures), unsettled)
            }
            Answer::Gone { .. } | Answer::Acquired(_) => (now, None),
        };
        let granted = match state.heard_meanwhile(unsettled.as_ref()) {
            // The grant came after the reply was read: it goes to the first waiter.
            Some((tenure, waiter)) => {
                core.grant(&self.key, state, tenure, (&waiter).into(), core.clock.now());
                Some(waiter)
            }
            None => {
                state.phase = Phase::Waiting { unsettled };
                core.retries.ask_at(&self.key, due);
                None
            }
        };
        self.end();
        drop(guard);
        if let Some(waiter) = granted {
            waiter.parked.notify_one();
        }
        if let Some(warning) = warning {
            log::warn!(ACQUIRE, "{warning}");
        }
    }
}

/// One request: the first for a fresh locker (acquire), or a later one for an unsettled locker (poll).
#[derive(Debug)]
pub(crate) struct Question {
    about: Unsettled,
    again: bool,
    /// Whether the store may put the locker in its queue.
    pub(crate) wait: bool,
}

/// What came of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The key is ours.
    Acquired(Tenure),
    /// Another tenure holds the key. Ask again when the lease ends, or at the next poll. An `unsettled` locker stands in the store's queue,
    /// or may still join it if no reply has said that it stands there.
    Busy { busy: Busy, unsettled: Option<Unsettled> },
    /// The store does not know the locker: ask again immediately with a fresh one. An `abandoned` locker may still be
    /// on its way to the store.
    Gone { abandoned: Option<Unsettled> },
    /// There was no reply, or the store refused.
    Failed { error: Error, unsettled: Option<Unsettled> },
}

impl Question {
    /// Creates the first request for a locker. Set `wait` if the inbox will receive a grant.
    pub(crate) fn fresh(locker: Arc<str>, settings: Arc<DLockConfig>, wait: bool) -> Self {
        let about = Unsettled { locker, settings, answered: false, counts_from: Moment::NEVER };
        Self { about, again: false, wait }
    }

    pub(crate) fn again(about: Unsettled) -> Self {
        Self { about, again: true, wait: true }
    }

    pub(crate) fn locker(&self) -> &Arc<str> {
        &self.about.locker
    }

    /// Returns the request to send to the store. `thread` is the name of the thread that asks, if it asks for itself.
    pub(crate) fn request<'a>(&'a self, key: &'a str, client: &'a ClientId, thread: Option<&'a str>) -> Request<'a> {
        let settings = &self.about.settings;
        let note = Note { why: settings.reason(), thread, host: Some(client.host()) };
        let (client, locker, lease) = (client.as_str(), &self.about.locker, settings.kept());
        let claim = Claim { key, client, locker, lease, poller_gap: None, note };
        match (self.again, self.wait) {
            (true, _) => Request::Poll(claim),
            (false, true) => Request::Join(claim),
            (false, false) => Request::Acquire(claim),
        }
    }

    /// Interprets the result. `sent_at` was read before the request was first written; `heard` is a grant that
    /// arrived before the reply.
    pub(crate) fn answer(mut self, result: Result<Outcome, Error>, sent_at: Moment, heard: Option<Grant>) -> Answer {
        if !self.again {
            self.about.counts_from = sent_at;
        }
        match (result, heard) {
            (
                Ok(Outcome::Acquire(AcquireOutcome::Acquired(grant)) | Outcome::Poll(PollOutcome::Acquired(grant))),
                _,
            ) => {
                self.about.counts_from = sent_at;
                Answer::Acquired(self.about.granted(grant))
            }
            // The store has undone what it did for the locker; a grant that was heard is undone with it.
            (Err(error @ Error::Backend { failure: BackendFailure::Unacknowledged, .. }), _) => {
                Answer::Failed { error, unsettled: None }
            }
            // The grant holds whatever the reply says. "Busy" was said before the grant. After "gone", the lease,
            // which counts from before the grant, is checked before anybody is told.
            (_, Some(grant)) => Answer::Acquired(self.about.heard(grant)),
            (Ok(Outcome::Acquire(AcquireOutcome::Busy(busy)) | Outcome::Poll(PollOutcome::Waiting(busy))), None) => {
                self.about.counts_from = sent_at;
                self.about.answered = true;
                Answer::Busy { busy, unsettled: self.wait.then_some(self.about) }
            }
            (Ok(Outcome::Acquire(AcquireOutcome::Unqueued { busy, under_way })), None) => {
                Answer::Busy { busy, unsettled: under_way.then_some(self.about) }
            }
            (Ok(Outcome::Poll(PollOutcome::Gone)), None) => {
                // The acquire whose reply was lost may still be on its way.
                let is_under_way = !self.about.answered;
                Answer::Gone { abandoned: is_under_way.then_some(self.about) }
            }
            (Ok(other), None) => Answer::Failed { error: other.misplaced(), unsettled: Some(self.about) },
            (Err(error), None) => {
                let unsettled = (self.again || error.is_unknown()).then_some(self.about);
                Answer::Failed { error, unsettled }
            }
        }
    }
}

impl Answer {
    /// Returns whether this is a failure that a blocking `lock()` does not wait out. Before the store's first reply
    /// every failure is one: a wrong address or password is then more likely than a server that is down.
    pub(super) fn is_refusal(&self, core: &Core) -> bool {
        match self {
            Self::Failed { error, .. } => !matches!(error, Error::Backend { .. }) || !core.processor.has_answered(),
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
