//! What tasks leave to the thread `dlock-retry`, because they must not wait for the store: a tenure that is to be given back, a hold that is to
//! be confirmed, the end of the client.

use super::cleanup::InFlight;
use crate::clock::Moment;
use crate::error::Error;
use crate::state::key::Key;
use crate::state::machine::Waiter;
use crate::state::task::{TaskReply, Watcher};
use crate::state::tenure::Tenure;
use std::sync::Arc;
use std::time::Duration;

/// A tenure whose hold has ended, and that is to be given back. The phase of its key is `Releasing`.
pub(super) struct EndedTenure {
    pub(super) key: Arc<Key>,
    pub(super) tenure: Box<Tenure>,
    pub(super) watchers: Vec<Watcher>,
    /// Whether the loss of the tenure was told, if it is lost.
    pub(super) is_told: bool,
    /// Whether others of this client waited for the key when the hold ended.
    pub(super) others_wait: bool,
    /// When the hold ended.
    pub(super) at: Moment,
    /// Makes the end of the main thread wait, from the moment at which the tenure was left to the retry thread.
    pub(super) in_flight: Option<InFlight>,
}

/// The outcome of a release, for a task that may wait for it.
pub(crate) type ReleaseReply = Arc<TaskReply<Result<(), Error>>>;

pub(super) enum Order {
    /// Give this tenure back. It is counted as a thread inside until that is done.
    GiveBack { ended: EndedTenure, released: Option<ReleaseReply> },
    /// Extend the lease of this locker, and wake its task, which has the hold.
    Confirm(Confirmation),
    /// Shut the client down: after the closing its last thread has left or its last hold has ended, or its last handle is gone.
    ShutDown,
    /// Drop this when the round is over: the client, whose last handle is gone, or what a shutdown needs.
    Drop(Box<dyn Send + Sync>),
}

/// A hold that a task has been given, and that is to be confirmed by an extension before the task is told.
pub(super) struct Confirmation {
    pub(super) key: Arc<Key>,
    pub(super) locker: Arc<str>,
    /// How long the store keeps the key for the tenure. The waiter may have other settings, because another handle may have asked for the tenure.
    pub(super) kept: Duration,
    pub(super) waiter: Arc<Waiter>,
}

impl Order {
    /// Returns the key that the order is about.
    pub(super) fn key(&self) -> Option<&Arc<Key>> {
        match self {
            Self::GiveBack { ended, .. } => Some(&ended.key),
            Self::Confirm(Confirmation { key, .. }) => Some(key),
            Self::ShutDown | Self::Drop(_) => None,
        }
    }

    /// Returns whether it is a release that is only to be posted: nobody waits for the reply or, in this client, for the key.
    pub(super) fn is_plain_release(&self) -> bool {
        matches!(self, Self::GiveBack { ended, released: None, .. } if !ended.others_wait && !ended.tenure.is_lost())
    }
}
