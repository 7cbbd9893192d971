//! What a store may be able to do beyond its requests. A client does without what is missing: it polls, asks one by one, and
//! gives a key back sooner.

use super::{Claim, Inbox, ReleaseDone};
use crate::error::Error;
use std::time::Duration;

/// The inboxes of a store that has a queue of waiting tenures for each key, and hands the key over to them:
/// [`LockProcessor::queue`](super::LockProcessor::queue). Such a store carries out [`Request::Join`](super::Request::Join) and
/// [`Request::HandOver`](super::Request::HandOver).
///
/// In a store with a queue, a free key for which others wait is given to the first live waiter before anybody else: by an acquire, by a
/// poll, and by a release, which otherwise frees it. A waiter is live while its client has an open inbox
/// ([`StoreLimits::dead_waiters`](super::StoreLimits::dead_waiters) says how soon the store notices that it has none, and
/// [`StoreLimits::keeps_unheard`](super::StoreLimits::keeps_unheard) for how long such a waiter keeps its place), and a tenure that is given the
/// key gets a [`Message::Granted`](super::Message::Granted). The first tenure to wait for a held key makes the store send
/// its holder a [`Message::Contended`](super::Message::Contended), and so does every poll of the tenure that waits first.
///
/// All methods fail as those of [`LockProcessor`](super::LockProcessor) do, and each method with a `limit` blocks for at most that.
pub trait WaitQueue: Send + Sync {
    /// Opens the inbox of a client. When this returns, the store counts the client's waiting tenures as live and delivers every later
    /// message.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error>;

    /// Sends one message to a client's own inbox, open or not. Called once before a client first asks for a lock, so that a
    /// missing right to send messages is reported then, by name, and does not leave a waiter without its message. A store on several servers
    /// sends it where the key is that is about to be locked. After a failure that is not [`Error::Denied`] the client goes on, and calls
    /// this again a second later at the earliest. The default does nothing.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn check_inbox(&self, _client: &str, _key: &str, _limit: Duration) -> Result<(), Error> {
        Ok(())
    }

    /// Returns whether this client, which has an open inbox, would hear a grant of this key now. While it would not, its tenures do not
    /// join the queue, and the client polls. For a store in which an inbox covers a part of the keys, such as those on one server. Called
    /// under a mutex, so it must be cheap and must not block. The default is `true`.
    fn hears(&self, _client: &str, _key: &str) -> bool {
        true
    }

    /// Gets a client ready to hear grants of this key. Called when a tenure is about to wait for a key that it [would not hear](Self::hears). It
    /// must not block for longer than `limit`; without time it does not block. Another thread waits for the messages of the client's inbox
    /// meanwhile. If the client hears only later, the inbox delivers a
    /// [`Message::Changed`](super::Message::Changed) for the key then. The default does nothing.
    ///
    /// # Errors
    ///
    /// See the trait. The client then polls.
    fn get_ready_to_hear(&self, _client: &str, _key: &str, _limit: Duration) -> Result<(), Error> {
        Ok(())
    }
}

/// Releases that nobody waits for: [`LockProcessor::posting`](super::LockProcessor::posting). In a store without it, a dropped guard waits
/// for the reply.
pub trait Posting: Send + Sync {
    /// Ends a tenure as a [`Request::Release`](super::Request::Release) does, but need not wait for the reply, which goes to `done`, at once or
    /// later, on whichever thread finds it. When this returns, the request has been sent, unless `limit` has ended or the
    /// connection broke; it comes before whatever the same client sends about the key afterwards. It may block until then, for at
    /// most `limit`. Returns `true` if the reply is still outstanding; the caller must then call [`collect`](Self::collect)
    /// periodically.
    fn post_release(&self, claim: &Claim<'_>, limit: Duration, done: ReleaseDone) -> bool;

    /// Processes the replies to posted releases that have arrived. Does not wait for more. Returns `true` if some are still outstanding.
    /// A release whose `post_release` has returned before this is called is seen by it.
    fn collect(&self) -> bool;
}
