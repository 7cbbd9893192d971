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
        let waker = Waker::new().map_err(|cause| {
            let message = format!("the operating system refused a pair of sockets: {cause}");
            Error::backend_caused_by(BackendFailure::NotExecuted, message, cause)
        })?;
        let subscriptions = Arc::new(SlotSubscriptions::new(client, waker));
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
            view: self.map.view(),
            look_at: Instant::now(),
            last_subscriber: SubscriberId(0),
            has_warned: false,
        })
    }
}
