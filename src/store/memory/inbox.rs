//! Inboxes: how the store reaches a client, and how it knows that the client is alive.

use super::Shared;
use super::link::Link;
use crate::error::{BackendFailure, Error};
use crate::store::processor::{Inbox, InboxBreaker, Message};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How many messages an inbox keeps for a client that does not read. Redis cuts such a subscriber off, too.
const CAPACITY: usize = 65_536;

/// All open inboxes, by client. A client may have several, as a channel may have several subscribers: for example, while it replaces
/// one.
#[derive(Default)]
pub(super) struct Inboxes {
    by_client: HashMap<String, Vec<Subscription>>,
    opened: u64,
}

struct Subscription {
    number: u64,
    #[cfg_attr(not(any(test, feature = "test-util")), expect(dead_code, reason = "only a test cuts it"))]
    link: Arc<Link>,
    sender: Sender<Message>,
}

impl Inboxes {
    fn subscribe(&mut self, client: &str, link: &Arc<Link>) -> (u64, Receiver<Message>) {
        let (sender, receiver) = crossbeam_channel::unbounded();
        self.opened += 1;
        let number = self.opened;
        self.by_client.entry(client.to_owned()).or_default().push(Subscription {
            number,
            link: Arc::clone(link),
            sender,
        });
        (number, receiver)
    }

    /// Ends the subscriptions of a link that is cut.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn cut(&mut self, link: &Arc<Link>) {
        self.by_client.retain(|_, subscriptions| {
            subscriptions.retain(|subscription| !Arc::ptr_eq(&subscription.link, link));
            !subscriptions.is_empty()
        });
    }

    fn unsubscribe(&mut self, client: &str, number: u64) {
        self.retain(client, |subscription| subscription.number != number);
    }

    /// Keeps only the wanted subscriptions of a client, and removes a client that has none left.
    fn retain(&mut self, client: &str, wanted: impl FnMut(&Subscription) -> bool) {
        if let Some(subscriptions) = self.by_client.get_mut(client) {
            subscriptions.retain(wanted);
            if subscriptions.is_empty() {
                self.by_client.remove(client);
            }
        }
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
            self.retain(client, |Subscription { sender, .. }| {
                sender.len() < CAPACITY && sender.send(message()).is_ok()
            });
        }
    }
}

/// The client id in a locker: everything before its last `-`. Lockers of the JVM may have any shape, so there may be none.
fn client_of(locker: &str) -> Option<&str> {
    locker.rsplit_once('-').map(|(client, _)| client)
}

/// One subscription. While it exists, the client counts as alive.
pub(super) struct MemoryInbox {
    shared: Arc<Shared>,
    client: String,
    number: u64,
    receiver: Receiver<Message>,
}

impl MemoryInbox {
    /// # Errors
    ///
    /// [`Error::Backend`] while the link is cut.
    pub(super) fn open(shared: &Arc<Shared>, link: &Arc<Link>, client: &str) -> Result<Self, Error> {
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
mod tests {
    use super::*;
    use crate::store::memory::MemoryLockProcessor;

    fn open(processor: &MemoryLockProcessor) -> MemoryInbox {
        MemoryInbox::open(&processor.shared, &processor.link, "a-b").expect("reachable")
    }

    fn contended() -> Message {
        Message::Contended { key: "k".to_owned(), locker: "a-b-1".to_owned() }
    }

    #[test]
    fn a_client_is_what_stands_before_the_last_dash() {
        assert_eq!(client_of("host-7-ab-12"), Some("host-7-ab"));
        assert_eq!(client_of("jvm"), None);
    }

    #[test]
    fn a_client_listens_until_its_last_inbox_is_dropped() {
        let processor = MemoryLockProcessor::new();
        let hears = || processor.shared.store.lock().inboxes.hears("a-b-1");
        assert!(!hears());
        let mut old = open(&processor);
        let mut new = open(&processor);
        processor.shared.store.lock().inboxes.tell("a-b-1", contended);
        for inbox in [&mut old, &mut new] {
            assert_eq!(inbox.next(Duration::ZERO).expect("open"), Some(contended()));
            assert_eq!(inbox.next(Duration::ZERO).expect("open"), None);
        }
        drop(old);
        assert!(hears());
        drop(new);
        assert!(!hears());
        assert!(processor.shared.store.lock().inboxes.by_client.is_empty());
    }

    #[test]
    fn a_client_that_does_not_read_is_cut_off() {
        let processor = MemoryLockProcessor::new();
        let mut inbox = open(&processor);
        for _ in 0..=CAPACITY {
            processor.shared.store.lock().inboxes.tell("a-b-1", contended);
        }
        assert!(!processor.shared.store.lock().inboxes.hears("a-b-1"));
        for _ in 0..CAPACITY {
            assert_eq!(inbox.next(Duration::ZERO).expect("still there"), Some(contended()));
        }
        assert!(inbox.next(Duration::ZERO).is_err());
    }
}
