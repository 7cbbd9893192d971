//! Asking the store for a key: the question, and what its answer means.

use crate::client::Client;
use crate::clock::Moment;
use crate::config::DLockConfig;
use crate::error::{BackendFailure, Error};
use crate::processor::{AcquireOutcome, AcquireRequest, Outcome, PollOutcome, PollRequest, Request};
use crate::tenure::{Tenure, Unsettled};
use std::sync::Arc;
use std::time::Duration;

/// One question: the first about a fresh locker (acquire), or a later one about an unsettled locker (poll).
#[derive(Debug)]
pub(crate) struct Question {
    locker: Arc<str>,
    settings: Arc<DLockConfig>,
    again: bool,
}

/// What came of a question.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The key is ours.
    Acquired(Tenure),
    /// Somebody holds it; ask again when the lease ends, or at the next turn.
    Busy { remaining: Option<Duration>, unsettled: Option<Unsettled> },
    /// The store knows nothing of the locker: ask at once with a fresh one.
    Gone,
    /// No answer, or a refusal.
    Failed { error: Error, unsettled: Option<Unsettled> },
}

impl Question {
    pub(crate) fn fresh(locker: Arc<str>, settings: Arc<DLockConfig>) -> Self {
        Self { locker, settings, again: false }
    }

    pub(crate) fn again(unsettled: Unsettled) -> Self {
        Self { locker: unsettled.locker, settings: unsettled.settings, again: true }
    }

    /// The question as the store understands it.
    pub(crate) fn request<'a>(&'a self, key: &'a str) -> Request<'a> {
        let (locker, lease) = (&*self.locker, self.settings.lease());
        if self.again {
            Request::Poll(PollRequest { key, locker, lease })
        } else {
            Request::Acquire(AcquireRequest { key, locker, lease, wait: false })
        }
    }

    /// What the result means. `sent_at` was read before the question was first written.
    pub(crate) fn answer(self, key: &str, result: Result<Outcome, Error>, sent_at: Moment, client: &Client) -> Answer {
        match result {
            Ok(Outcome::Acquire(AcquireOutcome::Acquired(grant)) | Outcome::Poll(PollOutcome::Acquired(grant))) => {
                Answer::Acquired(Tenure::new(self.locker, self.settings, grant.number, sent_at))
            }
            Ok(Outcome::Acquire(AcquireOutcome::Busy(busy))) => {
                Answer::Busy { remaining: busy.remaining, unsettled: None }
            }
            Ok(Outcome::Poll(PollOutcome::Waiting(busy))) => {
                Answer::Busy { remaining: busy.remaining, unsettled: Some(self.into_unsettled()) }
            }
            Ok(Outcome::Poll(PollOutcome::Gone)) => {
                // The acquire whose reply was lost may still be on its way.
                client.abandon(key, Some(self.into_unsettled()));
                Answer::Gone
            }
            Ok(other) => {
                let error =
                    Error::backend(BackendFailure::Unknown, format!("the store answered {other:?} to a question"));
                Answer::Failed { error, unsettled: Some(self.into_unsettled()) }
            }
            Err(error) => {
                let executed = matches!(error, Error::Backend { failure: BackendFailure::Unknown, .. });
                let unsettled = (self.again || executed).then(|| self.into_unsettled());
                Answer::Failed { error, unsettled }
            }
        }
    }

    fn into_unsettled(self) -> Unsettled {
        Unsettled { locker: self.locker, settings: self.settings }
    }
}
