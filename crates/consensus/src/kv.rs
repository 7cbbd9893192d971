//! What the protocol needs of a consensus store: entries, sessions that hold entries, and transactions.
//!
//! | here | etcd | Consul |
//! |---|---|---|
//! | session | lease | session with the behaviour `delete` |
//! | index | revision | Raft index |
//! | an entry is held | it is attached to a lease, or to none | it is locked by a session |
//! | many sessions are renewed by | one request, a stream | a request each; long holds may share one |
//! | many keys are looked at by | a transaction of 128 reads | a transaction of 128 reads; of 64 in older versions |
//!
//! Requests about many sessions or keys only save requests. A store without them does the same one by one, with the same outcomes.

use super::deadline::Deadline;
use super::timing::{A_YEAR, COMMAND, ELECTION};
use redis_dlock::Error;
use redis_dlock::port::{Claim, DeadWaiters, StoreLimits};
use std::fmt;
use std::time::Duration;

/// An entry of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) path: String,
    pub(super) value: Vec<u8>,
    /// The session that holds it. The entry is deleted when the session ends.
    pub(super) session: Option<String>,
    /// Whether somebody holds it. An entry of etcd that is attached to no lease is held for ever; one of Consul without a session is free.
    pub(super) is_held: bool,
    /// Whether its kind is that of a lock. Consul's entries have a flag for it.
    pub(super) is_ours: bool,
    /// The index at which it was created.
    pub(super) created: u64,
    /// The index at which it was changed last.
    pub(super) changed: u64,
}

/// A condition for a transaction to be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// This session holds the entry.
    HeldBy { path: String, session: String },
    /// There is no such entry.
    Free { path: String },
    /// The entry has not changed since this index.
    Unchanged { path: String, index: u64 },
    /// No session holds an entry with this prefix. A store that cannot check this executes the transaction, and its answer has the entries.
    Nothing { prefix: String },
}

/// What a transaction writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// Has a session hold an entry that it holds already, or that nobody holds.
    Hold { path: String, session: String, value: Vec<u8> },
    /// Has another session hold an entry.
    Pass { path: String, from: String, to: String, value: Vec<u8> },
    /// Deletes an entry.
    Delete { path: String },
    /// Sets the entry of an inbox. Where the store counts messages by locks, this session locks and unlocks the entry in the same step.
    Say { path: String, session: String, value: Vec<u8> },
}

/// Checks, writes and a look at the entries of a key, as one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Transaction {
    pub(super) checks: Vec<Check>,
    pub(super) writes: Vec<Write>,
    /// The entries with this prefix are returned as they are after the writes.
    pub(super) look: String,
}

/// The result of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Committed {
    /// It was executed at this index.
    Done { index: u64, entries: Vec<Entry> },
    /// A check failed, and nothing was written. Contains the entries, if the store returns them.
    Refused(Option<Vec<Entry>>),
    /// A session that should hold something has ended, and nothing was written.
    NoSession,
    /// Nobody may hold the entry for a while, because a session that asked for it has ended while it held it; nothing was written. This is
    /// Consul's lock-delay.
    #[cfg_attr(not(any(feature = "consul", all(test, dlock_shuttle))), expect(dead_code, reason = "others have none"))]
    Delayed,
}

/// How long a session lives, and for how long its end keeps others out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Life {
    /// The time that it lives without a renewal. It is longer than a tenure needs, so that the session serves several tenures before it must be
    /// renewed.
    pub(super) time: Duration,
    /// The time for which it must certainly live when a tenure begins with it.
    pub(super) needed: Duration,
    /// How long nobody may hold the entries that it held at its end. Zero if the store has no such delay.
    pub(super) delay: Duration,
}

/// How many prefixes a transaction looks at. Both stores take as many operations by default.
pub(super) const LOOKS: usize = 128;

/// Returns what every such store can keep to. Its leader counts a session, and a new leader begins all sessions again. So the end of a dead
/// holder, or of a dead waiter before us, may come after an election, and three leases are enough for it. Only the leader knows how much of
/// a session is left.
pub(super) fn limits(shortest_lease: Duration) -> StoreLimits {
    let mut limits = StoreLimits::default();
    limits.shortest_lease = shortest_lease;
    limits.command = COMMAND;
    limits.outage = ELECTION;
    limits.dead_holder_leases = 3;
    limits.dead_waiters = DeadWaiters::AfterLeases(3);
    limits.remaining_known = false;
    limits.longest_release_delay = A_YEAR;
    limits.shortest_release_delay = shortest_lease;
    limits
}

