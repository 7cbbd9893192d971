//! Which server answers. Another one may answer behind the same address: the server was restarted, restored from a backup, a replica was
//! promoted, or the name leads elsewhere.
//!
//! A server says who it is in its answer to `INFO`, which each connection asks for in the write of its handshake: a run id, which a restart
//! changes, and a replication id, which a promotion changes. Each new connection compares that with what the connection before it was told:
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
//! 1. *The number never falls*, and it rises before the new connection is used. So whoever reads it after an answer on a connection sees at
//!    least the number of that connection.
//! 2. *Connections to the earlier server end*, before the number rises. It may be a demoted master that still answers; nothing that it says
//!    counts any more. What is in flight there has an unknown outcome.
//! 3. *Where `INFO` is not allowed, every new connection counts as one to a new server*: the client then asks about all that it holds and
//!    waits for, which costs little. But no connection to the same address is cut, because two connections to one server would cut each
//!    other for ever. So would connections to an address that leads to two servers in turn.
//!    When the number has risen, each older connection that was not cut is checked before its next write, however short a time ago it was
//!    used (`transport/mux/state.rs`): a call on one that another server has closed would have an unknown outcome.
//! 4. *A connection to a server that moved away meanwhile does not count*: whoever has found the address says whether it still holds, under
//!    the mutex under which the last server is noted.
//!
//! Whoever must know is told after each rise ([`tell`](Servers::tell)), on the thread that has connected: nobody asks for the number after an
//! answer. The client then makes every wait and every hold due, and the plain attempt trusts no number any more that it has read
//! before. Numbers that were read under a proof of the earlier server are not used: that connection is cut, or led to another server all along.

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

/// The servers that have answered a store, one after another, as a number. All connections of the store share it.
#[derive(Default)]
pub(crate) struct Servers {
    // ORDERING: Relaxed: `meet` adds to it with the mutex of `last` held, before the connection is used, and so does `rise`; `number` loads
    // it. Whoever has had an answer on that connection has had a mutex after the addition.
    number: AtomicU64,
    last: Mutex<Last>,
}

/// A function to call with the number after each rise of it. It does not block.
pub(crate) type OnNewServer = dyn Fn(u64) + Send + Sync;

/// Ends a connection to one of several servers.
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

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers").field("number", &self.number()).finish_non_exhaustive()
    }
}

/// What the last connection was told, and whom to tell of the next other server.
#[derive(Default)]
struct Last {
    /// `None` before the first connection; `Some(None)` if the server did not say who it is.
    identity: Option<Option<Identity>>,
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
    /// Returns the number of the server that answered last: how often another one has answered than before.
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

    /// Notes a new connection to a server, before it is used. Cuts the connections to an earlier server. Returns `false` if the server is
    /// not to be found there any more: then the connection must not be used.
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
        let is_same = last.identity.as_ref().is_none_or(|before| *before == identity && identity.is_some());
        let rise = (!is_same).then(|| {
            last.replace_by(identity.as_ref(), address);
            self.rise_in(&last)
        });
        last.identity = Some(identity);
        last.place = Some(address.place.clone());
        last.connections.retain(|connection| connection.strong_count() > 0);
        last.connections.push(Arc::downgrade(connection));
        drop(last);
        rise.into_iter().for_each(Rise::tell);
        true
    }

    /// Makes the number rise for another reason than a connection, and tells of it.
    pub(crate) fn rise(&self) {
        let rise = self.rise_in(&self.last.lock());
        rise.tell();
    }

    fn rise_in(&self, last: &Last) -> Rise {
        let number = self.number.fetch_add(1, Ordering::Relaxed) + 1; // ORDERING: Relaxed: see the field.
        Rise { number, on_new_server: last.on_new_server.clone() }
    }
}

/// A rise of the number that is to be told of, without the mutex: what the functions wake may ask here at once.
#[must_use]
struct Rise {
    number: u64,
    on_new_server: Vec<Arc<OnNewServer>>,
}

impl Rise {
    fn tell(self) {
        self.on_new_server.iter().for_each(|on_new_server| on_new_server(self.number));
    }
}

impl Last {
    /// Cuts the connections to the last server if the next one is another for certain.
    fn replace_by(&mut self, next: Option<&Identity>, address: &Address) {
        let has_moved = self.place.as_ref() != Some(&address.place);
        let before = self.identity.take().flatten();
        let is_in_turn = !has_moved
            && self.earlier.as_ref().is_some_and(|(earlier, at)| Some(earlier) == next && at.elapsed() < IN_TURN);
        if let (Some(before), Some(next)) = (&before, next) {
            log::warn!(TRANSPORT, "another server answers at {address} than before: {next:?}, not {before:?}");
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
