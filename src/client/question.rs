//! One request of a turn, and what its reply means: for the thread that asks, and for those that wait behind it.

use crate::client::core::Core;
use crate::client::parts::Parts;
use crate::client::turn::Turn;
use crate::client::twin;
use crate::clock::Moment;
use crate::config::DLockConfig;
use crate::error::{BackendFailure, Error};
use crate::port::{AcquireOutcome, Busy, Claim, Note, Outcome, PollOutcome, Request};
use crate::state::key::Key;
use crate::state::locker;
use crate::state::machine::{AskedBy, Phase};
use crate::state::tenure::{Tenure, Unsettled};
use std::sync::Arc;

/// One request: the first for a fresh locker (acquire), or a later one for an unsettled locker (poll).
pub(crate) struct Question {
    pub(super) about: Unsettled,
    pub(super) kind: QuestionKind,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum QuestionKind {
    /// The first request for a locker. The store looks at the key alone.
    Look,
    /// The first request for a locker. The store may put the locker in its queue.
    Join,
    /// A later request. The store may have put the locker in its queue before.
    Poll,
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
    /// Creates the first request for a locker. If the request `joins`, the locker may join the store's queue, because the inbox will receive
    /// a grant.
    pub(super) fn fresh(locker: Arc<str>, settings: Arc<DLockConfig>, joins: bool) -> Self {
        let kind = if joins { QuestionKind::Join } else { QuestionKind::Look };
        Self { about: Unsettled { locker, settings, answered: false, counts_from: Moment::NEVER }, kind }
    }

    /// Takes the turn of the retry thread if threads wait for the key, and returns what to ask.
    pub(crate) fn of_waiters<'c>(parts: &'c Parts, key: &Arc<Key>) -> Option<(Turn<'c>, Self)> {
        let mut state = key.state.lock();
        let settings = Arc::clone(&state.queue.front()?.settings);
        let joins = match state.first_task().inspect(|task| task.note_asked()) {
            Some(task) if task.is_one_attempt => task.attempt().wants_place,
            _ => parts.subscription.hears(&parts.core, key),
        };
        let Phase::Waiting { unsettled } = &mut state.phase else { return None };
        let question = match unsettled.take() {
            Some(unsettled) => Self::again(unsettled),
            None => Self::fresh(parts.core.next_locker(&settings), settings, joins),
        };
        state.phase = Phase::Asking { by: AskedBy::Client, about: None };
        state.ask_about(&question.about.locker);
        Some((Turn::of(parts, key), question))
    }

    pub(crate) fn again(about: Unsettled) -> Self {
        Self { about, kind: QuestionKind::Poll }
    }

    /// Returns the request to send to the store. `thread` is the name of the thread that asks, if it asks for itself.
    pub(crate) fn request<'a>(&'a self, key: &'a str, core: &'a Core, thread: Option<&'a str>) -> Request<'a> {
        let (id, settings) = (core.id.current(), &self.about.settings);
        let note = Note { why: settings.reason.as_deref(), thread, host: Some(id.host()) };
        let (client, locker, lease) = (id.as_str(), &self.about.locker, settings.store_time());
        let claim = Claim { key, client, locker, lease, poller_gap: None, note };
        match self.kind {
            QuestionKind::Look => Request::Acquire(claim),
            QuestionKind::Join => Request::Join(claim),
            QuestionKind::Poll => Request::Poll(claim),
        }
    }

    /// Interprets the result. `sent_at` was read before the request was first written. Abandons a locker that may still be on its way to the
    /// store.
    pub(crate) fn take_in(mut self, turn: &Turn<'_>, result: Result<Outcome, Error>, sent_at: Moment) -> Answer {
        let (parts, key) = (turn.parts, &turn.key);
        let may_queue = !matches!(self.kind, QuestionKind::Look);
        let is_poll = matches!(self.kind, QuestionKind::Poll);
        if !is_poll {
            self.about.counts_from = sent_at;
        }
        // The inbox may have delivered the grant before this reply was read. The grant counts then.
        let heard = if may_queue { key.state.lock().heard() } else { None };
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
                self.busy(parts, &key.name, busy, may_queue)
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
                // The outcome of the earlier acquire is unknown.
                let error = if is_poll && !self.about.answered { error.of_perhaps_sent() } else { error };
                let unsettled = (is_poll || error.is_unknown()).then_some(self.about);
                Answer::Failed { error, unsettled }
            }
        }
    }

    /// Returns that another tenure has the key, unless the holder shows that another client has this client's identity. `keeps` says whether
    /// the locker is still to be asked about.
    fn busy(self, parts: &Parts, key: &str, busy: Busy, keeps: bool) -> Answer {
        let fresh = (!matches!(self.kind, QuestionKind::Poll)).then_some(&*self.about.locker);
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

    /// Returns the locker that has the key, if the store says who that is.
    pub(super) fn holder(&self) -> Option<&str> {
        match self {
            Self::Busy { busy, .. } => busy.holder.as_deref(),
            _ => None,
        }
    }

    /// Returns whether the holder may give the lock up when it hears that another client wants it.
    pub(super) fn may_recall(&self, core: &Core) -> bool {
        core.processor.queue().is_some() && self.holder().is_some_and(locker::may_linger)
    }

    /// Removes what was asked for under an identity that this client has given up since then. The [twin](super::twin) may have that, too, so
    /// it is neither taken nor released. Call it with the key's mutex held: then whoever has met the twin has seen the key before, or will see
    /// what the answer has changed.
    pub(super) fn without_given_up(self, parts: &Parts, key: &str) -> Self {
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
