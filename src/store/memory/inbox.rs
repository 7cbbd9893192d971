//! The inbox of a client.

use super::inboxes::{CAPACITY, InboxLink};
use super::store::Shared;
use crate::error::{BackendFailure, Error};
use crate::port::{Inbox, InboxBreaker, Message};
use crossbeam_channel::{Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// One subscription. While it exists, the client counts as alive.
pub(super) struct MemoryInbox {
    shared: Arc<Shared>,
    client: String,
    number: u64,
    receiver: Receiver<Message>,
}

impl MemoryInbox {
    /// Fails with [`Error::Backend`] while the link is cut.
    pub(super) fn open(shared: &Arc<Shared>, link: &Arc<InboxLink>, client: &str) -> Result<Self, Error> {
        let mut store = shared.store.lock();
        link.check()?;
        let (number, receiver) = store.inboxes.subscribe(client, link);
        drop(store);
        Ok(Self { shared: shared.clone(), client: client.to_owned(), number, receiver })
    }
}

impl Inbox for MemoryInbox {
    fn next(&mut self, limit: Duration) -> Result<Option<Message>, Error> {
        // Without a limit to wait, do not wait at all: the channel would yield before it looks, which on a busy core costs milliseconds.
        let received = match self.receiver.try_recv() {
            Err(TryRecvError::Empty) if !limit.is_zero() => self.receiver.recv_timeout(limit),
            received => received.map_err(|error| match error {
                TryRecvError::Empty => RecvTimeoutError::Timeout,
                TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            }),
        };
        match received {
            Ok(message) => Ok(Some(message)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Error::backend(
                BackendFailure::NotExecuted,
                format!(
                    "the inbox of {:?} is closed: by its owner, by a cut, or because it had {CAPACITY} unread messages",
                    self.client
                ),
            )),
        }
    }

    fn breaker(&self) -> Box<dyn InboxBreaker> {
        Box::new(MemoryBreaker {
            shared: Arc::downgrade(&self.shared),
            client: self.client.clone(),
            number: self.number,
        })
    }
}

/// Ends a subscription from another thread, by disconnecting its receiver.
struct MemoryBreaker {
    shared: Weak<Shared>,
    client: String,
    number: u64,
}

impl InboxBreaker for MemoryBreaker {
    fn cut(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.store.lock().inboxes.unsubscribe(&self.client, self.number);
        }
    }
}

impl Drop for MemoryInbox {
    fn drop(&mut self) {
        // Clients own inboxes, and the store never does, so no inbox is dropped under the mutex.
        self.shared.store.lock().inboxes.unsubscribe(&self.client, self.number);
    }
}

#[cfg(test)]
#[path = "../../../tests/white_box/store/memory/inbox.rs"]
mod tests;
