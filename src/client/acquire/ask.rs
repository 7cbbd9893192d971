//! How a thread that has the turn asks the store.

use super::steps::{Asking, QueuePlace, Seen, Step};
use super::{Acquire, Confirmed, Progress};
use crate::client::core::Taker;
use crate::client::question::{Answer, Question};
use crate::client::turn::Turn;
use crate::client::twin;
use crate::clock::Moment;
use crate::error::{BackendFailure, Error};
use crate::event::How;
use crate::log;
use crate::state::locker;
use crate::state::owner::current_thread;
use crate::state::queue::Waiter;
use crate::state::tenure::{Tenure, Unsettled};
use crate::sync::thread;
use std::sync::Arc;

impl<'c> Acquire<'c> {
    /// Asks the store, as the thread whose turn it is. Afterwards the caller has the hold, or its turn has ended.
    pub(super) fn ask(&self, turn: Turn<'c>) -> Result<Progress, Error> {
        let core = self.core;
        let mut asking = Asking::new(self.limit.is_one_attempt(), core.limits.remaining_known);
        let mut question = self.question(QueuePlace::IfHeard);
        loop {
            let sent_at = core.clock.now();
            let wants_place = question.wait;
            let answer = self.put(&turn, question, sent_at);
            if let Answer::Acquired(tenure) = answer {
                let how = if asking.is_busy() { How::Granted } else { How::Free };
                return self.take(turn, tenure, sent_at, how);
            }
            let seen = self.look(&answer, wants_place, sent_at);
            question = match asking.next(answer, &seen) {
                Step::Ask(place) => self.question(place),
                Step::Poll { unsettled, after } => {
                    if !after.is_zero() {
                        thread::sleep(after);
                    }
                    self.question_again(unsettled)
                }
                Step::End { abandoned, failure } => {
                    core.releases.abandon(core, &self.key.name, abandoned);
                    return self.limit.outcome(failure).map(|()| Progress::Ended);
                }
                Step::Refuse(answer) => return self.refuse(answer),
                Step::Wait(answer) => return self.wait_on(turn, answer, sent_at),
            };
        }
    }

    /// Asks again, as the thread whose turn it is, unless its wait is over.
    pub(super) fn ask_again(&self, turn: Turn<'c>) -> Result<Progress, Error> {
        let core = self.core;
        if self.limit.is_over(core.clock.now()) || core.is_closed() {
            let failure = if core.is_closed() { Some(Error::ShutDown) } else { self.key.state().failure.clone() };
            drop(turn);
            return self.limit.outcome(failure).map(|()| Progress::Ended);
        }
        self.ask(turn)
    }

    /// Takes the turn of a thread whose grant the store has not confirmed, and which has given it back: fails, or waits.
    pub(super) fn after_unconfirmed(&self, turn: Turn<'c>, error: Error) -> Result<Progress, Error> {
        let core = self.core;
        let now = core.clock.now();
        let is_undone = matches!(error, Error::Backend { failure: BackendFailure::Unacknowledged, .. });
        let answer = Answer::Failed { error, unsettled: None };
        if self.limit.is_one_attempt() || core.is_closed() || answer.is_refusal(core) {
            return self.refuse(answer);
        }
        if self.limit.is_over(now) && !is_undone {
            // The lock was busy, and there was too little time after that.
            return Ok(Progress::Ended);
        }
        self.wait_on(turn, answer, now)
    }

    /// Returns the first request for a fresh locker. A waiter stands in the store's queue only if the inbox is open
    /// to receive the grant: the store would pass over a waiter that does not listen, and drop it as dead.
    fn question(&self, place: QueuePlace) -> Question {
        let (core, key) = (self.core, self.key);
        let wait = match place {
            QueuePlace::None => false,
            QueuePlace::ForRecall => true,
            _ if self.limit.is_one_attempt() => false,
            QueuePlace::IfHeard => core.subscription.hears(key),
            // If it takes longer, the caller goes on without, and asks again when the inbox is ready.
            QueuePlace::OnceHeard => core.subscription.gets_ready_to_hear(key, || self.command_limit() / 4),
        };
        let question = Question::fresh(core.next_locker(self.settings), Arc::clone(self.settings), wait);
        key.state().ask_about(question.locker());
        question
    }

    fn question_again(&self, unsettled: Unsettled) -> Question {
        let question = Question::again(unsettled);
        self.key.state().ask_about(question.locker());
        question
    }

