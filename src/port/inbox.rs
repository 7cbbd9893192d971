//! The messages that a store sends to a client, and the inbox in which the client receives them.

use super::Grant;
use crate::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A message in a client's inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// A waiting tenure was granted its key.
    Granted {
        /// The lock's unique key.
        key: String,
        /// The locker that holds it now.
        locker: String,
        /// Its fence number, and how many tenures wait behind it.
        grant: Grant,
    },
    /// Other clients wait for a key that a tenure of this client holds.
    Contended {
        /// The lock's unique key.
        key: String,
        /// The holding locker.
        locker: String,
    },
    /// A tenure of this client has lost its key to a [forced break](super::Request::Break). The client at once asks the store about the key,
    /// because a message may be forged.
    Broken {
        /// The lock's unique key.
        key: String,
        /// The locker that held it.
        locker: String,
    },
    /// Messages about a key, or about any key, may be missing: they were merged or lost, or the inbox covers this key
    /// only from now on. The client asks at once about the keys that it waits for, and assumes that others wait for those that it holds.
    Changed {
        /// The lock's unique key; `None` for all keys.
        key: Option<String>,
    },
    /// A text from another client: [`Directory::say`](super::Directory::say).
    Said {
        /// The text, which may be written by anybody.
        text: String,
    },
    /// The same as [`Changed`](Self::Changed), for some of the keys, such as those on one server. The store need not know which keys the
    /// client uses.
    ChangedAmong {
        /// The keys.
        keys: KeyFilter,
    },
}

/// Some of a store's keys.
#[derive(Clone)]
pub struct KeyFilter(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl KeyFilter {
    /// Makes a filter of a function that returns whether a key is among them. The function is called for every key of the client, with no mutex
    /// held.
    pub fn new(is_among: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_among))
    }

    /// Returns whether a key is among them.
    #[must_use]
    pub fn matches(&self, key: &str) -> bool {
        (self.0)(key)
    }
}

impl fmt::Debug for KeyFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyFilter").finish_non_exhaustive()
    }
}

/// Two filters are equal if one is a clone of the other.
impl PartialEq for KeyFilter {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for KeyFilter {}

/// A subscription to the messages of a store to one client. Dropping it ends the subscription.
pub trait Inbox: Send {
    /// Waits for the next message, for at most `limit`. Returns `None` if there was none.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if the subscription is broken. Messages may have been lost: open a new inbox.
    fn next(&mut self, limit: Duration) -> Result<Option<Message>, Error>;

    /// Returns a handle with which another thread can make a waiting or later [`next`](Self::next) fail.
    fn breaker(&self) -> Box<dyn InboxBreaker>;
}

/// Breaks an [`Inbox`] from another thread.
pub trait InboxBreaker: Send + Sync {
    /// Makes a waiting `next`, and every later one, fail soon. Does not block.
    fn cut(&self);
}
