//! All open inboxes: how the store reaches a client, and how it knows that the client is alive.

use crate::error::{BackendFailure, Error};
use crate::port::Message;
use crossbeam_channel::{Receiver, Sender};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many messages an inbox keeps for a client that does not read. Redis cuts such a subscriber off, too.
pub(super) const CAPACITY: usize = 65_536;

/// A connection to the store, shared by the clones of one processor. Like one to a server, it may be cut and come back.
#[derive(Debug, Default)]
pub(super) struct InboxLink {
    /// Written under the store's mutex, and read under it by every request. So no request is executed after the cut.
    // ORDERING: Relaxed: guarded by that mutex. Only `check_inbox` loads it without the mutex, and changes nothing.
    cut: AtomicBool,
}

impl InboxLink {
    /// Fails with [`Error::Backend`] (`NotExecuted`) while the link is cut.
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

/// All open inboxes, by client. A client may have several, as a channel may have several subscribers: for example, while it replaces
/// one.
#[derive(Default)]
pub(super) struct Inboxes {
    by_client: HashMap<String, Vec<InboxSubscription>>,
    opened: u64,
}

struct InboxSubscription {
    number: u64,
    #[cfg_attr(not(any(test, feature = "test-util")), expect(dead_code, reason = "only a test cuts it"))]
    link: Arc<InboxLink>,
    sender: Sender<Message>,
}

impl Inboxes {
    pub(super) fn subscribe(&mut self, client: &str, link: &Arc<InboxLink>) -> (u64, Receiver<Message>) {
        let (sender, receiver) = crossbeam_channel::unbounded();
        self.opened += 1;
        let number = self.opened;
        self.by_client.entry(client.to_owned()).or_default().push(InboxSubscription {
            number,
            link: Arc::clone(link),
            sender,
        });
        (number, receiver)
    }

    /// Ends the subscriptions of a link that is cut.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn cut(&mut self, link: &Arc<InboxLink>) {
        self.by_client.retain(|_, subscriptions| {
            subscriptions.retain(|subscription| !Arc::ptr_eq(&subscription.link, link));
            !subscriptions.is_empty()
        });
    }

    pub(super) fn unsubscribe(&mut self, client: &str, number: u64) {
        self.retain(client, |subscription| subscription.number != number);
    }

    /// Keeps only the wanted subscriptions of a client, and removes a client that has none left.
    fn retain(&mut self, client: &str, wanted: impl FnMut(&InboxSubscription) -> bool) {
        if let Some(subscriptions) = self.by_client.get_mut(client) {
            subscriptions.retain(wanted);
            if subscriptions.is_empty() {
                self.by_client.remove(client);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_client.is_empty()
    }

    /// Whether the client of this locker has an inbox. A locker without a client has none.
    pub(super) fn hears(&self, locker: &str) -> bool {
        client_of(locker).is_some_and(|client| self.by_client.contains_key(client))
    }

    /// Sends a message to the client of this locker, if it has an inbox. Never blocks.
    ///
    /// A subscriber with a full inbox loses its subscription. It learns that after it has read the messages that are there.
    pub(super) fn tell(&mut self, locker: &str, message: impl Fn() -> Message) {
        if let Some(client) = client_of(locker) {
            self.tell_client(client, message);
        }
    }

    /// The same, by the client's id. Returns whether the client has an inbox.
    pub(super) fn tell_client(&mut self, client: &str, message: impl Fn() -> Message) -> bool {
        self.retain(client, |InboxSubscription { sender, .. }| {
            sender.len() < CAPACITY && sender.send(message()).is_ok()
        });
        self.by_client.contains_key(client)
    }
}

/// The client id in a locker: everything before its last `-`. Lockers of the JVM may have any shape, so there may be none.
fn client_of(locker: &str) -> Option<&str> {
    locker.rsplit_once('-').map(|(client, _)| client)
}

#[cfg(test)]
#[path = "../../../tests/white_box/store/memory/inboxes.rs"]
mod tests;
