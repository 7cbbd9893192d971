//! Taking a turn to ask the store: by a waiting or arriving thread, or by the retry thread for the first that waits.

use crate::ask::{Answer, Question};
use crate::backoff::Backoff;
use crate::cancel::Patience;
use crate::client::Client;
use crate::clock::Moment;
use crate::config::{DEFAULT_LEASE, DLockConfig};
use crate::error::{BackendFailure, Error};
use crate::key::Key;
use crate::locker;
use crate::log;
use crate::owner::current_thread;
use crate::queue::Waiter;
use crate::recall::Recall;
use crate::state::{About, Phase, State};
use crate::sync::{mutant, thread};
use crate::tenure::{Tenure, Unsettled};
use crate::timing;
use std::sync::Arc;

use std::time::Duration;

/// The right to leave `Asking` or `Releasing`. Dropped, it goes to the first waiter; so no way out, not even a panic of
/// a store, leaves a key that nobody asks for.
#[derive(Debug)]
pub(crate) struct Turn<'c> {
    client: &'c Client,
    key: Arc<Key>,
    mine: bool,
}

impl<'c> Turn<'c> {
    /// For the thread that has set the phase.
    pub(crate) fn of(client: &'c Client, key: &Arc<Key>) -> Self {
        Self { client, key: Arc::clone(key), mine: true }
    }

    /// The turn has led to another phase.
    pub(crate) fn end(mut self) {
        self.mine = false;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.mine && !mutant!(DropsTurn) {
            let mut state = self.key.state();
            // Heard of, and not taken up: nobody will.
            let orphan = state.heard().and_then(|_| state.about().map(|about| Arc::clone(&about.locker)));
            let again = state.release_ends();
            let next = state.pass_turn();
            drop(state);
            for locker in orphan.into_iter().chain(again) {
                self.client.give_up_grant(&self.key.name, &locker);
            }
            if let Some(waiter) = next {
                waiter.parked.notify_one();
            }
        }
    }
}

/// What a turn to ask has led to.
pub(crate) enum Asked {
    /// The calling thread holds the lock.
    Got,
    /// The lock is busy and the caller does not wait.
    No,
    /// The caller stands in the queue.
    Queued(Arc<Waiter>),
}

