//! One request of a turn, and what its reply means: for the thread that asks, and for those that wait behind it.

use crate::client::core::Core;
use crate::client::parts::Parts;
use crate::client::turn::Turn;
use crate::client::twin;
use crate::clock::Moment;
use crate::config::DLockConfig;
use crate::error::{BackendFailure, Error};
use crate::event::How;
use crate::log;
use crate::port::{AcquireOutcome, Busy, Claim, Note, Outcome, PollOutcome, Request};
use crate::state::key::Key;
use crate::state::locker::{self, ClientId};
use crate::state::machine::{Phase, State};
use crate::state::task::{Attempt, Recall, Task};
use crate::state::tenure::{Tenure, Unsettled};
use crate::sync::MutexGuard;
use crate::timing::{self, MOST_RECALLS, RECALL, RECALL_TRIPS};
use std::sync::Arc;

/// One request: the first for a fresh locker (acquire), or a later one for an unsettled locker (poll).
pub(crate) struct Question {
    pub(super) about: Unsettled,
    again: bool,
    /// Whether the store may put the locker in its queue.
    pub(crate) wait: bool,
}

/// What came of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The key is ours.
    Acquired(Box<Tenure>),
    /// Another tenure holds the key. Ask again when the lease ends, or at the next poll. An `unsettled` locker stands in the store's queue,
    /// or may still join it if no reply has said that it stands there.
    Busy { busy: Busy, unsettled: Option<Unsettled> },
    /// The store does not know the locker: ask again immediately with a fresh one.
    Gone,
    /// There was no reply, or the store refused.
    Failed { error: Error, unsettled: Option<Unsettled> },
}

impl Question {
    /// Creates the first request for a locker. Set `wait` if the inbox will receive a grant.
    pub(crate) fn fresh(locker: Arc<str>, settings: Arc<DLockConfig>, wait: bool) -> Self {
        let about = Unsettled { locker, settings, answered: false, counts_from: Moment::NEVER };
        Self { about, again: false, wait }
    }

