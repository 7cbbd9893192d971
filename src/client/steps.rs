//! What a thread that asks the store does after each answer. This file is a state machine without I/O: an answer goes in, and a step comes
//! out.
//!
//! | what is known | answer | and | step |
//! |---|---|---|---|
//! | a recall is under way | the locker is gone | | ask again, looking at the key alone |
//! | no answer yet | the locker is gone | a single attempt | the same: the locker is that of an earlier waiter, which has left |
//! | | the locker is gone | the thread does not wait, or no longer | end, with the failure of the acquire unless the lock is busy |
//! | | the locker is gone | | ask again |
//! | no acquire is settled yet | no reply to what may have been executed | there is time | settle: poll that locker |
//! | the lock is busy | the store fails | no time, or a single attempt | end: the lock was busy |
//! | not known to be busy | busy, and the locker may stand in the store's queue | there is time | poll that locker |
//! | not known to be busy | busy, and the store has looked at the key alone | a place or the lease's end would help, and there is time | ask again, for a place |
//! | a single attempt | busy, the same | for the first time, with our released locker | ask again: the request has overtaken the release |
//! | a single attempt, no recall yet | busy, the same | the holder may linger | begin a recall: ask again, for a place |
//! | a single attempt, no answer yet | busy, and the locker stands in the queue | the holder may linger | begin a recall, as below: the locker is that of an earlier waiter, which has left |
//! | a single attempt | busy, and the locker stands in the queue | the recall has time left, and the holder may linger | poll that locker after a pause |
//! | a single attempt | busy, the same | | end: the lock is busy |
//! | | any other | a single attempt, a closed client, or a refusal | refuse |
//! | | any other | | wait |
//!
//! The first row that applies counts. If the key was acquired, the turn ends before the table is used. The numbers below continue those of
//! the protocol in ARCHITECTURE.md:
//!
//! * **S19** Each step takes the locker of the answer along: the locker is polled, abandoned, or part of the answer with which the thread
//!   waits or is refused.
//! * **S20** In one turn, at most one acquire without a reply is settled. At most one request asks for a place because the store has looked
//!   at the key alone. So a turn ends, whatever the store answers, unless the store knows none of the lockers.
//! * **S21** A single attempt never waits in the local queue. It polls for a place only while a recall lasts, or to settle a locker:
//!   its own, or that of a task which left the local queue before it. If the store no longer knows that locker,
//!   the attempt asks with a locker of its own.
//! * **S22** If a reply has said that the key is busy, the key counts as busy for the rest of the turn. A lack of time is no error then.
//!
//! # How a single attempt gets a lock that only lingers
//!
//! The attempt stands in the store's queue for a moment. The holder is told of that, and gives the lock up. This is a *recall*.
//!
//! The holder's locker says that its tenure *may* linger (the `L` at its end), not that no thread is inside. So the
//! moment is short, and an attempt on any other busy key returns immediately.
//!
//! # How a lock lingers
//!
//! ```text
//!   client A                        Redis                       client B
//!      last hold ends: A-3L stays
//!      lock(): next token, no Redis
//!      last hold ends: A-3L stays
//!                                   acquire(B-7, wait) ◀─────── B asks
//!      contended(A-3L) ◀─────────── PUBLISH
//!      Lingering → Releasing
//!      release(A-3L) ─────────────▶ key := B-7 ───────────────▶ granted
//! ```
//!
//! This is lock caching with revocation. The phase `Lingering` ends in one of three ways, all under the key's mutex. An arriving thread
//! takes the next hold. Or the retry thread releases the tenure, because its time is over or others want the key. Or the lease thread
//! notices a loss. A tenure lingers only if its client would learn that others wait: without a subscription it ends with its last hold. The
//! retry thread is told when the first linger ends, and not of each one. If it wakes too early, because the tenure was held in between, it
//! finds out when the present linger ends. The `L` in the locker tells other clients that asking is worthwhile, so a `try_lock` stands in
//! the queue for a moment. For every other busy key `try_lock` returns at once.

use crate::client::question::Answer;
use crate::clock::Moment;
use crate::error::{BackendFailure, Error};
use crate::port::Busy;
use crate::state::task::{AskProgress, Recall};
use crate::state::tenure::Unsettled;
use std::time::Duration;

/// The place in the store's queue that a request for a fresh locker asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueuePlace {
    /// None: the store looks at the key alone.
    None,
    /// One if the inbox would hear of a grant.
    IfHeard,
    /// One after the inbox has got ready to hear of a grant.
    OnceHeard,
    /// One that the holder is told of, for a single attempt.
    ForRecall,
}

/// What to do next.
#[derive(Debug)]
pub(super) enum Step {
    /// Send the first request for a fresh locker.
    Ask(QueuePlace),
    /// Ask again about this locker, after a pause.
    Poll { unsettled: Unsettled, after: Duration },
    /// End the call without the lock, with the failure if there is one.
    End { abandoned: Option<Unsettled>, failure: Option<Error> },
    /// End the call as the answer says.
    Refuse(Answer),
    /// Wait in the local queue, as the first one.
    Wait(Answer),
}

