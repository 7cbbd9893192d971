//! What a store has to say to a client, and how it is heard.

use super::Grant;
use crate::error::Error;
use std::time::Duration;

/// What a client hears in its inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// A waiting tenure was given its key.
    Granted {
        /// The lock's unique key.
        key: String,
        /// The locker that holds it now.
        locker: String,
        /// Its fence number and how many wait behind it.
        grant: Grant,
    },
    /// Others wait for a key that a tenure of this client holds.
    Contended {
        /// The lock's unique key.
        key: String,
        /// The holding locker.
        locker: String,
    },
}

/// A subscription to what a store has to say to one client; it ends when dropped.
pub trait Inbox: Send {
    /// Waits for the next message, at most `limit`; `None` when there was none.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] when the subscription is broken: messages may have been lost, open a new one.
    fn next(&mut self, limit: Duration) -> Result<Option<Message>, Error>;

    /// Something by which another thread ends a [`next`](Self::next) that waits, now or later: it fails then.
    fn breaker(&self) -> Box<dyn InboxBreaker>;
}

/// Breaks an [`Inbox`] from another thread.
pub trait InboxBreaker: Send + Sync {
    /// Makes a waiting `next`, and every later one, fail soon. Does not block.
    fn cut(&self);
}
