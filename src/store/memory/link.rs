//! A connection to the store. Like one to a server, it may be cut and come back.

use crate::error::{BackendFailure, Error};
use std::sync::atomic::{AtomicBool, Ordering};

/// A connection to the store, shared by the clones of one processor.
#[derive(Debug, Default)]
pub(super) struct InboxLink {
    /// Written under the store's mutex, and read under it by every request. So no request is executed after the cut.
    // ORDERING: Relaxed: guarded by that mutex. Only `check_inbox` loads it without the mutex, and changes nothing.
    cut: AtomicBool,
}

impl InboxLink {
    /// # Errors
    ///
    /// [`Error::Backend`] (`NotExecuted`) while the link is cut.
    pub(super) fn check(&self) -> Result<(), Error> {
        // ORDERING: Relaxed: under the store's mutex.
        if self.cut.load(Ordering::Relaxed) {
            return Err(Error::backend(BackendFailure::NotExecuted, "the embedded store was set unreachable"));
        }
        Ok(())
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn set_reachable(&self, reachable: bool) {
        self.cut.store(!reachable, Ordering::Relaxed); // ORDERING: Relaxed: under the store's mutex.
    }
}