    /// Takes the turn of the retry thread if threads wait for the key, and returns what to ask.
    pub(crate) fn of_waiters<'c>(parts: &'c Parts, key: &Arc<Key>) -> Option<(Turn<'c>, Self)> {
        let mut state = key.state.lock();
        let settings = Arc::clone(&state.queue.front()?.settings);
        let wait = match state.first_task().inspect(|task| task.note_asked()) {
            Some(task) if task.is_one_attempt => matches!(task.attempt().recall, Recall::Until(_)),
            _ => parts.subscription.hears(&parts.core, key),
        };
        let Phase::Waiting { unsettled } = &mut state.phase else { return None };
        let question = match unsettled.take() {
            Some(unsettled) => Self::again(unsettled),
            None => Self::fresh(parts.core.next_locker(&settings), settings, wait),
        };
        state.phase = Phase::Asking { turn: None, about: None };
        state.ask_about(&question.about.locker);
        Some((Turn::of(parts, key), question))
    }

    pub(crate) fn again(about: Unsettled) -> Self {
        Self { about, again: true, wait: true }
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

    /// Interprets the result. `sent_at` was read before the request was first written. Abandons a locker that may still be on its way to the
    /// store.
    pub(crate) fn take_in(mut self, turn: &Turn<'_>, result: Result<Outcome, Error>, sent_at: Moment) -> Answer {
        let (parts, key) = (turn.parts, &turn.key);
        if !self.again {
            self.about.counts_from = sent_at;
        }
        // A grant that arrived before the reply.
        let heard = if self.wait { key.state.lock().heard() } else { None };
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
                let keeps = self.wait;
                self.busy(parts, &key.name, busy, keeps)
            }
            (Ok(Outcome::Acquire(AcquireOutcome::Unqueued { busy, under_way })), None) => {
                self.busy(parts, &key.name, busy, under_way)
            }
            (Ok(Outcome::Poll(PollOutcome::Gone)), None) => {
                // The acquire whose reply was lost may still be on its way.
                let is_under_way = !self.about.answered;
                parts.retries.abandon(&key.name, is_under_way.then_some(self.about));
                Answer::Gone
            }
            (Ok(other), None) => Answer::Failed { error: other.misplaced(), unsettled: Some(self.about) },
            (Err(error), None) => {
                let unsettled = (self.again || error.is_unknown()).then_some(self.about);
                Answer::Failed { error, unsettled }
            }
        }
    }

    /// Returns that another tenure has the key, unless the holder shows that another client has this client's identity. `keeps` says whether
    /// the locker is still to be asked about.
    fn busy(self, parts: &Parts, key: &str, busy: Busy, keeps: bool) -> Answer {
        let fresh = (!self.again).then_some(&*self.about.locker);
        match twin::shown_by(parts, key, fresh, busy.holder.as_deref()) {
            Some(error) => Answer::Failed { error, unsettled: None },
            None => Answer::Busy { busy, unsettled: keeps.then_some(self.about) },
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

    /// Ends the retry thread's turn, whose request was sent at `sent_at`. Returns a tenure that was granted after
    /// every waiter had given up: release it before its turn is dropped.
    pub(crate) fn end_retry<'c>(self, turn: Turn<'c>, sent_at: Moment) -> Option<(Turn<'c>, Box<Tenure>)> {
        let (parts, key) = (turn.parts, Arc::clone(&turn.key));
        let mut state = key.state.lock();
        match self.without_given_up(parts, &key.name) {
            Answer::Acquired(tenure) => {
                let Some(waiter) = state.queue.pop_front() else {
                    state.phase = Phase::Releasing { ended: None, about: None };
                    drop(state);
                    return Some((turn, tenure));
                };
                if let Some(task) = &waiter.task {
                    task.note_granted(if state.has_asked() { How::Granted } else { How::Free });
                }
                parts.renewals.grant(&key, &mut state, tenure, (&waiter).into(), parts.core.clock.now());
                turn.end();
                drop(state);
                waiter.wake();
            }
            // A refusal is for the first waiter. A thread asks again itself, and gets the error as its own.
            answer if state.queue.is_empty() || answer.is_refusal(&parts.core) => {
                let refused = match &answer {
                    // One that came after the request was sent is asked for next.
                    Answer::Failed { error, .. } if state.first_task().is_some_and(Task::was_asked) => {
                        state.end_first(Err(error.clone()))
                    }
                    _ => None,
                };
                drop(state);
                parts.retries.abandon(&key.name, answer.into_unsettled());
                drop(turn);
                refused.iter().for_each(|waiter| parts.dismiss(waiter));
            }
            answer if state.first_task().is_some_and(|task| task.is_one_attempt) => {
                answer.go_on_with_attempt(turn, state, sent_at);
            }
            answer => {
                let has_task = state.first_task().is_some();
                answer.wait_more(turn, state, sent_at, true);
                if has_task {
                    // A task that arrives leaves this to the first answer, which may be the grant.
                    parts.subscription.listen(&parts.core);
                }
            }
        }
        None
    }

    /// Goes on with the single attempt of a task, which is the first waiter, or ends it. The table in
    /// [`steps`](crate::client::acquire) says what comes after each answer. Here each step is a turn of the retry thread.
    fn go_on_with_attempt(self, turn: Turn<'_>, mut state: MutexGuard<'_, State>, sent_at: Moment) {
        let (parts, key) = (turn.parts, Arc::clone(&turn.key));
        let Some(task) = state.first_task() else { return };
        let mut attempt = task.attempt();
        if let Some(at) = self.repeats(parts, &state, &mut attempt, sent_at) {
            task.set_attempt(attempt);
            return enter_waiting(turn, state, self.into_unsettled(), at);
        }
        let is_busy = attempt.recall != Recall::None;
        let end = match &self {
            Self::Failed { error: Error::Backend { failure, .. }, .. }
                if is_busy && *failure != BackendFailure::Unacknowledged =>
            {
                Ok(())
            }
            Self::Failed { error, .. } => Err(error.clone()),
            Self::Gone if !is_busy => attempt.unanswered.map_or(Ok(()), Err),
            Self::Gone | Self::Busy { .. } | Self::Acquired(_) => Ok(()),
        };
        let waiter = state.end_first(end);
        drop(state);
        parts.retries.abandon(&key.name, self.into_unsettled());
        drop(turn);
        waiter.iter().for_each(|waiter| parts.dismiss(waiter));
    }

    /// Returns when to ask again for a single attempt, if it is to be asked again after this answer.
    fn repeats(&self, parts: &Parts, state: &State, attempt: &mut Attempt, sent_at: Moment) -> Option<Moment> {
        let now = parts.core.clock.now();
        match self {
            // An acquire without a reply is settled once.
            Self::Failed { error, unsettled: Some(_) } if !attempt.was_repeated && error.is_unknown() => {
                (attempt.was_repeated, attempt.unanswered) = (true, Some(error.clone()));
                Some(now)
            }
            Self::Gone if matches!(attempt.recall, Recall::Until(_)) => {
                attempt.recall = Recall::Over;
                Some(now)
            }
            Self::Busy { busy, .. } => {
                let holder = busy.holder.as_deref()?;
                if !attempt.was_repeated && state.released.as_deref() == Some(holder) {
                    // The request has overtaken the release.
                    attempt.was_repeated = true;
                    return Some(now);
                }
                let may_recall = parts.core.processor.queue().is_some() && locker::may_linger(holder);
                match attempt.recall {
                    Recall::None if may_recall => {
                        let lasts = RECALL.max(now.since(sent_at).saturating_mul(RECALL_TRIPS));
                        attempt.recall = Recall::Until(now + lasts);
                        Some(now)
                    }
                    Recall::Until(until) if may_recall && now < until => Some(until.min(now + RECALL / MOST_RECALLS)),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Enters `Waiting` after a reply that is neither a success nor final, which ends the turn, and schedules the next request of the
    /// retry thread: immediately if there is no place in the store's queue and the first waiter `may_ask`. The state is that of the key.
    pub(super) fn wait_more(self, turn: Turn<'_>, mut guard: MutexGuard<'_, State>, sent_at: Moment, may_ask: bool) {
        let (parts, key, state) = (turn.parts, &turn.key, &mut *guard);
        let now = parts.core.clock.pause_begins(sent_at);
        let mut warning = None;
        let (due, unsettled) = match self.without_given_up(parts, &key.name) {
            Answer::Busy { busy, unsettled } => {
                // The client is outside the store's queue for one of two reasons: the inbox was not open yet (now it
                // is), or the store looked at the key only.
                let late = unsettled.is_none() && parts.subscription.hears(&parts.core, key) && may_ask;
                let left = busy.remaining.map(|left| left.saturating_add(parts.core.limits.tick));
                let pause = state.busy_pause(left, unsettled.as_ref());
                let due = match late || state.about().is_some_and(|about| about.changed) {
                    true => now,
                    false => now + pause,
                };
                (due, unsettled)
            }
            Answer::Failed { error, unsettled } => {
                let is_refused = matches!(error, Error::Backend { failure: BackendFailure::Refused, .. });
                let text = format!("lock {:?}: {error}; threads still waiting: {}", key.name, state.queue.len());
                let failures = state.note_failure(error);
                warning = (failures == 1 || is_refused).then_some(text);
                (now + timing::retries(timing::longest_ask_retry(state.lease_wanted())).after(failures), unsettled)
            }
            Answer::Gone | Answer::Acquired(_) => (now, None),
        };
        enter_waiting(turn, guard, unsettled, due);
        if let Some(warning) = warning {
            log::warn!(ACQUIRE, "{warning}");
        }
    }

    /// Removes what was asked for under an identity that this client has given up since then. The [twin](super::twin) may have that, too, so
    /// it is neither taken nor released. Call it with the key's mutex held: then whoever has met the twin has seen the key before, or will see
    /// what the answer has changed.
    fn without_given_up(self, parts: &Parts, key: &str) -> Self {
        match self {
            Self::Acquired(tenure) if !parts.core.is_ours(&tenure.locker) => {
                Self::Failed { error: twin::meet(parts, key, &tenure.locker), unsettled: None }
            }
            Self::Busy { busy, unsettled } => {
                Self::Busy { busy, unsettled: unsettled.filter(|unsettled| parts.core.is_ours(&unsettled.locker)) }
            }
            Self::Failed { error, unsettled } => {
                Self::Failed { error, unsettled: unsettled.filter(|unsettled| parts.core.is_ours(&unsettled.locker)) }
            }
            other => other,
        }
    }

    pub(super) fn into_unsettled(self) -> Option<Unsettled> {
        match self {
            Self::Busy { unsettled, .. } | Self::Failed { unsettled, .. } => unsettled,
            Self::Gone | Self::Acquired(_) => None,
        }
    }
}

/// Enters `Waiting`, which ends the turn. The retry thread asks next when that is due. If a grant has come since the reply was read, it goes to
/// the first waiter instead.
fn enter_waiting(turn: Turn<'_>, mut state: MutexGuard<'_, State>, unsettled: Option<Unsettled>, due: Moment) {
    let (parts, key) = (turn.parts, &turn.key);
    let granted = match state.heard_meanwhile(unsettled.as_ref()) {
        Some((tenure, waiter)) => {
            parts.renewals.grant(key, &mut state, tenure, (&waiter).into(), parts.core.clock.now());
            Some(waiter)
        }
        None => {
            state.phase = Phase::Waiting { unsettled };
            parts.retries.ask_at(key, due);
            None
        }
    };
    turn.end();
    drop(state);
    if let Some(waiter) = granted {
        waiter.wake();
    }
}
