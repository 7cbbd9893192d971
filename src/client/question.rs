//! Asking the store for a key: the request, and what its reply means.

use crate::client::core::Core;
use crate::clock::Moment;
use crate::config::DLockConfig;
use crate::error::{BackendFailure, Error};
use crate::port::{AcquireOutcome, Busy, Claim, Grant, Note, Outcome, PollOutcome, Request};
use crate::state::locker::ClientId;
use crate::state::tenure::{Tenure, Unsettled};
use std::sync::Arc;

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
    /// Somebody else holds the key. Ask again when the lease ends, or at the next poll. An `unsettled` locker stands
    /// in the store's queue, or may yet get there if no reply has said that it does.
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

    /// Returns whether this is the first request for its locker.
    pub(super) fn is_first(&self) -> bool {
        !self.again
    }

    pub(crate) fn locker(&self) -> &Arc<str> {
        &self.about.locker
    }

    /// Returns the request to send to the store. `thread` is the name of the thread that asks, if it asks for itself.
    pub(crate) fn request<'a>(&'a self, key: &'a str, client: &'a ClientId, thread: Option<&'a str>) -> Request<'a> {
        let settings = &self.about.settings;
        let note = Note::new(settings.reason(), thread, Some(client.host()));
        let claim = Claim::new(key, client.as_str(), &self.about.locker, settings.kept()).with_note(note);
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
                let executed = matches!(error, Error::Backend { failure: BackendFailure::Unknown, .. });
                let unsettled = (self.again || executed).then_some(self.about);
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

/// Returns whether a request may have been executed without a reply.
pub(crate) fn is_unknown(error: &Error) -> bool {
    matches!(error, Error::Backend { failure: BackendFailure::Unknown, .. })
}