/// A client of such a store. Its methods fail as those of [`LockProcessor`](redis_dlock::port::LockProcessor) do. None of them sends a
/// request a second time that may have been executed.
pub(super) trait Kv: Send + Sync + fmt::Debug + 'static {
    /// Returns the limits of the store.
    fn limits(&self) -> StoreLimits;

    /// Returns whether it has ever answered.
    fn has_answered(&self) -> bool;

    /// Returns the life of a tenure's session.
    fn life(&self, claim: &Claim<'_>) -> Life;

    /// Returns the life of a session that holds a key for this time, and serves no tenure.
    fn delay(&self, time: Duration) -> Life;

    /// Creates a session for a client, and returns its name.
    fn open_session(&self, life: Life, client: &str, deadline: Deadline) -> Result<String, Error>;

    /// Returns whether the end of a session of this kind keeps others out for a while from what it held.
    fn keeps_shut(&self, _life: Life) -> bool {
        false
    }

    /// Returns a number that rises when the answers show that another server has begun to lead. It is always 0 for a store whose former leaders renew
    /// no session in vain.
    fn term(&self) -> u64 {
        0
    }

    /// Starts the life of a session again. `false` says that it has ended, or that a server which has just begun to lead does not know it yet.
    fn renew(&self, session: &str, deadline: Deadline) -> Result<bool, Error>;

    /// Renews several sessions, the most urgent ones first.
    fn renew_all(&self, sessions: &[&str], deadline: Deadline) -> Vec<Result<bool, Error>> {
        sessions.iter().map(|session| self.renew(session, deadline)).collect()
    }

    /// How many sessions are renewed before the first look at their keys. A store that renews one session with each request begins to look early.
    fn renewed_together(&self) -> usize {
        LOOKS
    }

    /// How many long holds of a client keep sessions of their own, at most, before they come to [share](super::shared) one. A store that renews all
    /// sessions by one request does not need that.
    fn most_own_sessions(&self) -> usize {
        usize::MAX
    }

    /// Whether new sessions end with an agent or a server. If so, no hold is moved onto them.
    fn has_no_node(&self) -> bool {
        false
    }

    /// Ends a session, and deletes the entries that it holds. Afterwards no request with this session takes effect, even if the session had ended
    /// before.
    fn end_session(&self, session: &str, deadline: Deadline) -> Result<(), Error>;

    /// Executes a transaction.
    fn commit(&self, transaction: &Transaction, deadline: Deadline) -> Result<Committed, Error>;

    /// Returns the entries with a prefix as a majority has them, never a stale copy.
    fn look(&self, prefix: &str, deadline: Deadline) -> Result<Vec<Entry>, Error>;

    /// Looks at several prefixes, [`LOOKS`] at most, perhaps at different indices. No prefix is the beginning of another one. Of each key it returns
    /// at least the first two entries from the lock's on, in the order of their paths. The second is a waiter's, unless another program has written
    /// an entry that comes before the waiters.
    fn look_all(&self, prefixes: &[String], deadline: Deadline) -> Result<Vec<Vec<Entry>>, Error> {
        prefixes.iter().map(|prefix| self.look(prefix, deadline)).collect()
    }

    /// Returns some of the entries with a prefix from this path on, in the order of their paths, as they are at one index. Also returns whether there
    /// are more. If there are, it returns at least one. A store without pages returns all.
    fn page(&self, prefix: &str, from: &str, deadline: Deadline) -> Result<(Vec<Entry>, bool), Error> {
        let mut entries = self.look(prefix, deadline)?;
        entries.retain(|entry| entry.path.as_str() >= from);
        entries.sort_by(|one, other| one.path.cmp(&other.path));
        Ok((entries, false))
    }

    /// Returns whether a listener sees only the last of several changes. If so, words of other clients, and the order that broke a hold, have entries
    /// below the inbox. A listener is told of those entries, too, and deletes them once it has heard them.
    fn shows_the_last(&self) -> bool {
        false
    }

    /// Begins to listen to an entry. Every change after this returns is told, perhaps several as one.
    fn listen(&self, path: &str, deadline: Deadline) -> Result<Box<dyn Listening>, Error>;

    /// Ends all connections. Later calls fail.
    fn close(&self);
}

/// A change of an entry, or several at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) value: Vec<u8>,
    /// The index of the last change.
    pub(super) index: u64,
    /// Whether earlier changes have come that are not told.
    pub(super) is_merged: bool,
}

/// A connection that tells the changes of an entry.
pub(super) trait Listening: Send {
    /// Waits for a change. Fails once the connection has ended or was cut.
    fn next(&mut self) -> Result<Option<Change>, Error>;

    /// Returns a function that cuts the connection from another thread.
    fn cutter(&self) -> Box<dyn Fn() + Send + Sync>;
}
