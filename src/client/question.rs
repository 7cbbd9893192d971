//! Asking the store for a key: the question, and what its answer means.

use crate::clock::Moment;
use crate::config::DLockConfig;
use crate::error::{BackendFailure, Error};
use crate::state::tenure::{Tenure, Unsettled};
use crate::store::processor::{
    AcquireOutcome, AcquireRequest, Busy, Grant, Outcome, PollOutcome, PollRequest, Request,
};
use crate::sync::mutant;
use crate::timer::Timer;
use std::sync::Arc;

/// One question: the first about a fresh locker (acquire), or a later one about an unsettled locker (poll).
#[derive(Debug)]
pub(crate) struct Question {
    about: Unsettled,
    again: bool,
    /// Whether the store may let the locker stand in its queue.
    pub(crate) wait: bool,
}

/// What came of a question.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The key is ours.
    Acquired(Tenure),
    /// Somebody holds it; ask again when the lease ends, or at the next turn. What is `unsettled` stands in the store's queue,
    /// or may come to stand there where no answer has said so.
    Busy { busy: Busy, unsettled: Option<Unsettled> },
    /// The store knows nothing of the locker: ask at once with a fresh one. What is `abandoned` may still be on its way to the store.
    Gone { abandoned: Option<Unsettled> },
    /// No answer, or a refusal.
    Failed { error: Error, unsettled: Option<Unsettled> },
}

impl Question {
    /// The first question about a locker; `wait` when the inbox will hear of a grant.
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

    /// The question as the store understands it.
    pub(crate) fn request<'a>(&'a self, key: &'a str) -> Request<'a> {
        let (locker, lease) = (&*self.about.locker, self.about.settings.lease());
        if self.again {
            Request::Poll(PollRequest { key, locker, lease })
        } else {
            Request::Acquire(AcquireRequest { key, locker, lease, wait: self.wait })
        }
    }

    /// What the result means. `sent_at` was read before the question was first written; `heard` is a grant that came
    /// before the answer.
    pub(crate) fn answer(
        mut self,
        result: Result<Outcome, Error>,
        sent_at: Moment,
        heard: Option<Grant>,
        clock: &Timer,
    ) -> Answer {
        if !self.again {
            self.about.counts_from = sent_at;
        }
        match (result, heard) {
            (
                Ok(Outcome::Acquire(AcquireOutcome::Acquired(grant)) | Outcome::Poll(PollOutcome::Acquired(grant))),
                _,
            ) => {
                self.about.counts_from = if mutant!(CountsFromReply) { clock.now() } else { sent_at };
                self.acquired(grant)
            }
            // The grant stands whatever the answer says: "busy" was said before it, and after "gone" the lease, which counts
            // from before the grant, is looked at before anybody is told.
            (_, Some(grant)) => self.acquired(grant),
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
            (Ok(other), None) => {
                let error =
                    Error::backend(BackendFailure::Unknown, format!("the store answered {other:?} to a question"));
                Answer::Failed { error, unsettled: Some(self.about) }
            }
            (Err(error), None) => {
                let executed = matches!(error, Error::Backend { failure: BackendFailure::Unknown, .. });
                let unsettled = (self.again || executed).then_some(self.about);
                Answer::Failed { error, unsettled }
            }
        }
    }

    fn acquired(self, grant: Grant) -> Answer {
        Answer::Acquired(self.about.granted(grant))
    }
}
