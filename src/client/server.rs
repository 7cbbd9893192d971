//! Notices when another server than before answers the client: it may not know what the earlier one knew.

use super::core::Core;
use super::events::Events;
use super::renewals::Renewals;
use super::retries::Retries;
use super::subscription::Subscription;
use crate::clock::Timer;
use crate::log;
use crate::port::LockProcessor;
use crate::state::key::KeyTable;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// See the module. The store has a weak pointer to this, and not to the client, because the client owns the store. Clients can share a store,
/// and a thread of one client may tell all of them of another server. If that thread had the last pointer to a client, it would drop the
/// store, whose end waits for that thread.
pub(crate) struct ServerWatch {
    /// The greatest number of a server of which the store has told this client.
    // ORDERING: SeqCst. If the store tells of two servers at the same time, the greater number counts.
    number: AtomicU64,
    clock: Timer,
    keys: Arc<KeyTable>,
    events: Arc<Events>,
    renewals: Arc<Renewals>,
    retries: Arc<Retries>,
    subscription: Arc<Subscription>,
}

impl ServerWatch {
    pub(super) fn new(
        core: &Core,
        renewals: &Arc<Renewals>,
        retries: &Arc<Retries>,
        subscription: &Arc<Subscription>,
    ) -> Self {
        Self {
            number: AtomicU64::new(0),
            clock: core.clock.clone(),
            keys: Arc::clone(&core.keys),
            events: Arc::clone(&core.events),
            renewals: Arc::clone(renewals),
            retries: Arc::clone(retries),
            subscription: Arc::clone(subscription),
        }
    }

    /// Has the store tell of other servers from now on.
    pub(super) fn watch(self: &Arc<Self>, processor: &dyn LockProcessor) {
        let watch = Arc::downgrade(self);
        processor.on_new_server(Box::new(move |number| {
            if let Some(watch) = watch.upgrade() {
                watch.note(number);
            }
        }));
    }

    /// Notes that another server than before answers, as the store tells. Makes every wait, every tenure and every release that is to be
    /// repeated due now: the new server may not know of them, or may be the only one that does. The listening thread ends its pause, too:
    /// until it has subscribed, waiters may lose their places.
    fn note(&self, number: u64) {
        if self.number.fetch_max(number, Ordering::SeqCst) >= number {
            return;
        }
        log::info!(CLIENT, "another server answers than before: asking about every lock that is held or waited for");
        self.events.tell_new_server(number);
        let now = self.clock.now();
        self.renewals.doubt_until(now);
        for key in self.keys.all() {
            let mut state = key.state.lock();
            // A reply that is on its way is one of the earlier server.
            state.note_change();
            if let Some(tenure) = state.tenure_mut() {
                tenure.lease.doubt(now);
            }
        }
        self.retries.hasten_all(now);
        self.renewals.hasten(now);
        self.subscription.hasten(now);
    }
}
