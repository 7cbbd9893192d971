//! How an inbox is opened, and found by the threads that lock.

use super::super::core::Cluster;
use super::ClusterInbox;
use super::ears::Ears;
use super::line::LineId;
use super::rests::Rests;
use super::waker::Waker;
use crate::error::{BackendFailure, Error};
use crate::store::redis::script::slot::slot_of;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

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
        let ears = Arc::new(Ears::new(client, waker));
        self.ears.write().push(Arc::clone(&ears));
        Ok(ClusterInbox {
            cluster,
            ears,
            lines: Vec::new(),
            pending: HashMap::new(),
            rests: Rests::default(),
            lost: HashSet::new(),
            changed: HashSet::new(),
            detours: HashMap::new(),
            messages: VecDeque::new(),
            tell_at: None,
            view: self.view(),
            look_at: Instant::now(),
            last_line: LineId(0),
            has_warned: false,
        })
    }

    /// Forgets the ears of an inbox that is closed.
    pub(super) fn forget(&self, ears: &Arc<Ears>) {
        self.ears.write().retain(|other| !Arc::ptr_eq(other, ears));
    }

    fn ears_of(&self, client: &str) -> Option<Arc<Ears>> {
        // The last one, if an earlier inbox of the client is about to end.
        self.ears.read().iter().rev().find(|ears| ears.client == client).cloned()
    }

    /// Returns `true` if a client hears of grants of this key.
    pub(crate) fn hears(&self, client: &str, key: &str) -> bool {
        let ears = self.ears.read();
        ears.iter().rev().find(|ears| ears.client == client).is_some_and(|ears| ears.hears(slot_of(key.as_bytes())))
    }

    /// Waits until a client hears of grants of this key, for at most `limit`.
    ///
    /// # Errors
    ///
    /// Why it does not hear yet.
    pub(crate) fn get_ready_to_hear(&self, client: &str, key: &str, limit: Duration) -> Result<(), Error> {
        match self.ears_of(client) {
            Some(ears) => ears.get_ready(slot_of(key.as_bytes()), key, limit),
            None => Err(Error::backend(BackendFailure::NotExecuted, "the client has no open inbox")),
        }
    }

    /// Notes that a tenure of a client, with this lease, holds or waits for a key now.
    pub(crate) fn note_need(&self, client: &str, key: &str, lease: Duration) {
        let ears = self.ears.read();
        if let Some(ears) = ears.iter().rev().find(|ears| ears.client == client) {
            ears.note_need(slot_of(key.as_bytes()), lease);
        }
    }
}
