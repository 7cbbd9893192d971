//! How a waiting or arriving thread, or the retry thread on behalf of the first waiter, takes its turn to ask the
//! store.

use crate::client::core::Core;
use crate::client::holding::Taker;
use crate::client::question::{Answer, Question};
use crate::client::recall::Recall;
use crate::client::turn::{Turn, is_unknown};
use crate::client::wait_limit::WaitLimit;
use crate::clock::Moment;
use crate::config::DLockConfig;
use crate::error::{BackendFailure, Error};
use crate::event::How;
use crate::log;
use crate::state::key::Key;
use crate::state::locker;
use crate::state::owner::current_thread;
use crate::state::queue::Waiter;
use crate::store::processor::Busy;
use crate::sync::{mutant, thread};
use std::sync::Arc;

/// What came of a turn to ask.
pub(crate) enum Asked {
    /// The calling thread holds the lock.
    Got(How),
    /// The lock is busy and the caller does not wait, or no longer waits.
    No,
    /// The caller waits in the queue.
    Queued(Arc<Waiter>),
}

impl Core {
    /// Asks the store, as the thread whose turn it is. Afterwards the caller has the hold, or its turn has ended.
    pub(crate) fn ask(
        &self,
        key: &Arc<Key>,
        settings: &Arc<DLockConfig>,
        wait_limit: &WaitLimit<'_>,
    ) -> Result<Asked, Error> {
        let turn = Turn::of(self, key);
        let mut question = self.first_question(key, settings, wait_limit);
        // The error of an unanswered acquire. Its outcome is polled once, immediately.
        let mut unanswered = None;
        let mut recall: Option<Recall> = None;
        // Whether a reply said that somebody else has the key. A later request that fails for lack of time is then no
        // error.
        let mut is_busy = false;
        let mut was_behind_release = false;
        loop {
            let sent_at = self.clock.now();
            let wait = question.wait;
            let limit = wait_limit.limit(sent_at, self.limits.command);
            let thread = thread::current();
            let result = self.run(&question.request(&key.name, self.id(), thread.name()), limit);
            self.notice_server();
            let heard = if wait { key.state().heard() } else { None };
            match self.take_in(key, question, result, sent_at, heard) {
                Answer::Acquired(tenure) => {
                    self.renewals.note_trip(self.clock.now().since(sent_at));
                    let to = Taker { thread: current_thread(), settings };
                    self.grant(key, &mut key.state(), tenure, to);
                    turn.end();
                    return Ok(Asked::Got(if is_busy { How::Granted } else { How::Free }));
                }
                Answer::Gone { .. } if recall.is_some() => question = self.new_question(key, settings, false),
                Answer::Gone { .. } if wait_limit.is_one_attempt() || wait_limit.is_over(self.clock.now()) => {
                    return wait_limit.outcome(unanswered.filter(|_| !is_busy)).map(|()| Asked::No);
                }
                Answer::Gone { .. } => question = self.first_question(key, settings, wait_limit),
                Answer::Failed { error, unsettled: Some(unsettled) }
                    if unanswered.is_none()
                        && is_unknown(&error)
                        && !self.is_closed()
                        && !wait_limit.is_over(self.clock.now()) =>
                {
                    log::debug!(ACQUIRE, "lock {:?}: {error}; asking the store for the outcome", key.name);
                    unanswered = Some(error);
                    question = Question::again(unsettled);
                    if mutant!(AsksAnewWithoutAnswer) {
                        question = self.first_question(key, settings, wait_limit);
                    }
                    key.state().ask_about(question.locker());
                }
                Answer::Busy { unsettled: Some(unsettled), .. }
                    if !unsettled.answered && !is_busy && !wait_limit.is_over(self.clock.now()) =>
                {
                    is_busy = true;
                    question = Question::again(unsettled);
                    key.state().ask_about(question.locker());
                }
                // That nobody acknowledges it shows that the lock has become free.
                Answer::Failed { error: Error::Backend { failure, .. }, unsettled }
                    if is_busy
                        && failure != BackendFailure::Unacknowledged
                        && !self.is_closed()
                        && (wait_limit.is_one_attempt() || wait_limit.is_over(self.clock.now())) =>
                {
                    self.abandon(&key.name, unsettled);
                    return Ok(Asked::No);
                }
                // The store has looked at the key only. Asked again, it gives a place in its queue, or says when the
                // lease ends.
                Answer::Busy { unsettled: None, ref busy }
                    if (wait
                        || busy.remaining.is_none() && self.limits.remaining_known
                        || self.may_get_ready(key, wait_limit))
                        && !is_busy
                        && wait_limit.has_time_for_another(self.clock.now(), sent_at) =>
                {
                    is_busy = true;
                    question = self.question_for_place(key, settings, wait_limit);
                }
                // The server did not know the script of the preceding release, so this request overtook the release.
                // The release was sent again before this reply was delivered, so the next request comes after it.
                Answer::Busy { busy, unsettled: None }
                    if wait_limit.is_one_attempt()
                        && !std::mem::replace(&mut was_behind_release, true)
                        && busy.holder.is_some()
                        && key.state().released.as_deref() == busy.holder.as_deref() =>
                {
                    is_busy = true;
                    question = self.new_question(key, settings, false);
                }
                Answer::Busy { busy, unsettled: None }
                    if wait_limit.is_one_attempt() && recall.is_none() && self.may_recall(&busy) =>
                {
                    let now = self.clock.now();
                    recall = Some(Recall::begin(now, now.since(sent_at)));
                    is_busy = true;
                    question = self.new_question(key, settings, true);
                }
                Answer::Busy { busy, unsettled: Some(unsettled) } if wait_limit.is_one_attempt() => {
                    let pause = recall.as_mut().and_then(|recall| recall.pause(self.clock.now()));
                    match pause {
                        Some(pause) if self.may_recall(&busy) => {
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
                answer if wait_limit.is_one_attempt() || self.is_closed() || answer.is_refusal(self) => {
                    return self.refuse(key, answer, wait_limit).map(|()| Asked::No);
                }
                answer => return self.wait_on(turn, settings, wait_limit, answer, sent_at),
            }
        }
    }

    /// Takes the turn of a thread whose grant the store has not confirmed, and which has given it back: fails, or waits.
    pub(crate) fn after_unconfirmed(
        &self,
        turn: Turn<'_>,
        settings: &Arc<DLockConfig>,
        wait_limit: &WaitLimit<'_>,
        error: Error,
    ) -> Result<Asked, Error> {
        let now = self.clock.now();
        let is_undone = matches!(error, Error::Backend { failure: BackendFailure::Unacknowledged, .. });
        let answer = Answer::Failed { error, unsettled: None };
        if wait_limit.is_one_attempt() || self.is_closed() || answer.is_refusal(self) {
            return self.refuse(turn.key(), answer, wait_limit).map(|()| Asked::No);
        }
        if wait_limit.is_over(now) && !is_undone {
            // The lock was busy, and there was too little time after that.
            return Ok(Asked::No);
        }
        self.wait_on(turn, settings, wait_limit, answer, now)
    }

    /// Ends a turn that was neither successful nor final: the calling thread waits, as the first one of its process.
    fn wait_on(
        &self,
        turn: Turn<'_>,
        settings: &Arc<DLockConfig>,
        wait_limit: &WaitLimit<'_>,
        answer: Answer,
        sent_at: Moment,
    ) -> Result<Asked, Error> {
        let key = Arc::clone(turn.key());
        self.subscription.listen();
        if let Err(error) = self.retries.start() {
            self.abandon(&key.name, answer.into_unsettled());
            return Err(error);
        }
        let waiter = Waiter::new(current_thread(), Arc::clone(settings), self.clock.now());
        let mut state = key.state();
        state.queue.push_back_to_head(Arc::clone(&waiter));
        // If no request can be answered in the time left, none is sent. It is sent when this thread gives up, if others
        // still wait.
        let may_ask = wait_limit.has_time_for_another(self.clock.now(), sent_at);
        let settled = self.wait_more(&key, &mut state, answer, sent_at, may_ask);
        turn.end();
        drop(state);
        settled.tell();
        Ok(Asked::Queued(waiter))
    }

    /// Returns the first request for a fresh locker. A waiter stands in the store's queue only if the inbox is open
    /// to receive the grant: the store would pass over a waiter that does not listen, and drop it as dead.
    fn first_question(&self, key: &Key, settings: &Arc<DLockConfig>, wait_limit: &WaitLimit<'_>) -> Question {
        self.new_question(key, settings, !wait_limit.is_one_attempt() && self.subscription.hears(key))
    }

    /// Does as [`first_question`](Self::first_question) for a key that is busy: the inbox gets ready to hear of it.
    fn question_for_place(&self, key: &Key, settings: &Arc<DLockConfig>, wait_limit: &WaitLimit<'_>) -> Question {
        // If it takes longer, the caller goes on without, and asks again when the inbox is ready.
        let limit = || wait_limit.limit(self.clock.now(), self.limits.command) / 4;
        let wait = !wait_limit.is_one_attempt() && self.subscription.gets_ready_to_hear(key, limit);
        self.new_question(key, settings, wait)
    }

    /// Returns whether a caller that waits could stand in the store's queue if the inbox covered this key.
    fn may_get_ready(&self, key: &Key, wait_limit: &WaitLimit<'_>) -> bool {
        !wait_limit.is_one_attempt() && self.subscription.is_open() && !self.subscription.hears(key)
    }

    /// Returns whether the holder may give the lock up when it hears that somebody wants it.
    fn may_recall(&self, busy: &Busy) -> bool {
        self.processor.queue().is_some() && busy.holder.as_deref().is_some_and(locker::may_linger)
    }

    fn new_question(&self, key: &Key, settings: &Arc<DLockConfig>, wait: bool) -> Question {
        let question = Question::fresh(self.next_locker(settings), Arc::clone(settings), wait);
        key.state().ask_about(question.locker());
        question
    }

    /// Fails the caller without queueing it, and leaves the error for the threads that still wait.
    fn refuse(&self, key: &Key, answer: Answer, wait_limit: &WaitLimit<'_>) -> Result<(), Error> {
        let outcome = match &answer {
            Answer::Failed { error, .. } => {
                // An error that comes from the caller's own short time limit says nothing to the others.
                if wait_limit.until().is_none() {
                    key.state().failure = Some(error.clone());
                }
                Err(error.clone())
            }
            _ => Ok(()),
        };
        self.abandon(&key.name, answer.into_unsettled());
        if self.is_closed() { Err(Error::ShutDown) } else { outcome }
    }
}
