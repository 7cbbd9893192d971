//! How an inbox is opened.

use super::super::core::Cluster;
use super::ClusterInbox;
use super::cooldowns::PlaceCooldowns;
use super::slot_subscriptions::SlotSubscriptions;
use super::subscriber::SubscriberId;
use super::waker::Waker;
use crate::error::{BackendFailure, Error};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

impl Cluster {
    /// Opens the inbox of a client, which hears nothing yet. Does not ask any node.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if the operating system has no more sockets.
    pub(crate) fn open_inbox(&self, client: &str) -> Result<ClusterInbox, Error> {
        let cluster = self.this.upgrade().ok_or(Error::ShutDown)?;
        // The one thing that may fail here. Nodes are asked later, by the listening thread: an inbox that opens without a node costs a lock
        // nothing while the Cluster is down, and needs no retry of its own.
        let waker = Waker::new().map_err(|cause| {
            let message = format!("the operating system refused a pair of sockets: {cause}");
            Error::backend_caused_by(BackendFailure::NotExecuted, message, cause)
        })?;
        let subscriptions = Arc::new(SlotSubscriptions::new(client, waker));
        // From now on threads that lock find it, and make slots due. That is early enough, since the caller reads from it next.
        self.listeners.add(&subscriptions);
        Ok(ClusterInbox {
            cluster,
            subscriptions,
            subscribers: Vec::new(),
            pending: HashMap::new(),
            cooldowns: PlaceCooldowns::default(),
            lost: HashSet::new(),
            changed: HashSet::new(),
            detours: HashMap::new(),
            messages: VecDeque::new(),
            tell_at: None,
            // With the present map nothing is due. The first newer one is compared with it.
            view: self.map.view(),
            look_at: Instant::now(),
            last_subscriber: SubscriberId(0),
            has_warned: false,
        })
    }
}
