//! Notices when another server than before answers the client: it may not know what the earlier one knew.

use super::events::Events;
use super::renewals::Renewals;
use super::retries::Retries;
use super::subscription::Subscription;
use crate::clock::Moment;
use crate::log;
use crate::state::key::KeyTable;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::timer::Timer;
use std::sync::Arc;

/// See the module. The store has a weak pointer to this, and not to the core, because the core owns the store. Clients can share a store,
/// and a thread of one client may tell all of them of another server. If that thread had the last pointer to a core, it would drop the
/// store, whose end waits for that thread.
#[derive(Debug)]
pub(crate) struct ServerWatch {
    /// The greatest number of a server of which the store has told this client.
    // ORDERING: SeqCst. If the store tells of two servers at the same time, the greater number counts.
    number: AtomicU64,
    /// When that number last rose, in nanoseconds; zero if it never did.
    // ORDERING: SeqCst, as for `number`. `note` stores it before it looks at the keys; `Core::grant` loads it with the key's mutex held. So
    // if a grant and a rise happen at the same time, either the grant sees the moment, or `note` finds the tenure.
    rose_at: AtomicU64,
    clock: Timer,
    keys: Arc<KeyTable>,
    events: Arc<Events>,
    renewals: Arc<Renewals>,
    retries: Arc<Retries>,
    subscription: Arc<Subscription>,
}

impl ServerWatch {
    pub(super) fn new(
        clock: &Timer,
        keys: &Arc<KeyTable>,
        events: &Arc<Events>,
        renewals: &Arc<Renewals>,
        retries: &Arc<Retries>,
        subscription: &Arc<Subscription>,
    ) -> Self {
        Self {
            number: AtomicU64::new(0),
            rose_at: AtomicU64::new(0),
            clock: clock.clone(),
            keys: Arc::clone(keys),
            events: Arc::clone(events),
            renewals: Arc::clone(renewals),
            retries: Arc::clone(retries),
            subscription: Arc::clone(subscription),
        }
    }

    /// Returns `true` if a request that was sent at this moment may have been answered by an earlier server than the present one.
    pub(super) fn is_earlier(&self, sent_at: Moment) -> bool {
        let rose_at = self.rose_at.load(Ordering::SeqCst);
        rose_at != 0 && sent_at.as_nanos() <= rose_at
    }

    /// Notes that another server than before answers, as the store tells. Makes every wait, every tenure and every release that is to be
    /// repeated due now: the new server may not know of them, or may be the only one that does. The listening thread ends its pause, too:
    /// until it has subscribed, waiters may lose their places.
    pub(super) fn note(&self, number: u64) {
        if self.number.fetch_max(number, Ordering::SeqCst) >= number {
            return;
        }
        log::info!(CLIENT, "another server answers than before: asking about every lock that is held or waited for");
        self.events.tell_new_server(number);
        let now = self.clock.now();
        self.rose_at.fetch_max(now.as_nanos().max(1), Ordering::SeqCst);
        for key in self.keys.all() {
            if let Some(tenure) = key.state.lock().kept() {
                tenure.lease.doubt(now);
            }
        }
        self.retries.hasten_all(now);
        self.renewals.hasten(now);
        self.subscription.hasten(now);
    }
}