impl Client {
    /// Asks the store, as the thread whose turn it is; afterwards the turn is somebody else's, or the hold is ours.
    pub(crate) fn ask(
        &self,
        key: &Arc<Key>,
        settings: &Arc<DLockConfig>,
        patience: &Patience<'_>,
    ) -> Result<Asked, Error> {
        let turn = Turn::of(self, key);
        let mut question = self.first_question(key, settings, patience);
        // Why the first question had no answer: it is asked what became of its locker, once at once.
        let mut unanswered = None;
        let mut recall: Option<Recall> = None;
        // Whether an answer said that the key is somebody else's. Then a question that fails for want of time is no error.
        let mut is_busy = false;
        let mut was_behind_release = false;
        loop {
            let sent_at = self.clock.now();
            let wait = question.wait;
            let limit = patience.limit(sent_at, self.processor.command_limit());
            let result = self.run(&question.request(&key.name), limit);
            let heard = if wait { key.state().heard() } else { None };
            match question.answer(&key.name, result, sent_at, heard, self) {
                Answer::Acquired(tenure) => {
                    self.note_trip(self.clock.now().since(sent_at));
                    self.grant(key, &mut key.state(), tenure, current_thread());
                    turn.end();
                    return Ok(Asked::Got);
                }
                Answer::Gone if recall.is_some() => question = self.new_question(key, settings, false),
                Answer::Gone if patience.is_one_attempt() || patience.is_over(self.clock.now()) => {
                    return patience.outcome(unanswered.filter(|_| !is_busy)).map(|()| Asked::No);
                }
                Answer::Gone => question = self.first_question(key, settings, patience),
                Answer::Failed { error, unsettled: Some(unsettled) }
                    if unanswered.is_none()
                        && is_unknown(&error)
                        && !self.is_closed()
                        && !patience.is_over(self.clock.now()) =>
                {
                    log::debug!(ACQUIRE, "lock {:?}: {error}; asking what became of it", key.name);
                    unanswered = Some(error);
                    question = Question::again(unsettled);
                    if mutant!(AsksAnewWithoutAnswer) {
                        question = self.first_question(key, settings, patience);
                    }
                    key.state().ask_about(question.locker());
                }
                Answer::Busy { unsettled: Some(unsettled), .. }
                    if !unsettled.answered && !is_busy && !patience.is_over(self.clock.now()) =>
                {
                    is_busy = true;
                    question = Question::again(unsettled);
                    key.state().ask_about(question.locker());
                }
                Answer::Failed { error: Error::Backend { .. }, unsettled }
                    if is_busy
                        && !self.is_closed()
                        && (patience.is_one_attempt() || patience.is_over(self.clock.now())) =>
                {
                    self.abandon(&key.name, unsettled);
                    return Ok(Asked::No);
                }
                // The store has looked at nothing but the key. Asked again, it gives a place in its queue, or the lease's end.
                Answer::Busy { unsettled: None, ref busy }
                    if (wait || busy.remaining.is_none())
                        && !is_busy
                        && patience.has_time_for_another(self.clock.now(), sent_at) =>
                {
                    is_busy = true;
                    question = self.first_question(key, settings, patience);
                }
                // The server did not know the script of the release before, so that this question overtook it. The release
                // was sent again before this answer was delivered: the next question comes behind it.
                Answer::Busy { busy, unsettled: None }
                    if patience.is_one_attempt()
                        && !std::mem::replace(&mut was_behind_release, true)
                        && key.state().released.as_deref() == Some(&*busy.holder) =>
                {
                    is_busy = true;
                    question = self.new_question(key, settings, false);
                }
                Answer::Busy { busy, unsettled: None }
                    if patience.is_one_attempt() && recall.is_none() && locker::may_linger(&busy.holder) =>
                {
                    let now = self.clock.now();
                    recall = Some(Recall::begin(now, now.since(sent_at)));
                    is_busy = true;
                    question = self.new_question(key, settings, true);
                }
                Answer::Busy { busy, unsettled: Some(unsettled) } if patience.is_one_attempt() => {
                    let pause = recall.as_mut().and_then(|recall| recall.pause(self.clock.now()));
                    match pause {
                        Some(pause) if locker::may_linger(&busy.holder) => {
                            thread::sleep(pause);
                            question = Question::again(unsettled);
                            key.state().ask_about(question.locker());
                        }
                        _ => {
                            self.abandon(&key.name, Some(unsettled));
                            return Ok(Asked::No);
                        }
                    }
                }
                answer if patience.is_one_attempt() || self.is_closed() || answer.is_refusal(self) => {
                    return self.refuse(key, answer, patience).map(|()| Asked::No);
                }
                answer => {
                    self.listen();
                    if let Err(error) = self.start_retry_thread() {
                        self.abandon(&key.name, answer.into_unsettled());
                        return Err(error);
                    }
                    let waiter = Waiter::new(current_thread(), Arc::clone(settings));
                    let mut state = key.state();
                    state.queue.push_back_to_head(Arc::clone(&waiter));
                    // No question can be answered in the time that is left. It is asked when this thread leaves, if others wait on.
                    let may_ask = patience.has_time_for_another(self.clock.now(), sent_at);
                    let settled = self.wait_more(key, &mut state, answer, sent_at, may_ask);
                    turn.end();
                    drop(state);
                    settled.tell();
                    return Ok(Asked::Queued(waiter));
                }
            }
        }
    }

    /// The first question about a fresh locker. Who waits stands in the store's queue, once the inbox is open to hear of
    /// a grant; whoever does not listen would be dropped from the queue as dead.
    fn first_question(&self, key: &Key, settings: &Arc<DLockConfig>, patience: &Patience<'_>) -> Question {
        self.new_question(key, settings, !patience.is_one_attempt() && self.is_listening())
    }

    fn new_question(&self, key: &Key, settings: &Arc<DLockConfig>, wait: bool) -> Question {
        let question = Question::fresh(self.next_locker(settings), Arc::clone(settings), wait);
        key.state().ask_about(question.locker());
        question
    }

    /// Ends a turn whose answer the asker does not wait on; the others get to know why there was none.
    fn refuse(&self, key: &Key, answer: Answer, patience: &Patience<'_>) -> Result<(), Error> {
        let outcome = match &answer {
            Answer::Failed { error, .. } => {
                // That the caller's own time was too short says nothing to others.
                if patience.until().is_none() {
                    key.state().failure = Some(error.clone());
                }
                Err(error.clone())
            }
            _ => Ok(()),
        };
        self.abandon(&key.name, answer.into_unsettled());
        if self.is_closed() { Err(Error::ShutDown) } else { outcome }
    }