    /// Sends a question, and interprets the reply.
    fn put(&self, turn: &Turn<'c>, question: Question, sent_at: Moment) -> Answer {
        let (core, key) = (self.core, self.key);
        let limit = self.limit.limit(sent_at, core.limits.command);
        let thread = thread::current();
        let result = core.run(&question.request(&key.name, core.id(), thread.name()), limit);
        turn.take_in(question, result, sent_at)
    }

    /// Takes the hold that the store has granted, ends the turn, and confirms the hold if that takes no request.
    ///
    /// # Errors
    ///
    /// [`Error::Cloned`] if the client has given up the identity that asked: a copy of this process may have the hold, too.
    fn take(&self, turn: Turn<'c>, tenure: Tenure, sent_at: Moment, how: How) -> Result<Progress, Error> {
        let (core, key) = (self.core, self.key);
        core.renewals.note_trip(core.clock.now().since(sent_at));
        let to = Taker { thread: current_thread(), settings: self.settings };
        let mut state = key.state();
        if !core.is_ours(&tenure.locker) {
            drop(state);
            return Err(twin::meet(core, &key.name, &tenure.locker));
        }
        core.grant(key, &mut state, tenure, to);
        turn.end();
        let confirmed = self.tell(&mut state, self.call(how));
        drop(state);
        match confirmed {
            Some(Confirmed::Yes(queued)) => Ok(Progress::Confirmed(queued)),
            _ => Ok(Progress::Holds(how)),
        }
    }

    /// Returns what the next step depends on, beside the answer.
    fn look(&self, answer: &Answer, wants_place: bool, sent_at: Moment) -> Seen {
        let (core, key, limit) = (self.core, self.key, self.limit);
        let now = core.clock.now();
        let busy = match answer {
            Answer::Busy { busy, .. } => Some(busy),
            _ => None,
        };
        let holder = busy.and_then(|busy| busy.holder.as_deref());
        if let Answer::Failed { error, .. } = answer {
            log::debug!(ACQUIRE, "lock {:?}: a request has failed: {error}", key.name);
        }
        Seen {
            now,
            took: now.since(sent_at),
            is_over: limit.is_over(now),
            is_closed: core.is_closed(),
            has_time: limit.has_time_for_another(now, sent_at),
            wants_place: wants_place
                || busy.is_some()
                    && !limit.is_one_attempt()
                    && core.subscription.is_open()
                    && !core.subscription.hears(key),
            // The server did not know the script of the preceding release, so this request overtook the release. The release was sent again
            // before this reply was delivered, so the next request comes after it.
            is_released: limit.is_one_attempt() && holder.is_some() && key.state().released.as_deref() == holder,
            // The holder may give the lock up when it hears that somebody wants it.
            may_recall: core.processor.queue().is_some() && holder.is_some_and(locker::may_linger),
            is_refused: answer.is_refusal(core),
        }
    }

    /// Ends a turn that was neither successful nor final: the calling thread waits, as the first one of its process.
    fn wait_on(&self, turn: Turn<'c>, answer: Answer, sent_at: Moment) -> Result<Progress, Error> {
        let (core, key) = (self.core, self.key);
        core.subscription.listen();
        if let Err(error) = core.retries.start() {
            core.releases.abandon(core, &key.name, answer.into_unsettled());
            return Err(error);
        }
        let waiter = Waiter::new(current_thread(), Arc::clone(self.settings), core.clock.now());
        let mut state = key.state();
        state.queue.push_back_to_head(Arc::clone(&waiter));
        // If no request can be answered in the time left, none is sent. It is sent when this thread gives up, if others
        // still wait.
        let may_ask = self.limit.has_time_for_another(core.clock.now(), sent_at);
        turn.wait_more(state, answer, sent_at, may_ask);
        Ok(Progress::Waits(waiter))
    }

    /// Fails the caller without queueing it, and leaves the error for the threads that still wait.
    fn refuse(&self, answer: Answer) -> Result<Progress, Error> {
        let outcome = match &answer {
            Answer::Failed { error, .. } => {
                // An error that comes from the caller's own short time limit says nothing to the others.
                if self.limit.until().is_none() {
                    self.key.state().failure = Some(error.clone());
                }
                Err(error.clone())
            }
            _ => Ok(Progress::Ended),
        };
        let core = self.core;
        core.releases.abandon(core, &self.key.name, answer.into_unsettled());
        if core.is_closed() { Err(Error::ShutDown) } else { outcome }
    }
}
