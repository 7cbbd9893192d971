//! Optional capabilities of a store, beyond its requests. If one is missing, a client does without it: it polls, or a dropped guard waits for
//! the reply.

use super::{Claim, Inbox, ReleaseDone};
use crate::error::Error;
use std::time::Duration;

/// The inboxes of a store that has a queue of waiting tenures for each key, and hands the key over to them:
/// [`LockProcessor::queue`](super::LockProcessor::queue). Such a store carries out [`Request::Join`](super::Request::Join) and
/// [`Request::HandOver`](super::Request::HandOver).
///
/// A store with a queue gives a free key to its first live waiter before any other client, whether the request is an acquire, a poll or a
/// release. A waiter is live while its client has an open inbox. [`StoreLimits::dead_waiters`](super::StoreLimits::dead_waiters) says how soon
/// the store notices that a client has none, and [`StoreLimits::keeps_unheard`](super::StoreLimits::keeps_unheard) says for how long such a
/// waiter keeps its place. A tenure that is given the key gets a [`Message::Granted`](super::Message::Granted). When a first tenure begins to
/// wait for a held key, and at every poll of the first waiter, the store sends the holder a [`Message::Contended`](super::Message::Contended).
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

    /// Sends one message to a client's own inbox, open or not. It is called once before a client first asks for a lock, so that a
    /// missing right to send messages is reported then, by name, and does not leave a waiter without its message. A store on several servers
    /// sends it to the server of the key that is about to be locked. After a failure that is not [`Error::Denied`] the client goes on, and
    /// calls this again a second later at the earliest. The default does nothing.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn check_inbox(&self, _client: &str, _key: &str, _limit: Duration) -> Result<(), Error> {
        Ok(())
    }

    /// Returns whether this client, which has an open inbox, would hear a grant of this key now. If not, its tenures do not join the queue, and
    /// the client polls. This is for a store in which an inbox covers only some of the keys, such as those on one server. It is called under a
    /// mutex, so it must be cheap and must not block. The default is `true`.
    fn hears(&self, _client: &str, _key: &str) -> bool {
        true
    }

    /// Gets a client ready to hear grants of this key. It is called when a tenure is about to wait for a key that it [would not
    /// hear](Self::hears). It must not block for longer than `limit`; if that is zero, it must not block at all. Another thread may wait for
    /// the messages of the client's inbox at the same time. If the client can hear grants only later, the inbox then delivers a
    /// [`Message::Changed`](super::Message::Changed) or [`ChangedAmong`](super::Message::ChangedAmong) for the key. The default does nothing.
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
    /// Ends a tenure as a [`Request::Release`](super::Request::Release) does, but need not wait for the reply. The reply goes to `done`, at
    /// once or later, on any thread. When this returns, the request has been sent, unless `limit` has ended or the
    /// connection broke. The store receives it before any later request of the same client about the key. This may block until the request is
    /// sent, for at most `limit`. Returns `true` if the reply is still outstanding; the caller must then call [`collect`](Self::collect)
    /// periodically.
    fn post_release(&self, claim: &Claim<'_>, limit: Duration, done: ReleaseDone) -> bool;

    /// Posts several releases, each as [`post_release`](Self::post_release) does, and returns `true` if a reply is still outstanding. A store that
    /// can send them together should do so. The default posts one after another.
    fn post_releases(&self, releases: Vec<(Claim<'_>, ReleaseDone)>, limit: Duration) -> bool {
        let post = |(claim, done): (Claim<'_>, ReleaseDone)| self.post_release(&claim, limit, done);
        releases.into_iter().map(post).fold(false, |outstanding, one| outstanding | one)
    }

    /// Posts several releases as [`post_releases`](Self::post_releases) does, but may keep them back until the client's next request or
    /// [`collect`](Self::collect), one of which the caller is about to make. So one write may carry the releases and the requests after them.
    /// The store receives each release before any later request of the same client about the key. A release that is kept back has no limit of
    /// its own. The default posts them at once.
    fn post_releases_with_next(&self, releases: Vec<(Claim<'_>, ReleaseDone)>, limit: Duration) -> bool {
        self.post_releases(releases, limit)
    }

    /// Returns whether [`post_releases_with_next`](Self::post_releases_with_next) keeps releases back, so that neither it nor
    /// [`collect`](Self::collect) waits for anything, such as a connection. The default is `false`.
    fn keeps_back(&self) -> bool {
        false
    }

    /// Sends the releases that are kept back, if there are some, and processes the replies to posted releases that have arrived. Does not wait
    /// for further replies. Returns `true` if some are still outstanding. Covers every release that was posted before this call, by any of the
    /// methods above.
    fn collect(&self) -> bool;
}