    /// Settles in `Waiting` after an answer that is neither a success nor final, and tells the retry thread when to ask
    /// again: at once where there is no place in the store's queue, if the first waiter `may_ask`. Returns what the log should
    /// say, for when the mutex is released.
    fn wait_more(&self, key: &Arc<Key>, state: &mut State, answer: Answer, sent_at: Moment, may_ask: bool) -> Settled {
        let now = self.clock.pause_begins(sent_at);
        let lease = state.queue.head().map_or(DEFAULT_LEASE, |head| head.settings.lease());
        let mut warning = None;
        let (due, unsettled) = match answer {
            Answer::Busy { busy, unsettled } => {
                // The store's queue lives by the lease with which the place in it was asked for: a thread with a longer one
                // may have taken it over from one that gave up.
                let lease = unsettled.as_ref().map_or(lease, |place| lease.min(place.settings.lease()));
                let pause = timing::ask_pause(lease, state.asked);
                let ends = busy.remaining.map_or(Duration::MAX, |left| left.saturating_add(self.processor.tick()));
                state.asked = state.asked.saturating_add(1);
                state.failures = 0;
                state.failure = None;
                // Outside the store's queue only because the inbox was not open yet (now it is), or because the store looked at
                // nothing but the key.
                let late = unsettled.is_none() && self.is_listening() && may_ask;
                let due = match late {
                    true if mutant!(WaitsUnqueued) => Moment::NEVER,
                    true => now,
                    false => now + pause.min(ends),
                };
                (due, unsettled)
            }
            Answer::Failed { error, unsettled } => {
                state.failures = state.failures.saturating_add(1);
                if state.failures == 1 || matches!(error, Error::Backend { failure: BackendFailure::Refused, .. }) {
                    warning = Some(format!("lock {:?}: {error}; {} threads wait on", key.name, state.queue.len()));
                }
                state.failure = Some(error);
                (now + Backoff::capped(timing::longest_ask_retry(lease)).after(state.failures), unsettled)
            }
            Answer::Gone | Answer::Acquired(_) => (now, None),
        };
        if let (Some(unsettled), Some(About { locker, heard: Some(grant), .. })) = (&unsettled, state.about())
            && unsettled.locker == *locker
            && !mutant!(SettlesWithoutLook)
        {
            // The grant came after the answer was read: whoever is first in the queue has it.
            let tenure = unsettled.clone().granted(*grant);
            if let Some(waiter) = state.queue.pop() {
                self.grant(key, state, tenure, waiter.thread);
                return Settled { warning, granted: Some(waiter) };
            }
        }
        state.phase = Phase::Waiting { unsettled };
        self.retry_at(key, due);
        Settled { warning, granted: None }
    }

    /// The retry thread's turn: takes it if there is still somebody to ask for.
    pub(crate) fn begin_retry(&self, key: &Arc<Key>) -> Option<(Turn<'_>, Question)> {
        let mut state = key.state();
        let settings = Arc::clone(&state.queue.head()?.settings);
        let Phase::Waiting { unsettled } = &mut state.phase else { return None };
        let question = match unsettled.take() {
            Some(unsettled) => Question::again(unsettled),
            None => Question::fresh(self.next_locker(&settings), settings, self.is_listening()),
        };
        state.phase = Phase::Asking { turn: None, about: None };
        state.ask_about(question.locker());
        Some((Turn::of(self, key), question))
    }
}

impl Turn<'_> {
    pub(crate) fn key(&self) -> &Arc<Key> {
        &self.key
    }

    /// Ends the retry thread's turn, whose question was sent at `sent_at`. Returns a tenure that came after everybody had given up:
    /// release it before this turn is dropped.
    pub(crate) fn end_retry(self, answer: Answer, sent_at: Moment) -> Option<(Self, Tenure)> {
        let (client, key) = (self.client, Arc::clone(&self.key));
        let mut state = key.state();
        match answer {
            Answer::Acquired(tenure) => {
                let Some(waiter) = state.queue.pop() else {
                    state.phase = Phase::Releasing { ended: None, about: None };
                    drop(state);
                    return Some((self, tenure)).filter(|_| !mutant!(KeepsUnwanted));
                };
                client.grant(&key, &mut state, tenure, waiter.thread);
                self.end();
                drop(state);
                waiter.parked.notify_one();
            }
            // A refusal is for the first waiter: it asks for itself, and hears it itself.
            answer if state.queue.is_empty() || answer.is_refusal(client) => {
                drop(state);
                client.abandon(&key.name, answer.into_unsettled());
            }
            answer => {
                let settled = client.wait_more(&key, &mut state, answer, sent_at, true);
                self.end();
                drop(state);
                settled.tell();
            }
        }
        None
    }
}

/// What is to be done after settling in `Waiting`, when the mutex is released.
#[must_use]
struct Settled {
    warning: Option<String>,
    /// Who is to be woken, because the lock came at the last moment.
    granted: Option<Arc<Waiter>>,
}

impl Settled {
    fn tell(self) {
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
    /// Whether this is a failure that a blocking `lock()` does not wait out. Before the store's first answer that is
    /// every failure: then the address or the password is more likely wrong than the server down.
    fn is_refusal(&self, client: &Client) -> bool {
        match self {
            Self::Failed { error, .. } => !matches!(error, Error::Backend { .. }) || !client.processor.has_answered(),
            _ => false,
        }
    }

    fn into_unsettled(self) -> Option<Unsettled> {
        match self {
            Self::Busy { unsettled, .. } | Self::Failed { unsettled, .. } => unsettled,
            Self::Gone | Self::Acquired(_) => None,
        }
    }
}
