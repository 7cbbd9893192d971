//! The clients with an open inbox, where threads that lock find them. A store has one such client, or a few.

use super::slot_subscriptions::SlotSubscriptions;
use crate::error::{BackendFailure, Error};
use crate::store::redis::script::keys::slot_of;
use crate::sync::unseen::RwLock;
use std::sync::Arc;
use std::time::Duration;

/// See the module. The entries say what each client hears. An inbox may be opened before an earlier inbox of its client has ended; the later one
/// counts.
#[derive(Default)]
pub(crate) struct Listeners(RwLock<Vec<Arc<SlotSubscriptions>>>);

impl Listeners {
    pub(super) fn add(&self, subscriptions: &Arc<SlotSubscriptions>) {
        self.0.write().push(Arc::clone(subscriptions));
    }

    /// Forgets an inbox that is closed.
    pub(super) fn forget(&self, subscriptions: &Arc<SlotSubscriptions>) {
        self.0.write().retain(|other| !Arc::ptr_eq(other, subscriptions));
    }

    /// Calls `look` with what a client hears. `look` must not wait for anything.
    fn look<R>(&self, client: &str, look: impl FnOnce(&Arc<SlotSubscriptions>) -> R) -> Option<R> {
        // The latest inbox is found first. While a client reopens its inbox, the earlier one is still here, and hears nothing any more.
        self.0.read().iter().rev().find(|subscriptions| subscriptions.client == client).map(look)
    }

    /// Returns `true` if a client hears of grants of this key.
    pub(crate) fn hears(&self, client: &str, key: &str) -> bool {
        self.look(client, |subscriptions| subscriptions.hears(slot_of(key.as_bytes()))).unwrap_or(false)
    }

    /// Waits until a client hears of grants of this key, for at most `limit`.
    ///
    /// # Errors
    ///
    /// The reason why it does not hear yet.
    pub(crate) fn get_ready_to_hear(&self, client: &str, key: &str, limit: Duration) -> Result<(), Error> {
        match self.look(client, Arc::clone) {
            Some(subscriptions) => subscriptions.get_ready(slot_of(key.as_bytes()), limit),
            None => Err(Error::backend(BackendFailure::NotExecuted, "the client has no open inbox")),
        }
    }

    /// Notes that a tenure of a client, with this lease, holds or waits for a key now.
    pub(crate) fn note_need(&self, client: &str, key: &str, lease: Duration) {
        self.look(client, |subscriptions| subscriptions.note_need(slot_of(key.as_bytes()), lease));
    }

    /// Makes all listening threads look at the map.
    pub(crate) fn note_map(&self) {
        self.0.read().iter().for_each(|subscriptions| subscriptions.waker.wake());
    }
}
