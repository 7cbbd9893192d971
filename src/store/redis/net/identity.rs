//! Which server answers. Another server than before may answer at the same address: after a restart, after a restore from a backup, after a
//! replica was promoted, or because the name leads elsewhere now.
//!
//! A server says who it is in its answer to `INFO`, which is part of the handshake of each connection. The answer contains a run id, which
//! a restart changes, and a replication id, which a promotion changes. *The number* counts how often another server than before has
//! answered. Each new connection compares its answer with that of the connection before it:
//!
//! | the last server | the new connection's server | what follows |
//! |---|---|---|
//! | none yet | any | nothing: there is nothing to compare |
//! | known | the same | nothing |
//! | known | another | all older connections are cut, and the number rises |
//! | known or not | not known, or known only now, at another address | all older connections are cut, and the number rises |
//! | known or not | not known, or known only now, at the same address | the number rises |
//! | known | the one before the last, a moment later, at the same address | the number rises |
//!
//! 1. *The number never falls*, and it rises before the new connection is used. So a thread that reads the number after an answer on a
//!    connection sees at least the number of that connection.
//! 2. *Connections to the earlier server are cut*, before the number rises. That server may be a demoted master that still answers, and its
//!    answers must not count any more. Calls that are in flight there have an unknown outcome.
//! 3. *Where `INFO` is not allowed, every new connection counts as one to a new server*: the client then asks about all that it holds and
//!    waits for, which costs little. But no connection to the same address is cut, because two connections to one server would cut each
//!    other for ever. For the same reason no connection is cut if an address leads to two servers in turn. When the number has risen, each
//!    older connection that was not cut is checked before its next write, however short a time ago it was used (`transport/mux/state.rs`):
//!    the earlier server may have closed it, and a call on it would then have an unknown outcome.
//! 4. *A connection to a server that moved away meanwhile is not used*: the finder of the address is asked whether the address is still
//!    right. It is asked under the mutex under which the last server is noted.
//!
//! After each rise, the thread that has connected calls the functions that were given to [`tell`](Servers::tell), so no code needs to
//! compare the number after an answer. The client then makes every wait, hold and clean-up due. The plain attempt no longer trusts fence
//! numbers that it has read before. Fence numbers that are read from the earlier server after that are not used either: their connection was cut, or
//! always led to another server.

use super::address::{Address, Place};
use super::connector::Shutdown;
use super::socket::Socket;
use super::timing::IN_TURN;
use crate::log;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use ::redis::Value;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// The sections of `INFO` that say who a server is.
pub(crate) const QUESTION: &[&str] = &["INFO", "server", "replication"];

/// What a server says of itself. A restart changes the run id; a promotion, and a replica's new history, change the replication id.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    run_id: String,
    replication_id: String,
}

impl Identity {
    /// Reads the answer to [`QUESTION`]. Returns `None` if the server does not say who it is: the user may not ask, or a proxy answers.
    pub(crate) fn read(reply: &Value) -> Option<Self> {
        let text = match reply {
            Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?,
            Value::SimpleString(text) => text,
            Value::VerbatimString { text, .. } => text,
            _ => return None,
        };
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.trim();
            (!value.is_empty()).then(|| value.to_owned())
        };
        Some(Self { run_id: field("run_id")?, replication_id: field("master_replid")? })
    }
}

/// Shows the beginnings, as Redis does in its log.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begin = |text: &str| text.chars().take(8).collect::<String>();
        write!(f, "run {}, replication {}", begin(&self.run_id), begin(&self.replication_id))
    }
}

/// The servers that have answered a store, one after another, counted by a number. All connections of the store share this.
#[derive(Default)]
pub(crate) struct Servers {
    // ORDERING: Relaxed: `meet` and `rise` add to it with the mutex of `last` held; `meet` does so before the connection is used. `number`
    // loads it. A thread that has an answer on that connection has taken a mutex after the addition.
    number: AtomicU64,
    last: Mutex<Last>,
}

/// A function that is called with the number after each rise. It must not block.
pub(crate) type OnNewServer = dyn Fn(u64) + Send + Sync;

/// Ends a connection, and tells which server has answered the store last.
pub(crate) struct ConnectionCut {
    pub(super) socket: Arc<Socket>,
    pub(super) servers: Arc<Servers>,
}