/// What a step depends on, besides this answer and the earlier ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) now: Moment,
    /// How long the last round trip has taken.
    pub(super) took: Duration,
    /// Whether the thread's limit is over.
    pub(super) is_over: bool,
    pub(super) is_closed: bool,
    /// Whether another request can be answered within the limit.
    pub(super) has_time: bool,
    /// Whether the last request has asked for a place, or the next one could.
    pub(super) wants_place: bool,
    /// Whether the holder is the tenure that this client has released last.
    pub(super) is_released: bool,
    /// Whether the holder may give the lock up when it hears that another client wants it.
    pub(super) may_recall: bool,
    /// Whether the answer is a failure that is not waited out.
    pub(super) is_refused: bool,
}

/// One turn of asking, or the single attempt of a task, which has several.
pub(super) struct Asking {
    is_one_attempt: bool,
    /// Whether the store can say when a lease ends.
    remaining_known: bool,
    pub(super) attempt: AskProgress,
}

impl Asking {
    pub(super) fn new(is_one_attempt: bool, remaining_known: bool) -> Self {
        Self { is_one_attempt, remaining_known, attempt: AskProgress::default() }
    }

    /// Goes on with the single attempt of a task, which asks no second time for the lease's end.
    pub(super) fn of_task(attempt: AskProgress) -> Self {
        Self { is_one_attempt: true, remaining_known: false, attempt }
    }

    /// Returns the step after an answer that is not the lock. See the table.
    pub(super) fn next(&mut self, answer: Answer, seen: &Seen) -> Step {
        let ends = self.is_one_attempt || seen.is_over;
        match answer {
            Answer::Gone if self.attempt.recall.is_some() || self.is_one_attempt && self.attempt.knows_nothing() => {
                Step::Ask(QueuePlace::None)
            }
            Answer::Gone if ends => {
                Step::End { abandoned: None, failure: self.attempt.unanswered.take().filter(|_| !self.attempt.is_busy) }
            }
            Answer::Gone => Step::Ask(QueuePlace::IfHeard),
            Answer::Failed { error, unsettled: Some(unsettled) }
                if self.attempt.unanswered.is_none() && error.is_unknown() && !seen.is_closed && !seen.is_over =>
            {
                self.attempt.unanswered = Some(error);
                Step::Poll { unsettled, after: Duration::ZERO }
            }
            // The failure "not acknowledged" is excluded here: it shows that the store tried to give out the key, so the lock has become
            // free.
            Answer::Failed { error: Error::Backend { failure, .. }, unsettled }
                if self.attempt.is_busy && failure != BackendFailure::Unacknowledged && !seen.is_closed && ends =>
            {
                Step::End { abandoned: unsettled, failure: None }
            }
            Answer::Busy { busy, unsettled: Some(unsettled) } => self.queued(busy, unsettled, seen),
            Answer::Busy { busy, unsettled: None } => self.looked(busy, seen),
            answer => self.otherwise(answer, seen),
        }
    }

    /// The locker stands in the store's queue, or may yet get there.
    fn queued(&mut self, busy: Busy, unsettled: Unsettled, seen: &Seen) -> Step {
        if !unsettled.answered && !self.attempt.is_busy && !seen.is_over {
            self.attempt.is_busy = true;
            return Step::Poll { unsettled, after: Duration::ZERO };
        }
        if self.is_one_attempt {
            if self.attempt.recall.is_none() && self.attempt.knows_nothing() && seen.may_recall {
                self.begin_recall(seen);
            }
            let pause = self.attempt.recall.as_mut().and_then(|recall| recall.pause(seen.now));
            return match pause.filter(|_| seen.may_recall) {
                Some(after) => Step::Poll { unsettled, after },
                None => Step::End { abandoned: Some(unsettled), failure: None },
            };
        }
        self.otherwise(Answer::Busy { busy, unsettled: Some(unsettled) }, seen)
    }

    /// The store has looked at the key alone. Asked again, it gives a place in its queue, or says when the lease ends.
    fn looked(&mut self, busy: Busy, seen: &Seen) -> Step {
        let may_learn = seen.wants_place || busy.remaining.is_none() && self.remaining_known;
        if may_learn && !self.attempt.is_busy && seen.has_time {
            self.attempt.is_busy = true;
            return Step::Ask(QueuePlace::OnceHeard);
        }
        if self.is_one_attempt {
            if !std::mem::replace(&mut self.attempt.was_compared, true) && seen.is_released {
                self.attempt.is_busy = true;
                return Step::Ask(QueuePlace::None);
            }
            if self.attempt.recall.is_none() && seen.may_recall {
                self.begin_recall(seen);
                return Step::Ask(QueuePlace::ForRecall);
            }
        }
        self.otherwise(Answer::Busy { busy, unsettled: None }, seen)
    }

    fn begin_recall(&mut self, seen: &Seen) {
        self.attempt.recall = Some(Recall::begin(seen.now, seen.took));
        self.attempt.is_busy = true;
    }

    fn otherwise(&self, answer: Answer, seen: &Seen) -> Step {
        let ends = self.is_one_attempt || seen.is_closed || seen.is_refused;
        if ends { Step::Refuse(answer) } else { Step::Wait(answer) }
    }
}

#[cfg(test)]
#[path = "../../tests/white_box/client/steps.rs"]
mod tests;
