//! A locker whose outcome is open, and the tenure that it may become.

use crate::clock::Moment;
use crate::config::DLockConfig;
use crate::state::tenure::Tenure;
use crate::store::processor::Grant;
use std::sync::Arc;

/// A locker that was sent and has not ended: it stands in the store's queue, or its outcome is unknown.
#[derive(Clone, Debug)]
pub(crate) struct Unsettled {
    pub(crate) locker: Arc<str>,
    pub(crate) settings: Arc<DLockConfig>,
    /// Whether the command that brought it to the store was answered. If not, the command may still be on its way.
    pub(crate) answered: bool,
    /// When a lease that this locker is granted begins to count: when the last answered request that found it waiting
    /// was sent, or, before any reply, when the first request was sent. The grant can only come later.
    pub(crate) counts_from: Moment,
}

impl Unsettled {
    /// Returns the tenure that the locker gets when a reply says that the key is granted to it.
    pub(crate) fn granted(self, grant: Grant) -> Tenure {
        Tenure::new(self.locker, self.settings, grant, self.counts_from)
    }

    /// Returns the tenure that the locker gets when a message says that the key is granted to it.
    pub(crate) fn heard(self, grant: Grant) -> Tenure {
        self.granted(grant).unanswered()
    }
}