impl Shutdown for ConnectionCut {
    fn cut(&self) {
        self.socket.cut();
    }

    fn server(&self) -> u64 {
        self.servers.number()
    }
}

/// What the last connection was told, and the functions to call when another server answers.
#[derive(Default)]
struct Last {
    /// `None` if the server did not say who it is.
    identity: Option<Identity>,
    /// `None` before the first connection.
    place: Option<Place>,
    /// The server before it, and when it was replaced.
    earlier: Option<(Identity, Instant)>,
    /// The connections to that server.
    connections: Vec<Weak<Socket>>,
    /// Whether a server was refused because it is a node of a Cluster.
    is_cluster: bool,
    /// Called after each rise of the number.
    on_new_server: Vec<Arc<OnNewServer>>,
}

impl Servers {
    /// Returns the number of the server that answered last: how often another server than before has answered.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed) // ORDERING: Relaxed: see the field.
    }

    /// Notes that a server was refused because it is a node of a Cluster.
    pub(crate) fn note_cluster(&self) {
        self.last.lock().is_cluster = true;
    }

    /// Returns `true` if a server was refused because it is a node of a Cluster.
    pub(crate) fn is_cluster(&self) -> bool {
        self.last.lock().is_cluster
    }

    /// Adds a function to call after each rise of the number.
    pub(crate) fn tell(&self, on_new_server: Box<OnNewServer>) {
        self.last.lock().on_new_server.push(Arc::from(on_new_server));
    }

    /// Returns where the last connection was made.
    pub(crate) fn last_place(&self) -> Option<Place> {
        self.last.lock().place.clone()
    }

    /// Notes a new connection to a server, before it is used. Cuts the connections to an earlier server. Returns `false` if the finder does
    /// not name this address any more: then the connection must not be used.
    pub(crate) fn meet(
        &self,
        identity: Option<Identity>,
        address: &Address,
        connection: &Arc<Socket>,
        is_followed: &dyn Fn() -> bool,
    ) -> bool {
        let mut last = self.last.lock();
        if !is_followed() {
            return false;
        }
        let is_same = last.place.is_none() || identity.is_some() && last.identity == identity;
        let tell = (!is_same).then(|| {
            last.replace_by(identity.as_ref(), address);
            self.rise_in(&last)
        });
        last.identity = identity;
        last.place = Some(address.place.clone());
        last.connections.retain(|connection| connection.strong_count() > 0);
        last.connections.push(Arc::downgrade(connection));
        drop(last);
        if let Some(tell) = tell {
            tell();
        }
        true
    }

    /// Raises the number for another reason than a connection, and calls the functions that wait for a rise.
    pub(crate) fn rise(&self) {
        let tell = self.rise_in(&self.last.lock());
        tell();
    }

    /// Raises the number. Returns a closure that calls the functions that wait for a rise. Call it without the mutex, because threads that these
    /// functions wake may call methods of [`Servers`] at once.
    fn rise_in(&self, last: &Last) -> impl FnOnce() + use<> {
        let number = self.number.fetch_add(1, Ordering::Relaxed) + 1; // ORDERING: Relaxed: see the field.
        let on_new_server = last.on_new_server.clone();
        move || on_new_server.iter().for_each(|on_new_server| on_new_server(number))
    }
}

impl Last {
    /// Cuts the connections to the last server if the next one is certainly another.
    fn replace_by(&mut self, next: Option<&Identity>, address: &Address) {
        let has_moved = self.place.as_ref() != Some(&address.place);
        let before = self.identity.take();
        let is_in_turn = !has_moved
            && self.earlier.as_ref().is_some_and(|(earlier, at)| Some(earlier) == next && at.elapsed() < IN_TURN);
        if let (Some(before), Some(next)) = (&before, next) {
            log::debug!(TRANSPORT, "another server answers at {address} than before: {next:?}, not {before:?}");
        }
        if has_moved || (before.is_some() && next.is_some() && !is_in_turn) {
            let outdated = std::mem::take(&mut self.connections);
            outdated.iter().filter_map(Weak::upgrade).for_each(|connection| connection.cut());
        }
        self.earlier = before.map(|before| (before, Instant::now()));
    }
}

#[cfg(all(test, unix, not(dlock_shuttle)))]
#[path = "../../../../tests/white_box/store/redis/net/identity.rs"]
mod tests;
