//! How a guard queries and ends its hold, for guards that borrow the lock and guards that own their handle.

use crate::error::{Error, LeaseLoss};
use crate::lock::reentrant::DistributedReentrantLock;
use crate::log;
use crossbeam_channel::Receiver;
use std::time::Duration;

/// Operations on the hold with a given token.
impl DistributedReentrantLock {
    pub(crate) fn holds_validly(&self, token: u64) -> bool {
        self.client().is_valid(self.local_key(), token)
    }

    pub(crate) fn remaining_of(&self, token: u64) -> Duration {
        if self.holds_validly(token) { self.local_key().hold.deadline().since(self.now()) } else { Duration::ZERO }
    }

    pub(crate) fn ensure_valid_hold(&self, token: u64) -> Result<(), Error> {
        if self.holds_validly(token) { Ok(()) } else { Err(self.client().why_invalid(self.local_key(), token)) }
    }

    pub(crate) fn loss_of(&self, token: u64) -> Option<LeaseLoss> {
        match self.ensure_valid_hold(token) {
            Err(Error::LeaseLost(loss)) => Some(*loss),
            _ => None,
        }
    }

    pub(crate) fn watch_hold(&self, token: u64) -> Receiver<()> {
        self.local_key().watch(token)
    }

    /// Unlocks once, and returns the outcome. Waits for the store's reply if the key goes back to it.
    #[inline]
    pub(crate) fn unlock_hold(&self, token: u64) -> Result<(), Error> {
        if self.local_key().unlock_inner(token) { Ok(()) } else { self.release(Some(token), true) }
    }

    /// Unlocks once, for a guard that is being dropped.
    #[inline]
    pub(crate) fn unlock_dropped(&self, token: u64) {
        if !self.local_key().unlock_inner(token) {
            self.release_dropped(token);
        }
    }

    fn release_dropped(&self, token: u64) {
        if let Err(error) = self.release(Some(token), false) {
            // Lost leases and unanswered releases have already been logged with their causes.
            log::debug!(RELEASE, "lock {:?}: a dropped guard could not unlock: {error}", self.key());
        }
    }
}
