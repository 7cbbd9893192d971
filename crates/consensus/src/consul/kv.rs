//! Sends the protocol's requests to Consul.
//!
//! | the protocol's | is |
//! |---|---|
//! | session | a session with the behaviour `delete`: the entries that it has locked go with it |
//! | index | the index of the log of Raft: it rises with each write, also of others |
//! | check | a verb of a transaction that writes nothing; there is none for "no entry with this prefix" |
//!
//! The leader counts the time to live of a session. It takes up to twice that time before it ends the session, and a new leader begins all sessions
//! again. So a dead holder keeps others out for long, and a living one never loses its session early.
//!
//! A transaction that fails was not executed, whatever its reason: `409` is an answer, not an error. Its words distinguish three reasons. If a
//! session has ended, the tenure begins again with another one. If the key is in its lock-delay, nobody can have it, and the waiters keep their
//! places. Otherwise a check does not hold: the key has changed since the look.

use super::client::{ConsulClient, odd};
use super::encode;
use super::node::open_lasting_session;
use super::query::Query;
use crate::deadline::Deadline;
use crate::kv::{Committed, Entry, Kv, Life, Listening, Transaction, limits};
use crate::sync::atomic::Ordering;
use crate::timing::TRIES;
use crate::timing::consul::{LONGEST, LONGEST_LIFE};
use redis_dlock::port::{Claim, StoreLimits, on_own_thread};
use redis_dlock::{BackendFailure, Error};
use serde_json::Value;
use std::iter;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use ureq::http::Method;

/// How many sessions are renewed at once.
const LANES: usize = 8;

/// Reads why a transaction was refused. Consul names the failed verb by its place, and the reason only by words. The words are those of its source
/// (`agent/consul/state/txn.go`, `kvs_endpoint.go`).
fn refused(errors: &Value) -> Result<Committed, Error> {
    let errors = errors.get("Errors").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let words: Vec<_> = errors.iter().filter_map(|error| error.get("What")?.as_str()).collect();
    let says = |text: &str| words.iter().any(|words| words.contains(text));
    if says("Permission denied") || says("permission denied") {
        return Err(Error::denied(words.join("; ")));
    }
    Ok(match () {
        () if says("invalid session") => Committed::NoSession,
        () if says("due to lock delay") => Committed::Delayed,
        () => Committed::Refused(None),
    })
}

impl Kv for Arc<ConsulClient> {
    fn limits(&self) -> StoreLimits {
        let mut limits = limits(self.shortest_lease);
        limits.longest_lease = LONGEST;
        limits.longest_release_delay = LONGEST_LIFE;
        // A hold whose thread has ended is kept until the others have left the session that they share.
        limits.dead_holder_leases += u32::from(self.most_own_sessions < usize::MAX);
        limits
    }

    fn has_answered(&self) -> bool {
        self.http.has_answered()
    }

    /// A quarter longer than the lease, so that a session serves tenures for that quarter before it must be renewed. The claim contains the
    /// lock-delay, and the session does not: Consul's own begins when the session has ended.
    fn life(&self, claim: &Claim<'_>) -> Life {
        let delay = claim.lock_delay().min(claim.lease);
        let needed = claim.lease - delay;
        Life { time: needed + needed / 4, needed, delay }
    }

    /// Consul has no shorter session than the shortest lease. It keeps a session for its time, and takes up to twice as long.
    fn delay(&self, needed: Duration) -> Life {
        Life { time: needed.max(self.shortest_lease), needed, delay: Duration::ZERO }
    }

    /// Consul keeps a key shut after each end of a session that has a lock-delay, whoever ends it.
    fn keeps_shut(&self, life: Life) -> bool {
        // ORDERING: SeqCst, as all flags of these stores: it is read where a request follows, and costs nothing beside that.
        !life.delay.is_zero() || self.is_on_agents.load(Ordering::SeqCst)
    }

    /// The session's name contains the client, so that a sweep finds the living clients.
    fn open_session(&self, life: Life, client: &str, deadline: Deadline) -> Result<String, Error> {
        open_lasting_session(self, life, client, deadline)
    }

    /// A new leader that does not know the session yet answers as for an ended session. So the protocol looks twice.
    fn renew(&self, session: &str, deadline: Deadline) -> Result<bool, Error> {
        let path = format!("/v1/session/renew/{session}");
        let reply = self.call(Method::PUT, &path, &Value::Null, true, deadline)?;
        Ok(reply.is_some_and(|reply| reply.status == 200))
    }

    /// Each request to Consul renews one session, so several requests are under way at once: with distant servers, one after another would take too
    /// long for the leases. The most urgent ones come first in each lane. A lane without a thread runs after the others.
    fn renew_all(&self, sessions: &[&str], deadline: Deadline) -> Vec<Result<bool, Error>> {
        let count = sessions.len().clamp(1, LANES);
        let renew = |session: &&str| self.renew(session, deadline);
        let lane = &|n| sessions.iter().skip(n).step_by(count).map(renew).collect::<Vec<_>>();
        let mut lanes: Vec<_> = thread::scope(|scope| {
            let begin = |n| {
                let work = move || on_own_thread(|| lane(n));
                thread::Builder::new().name("dlock-renew".into()).spawn_scoped(scope, work)
            };
            let others: Vec<_> = (1..count).map(begin).collect();
            let first = lane(0);
            let others = others.into_iter().zip(1..).map(|(other, n)| match other {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(_) => lane(n),
            });
            iter::once(first).chain(others).map(Vec::into_iter).collect()
        });
        (0..sessions.len()).filter_map(|n| lanes[n % count].next()).collect()
    }

    fn most_own_sessions(&self) -> usize {
        self.most_own_sessions
    }

    fn has_no_node(&self) -> bool {
        // ORDERING: SeqCst, as all flags of these stores: it is read beside requests.
        self.is_on_agents.load(Ordering::SeqCst)
    }

    /// Ends a session, and makes sure of it.
    ///
    /// The leader does nothing for a session that it does not know. A new leader may not know all sessions yet, because it has not applied all of the
    /// log. So a read follows the end, which the leader answers only when it has applied everything.
    fn end_session(&self, session: &str, deadline: Deadline) -> Result<(), Error> {
        let (destroy, info) =
            (format!("/v1/session/destroy/{session}"), format!("/v1/session/info/{session}?consistent"));
        for _ in 0..TRIES {
            self.call(Method::PUT, &destroy, &Value::Null, true, deadline)?;
            let found = self.call(Method::GET, &info, &Value::Null, true, deadline)?;
            if found.is_some_and(|reply| reply.body.as_array().is_none_or(Vec::is_empty)) {
                return Ok(());
            }
        }
        Err(Error::backend(BackendFailure::Unknown, format!("Consul did not end the session {session}")))
    }

    /// A session that has ended makes the whole transaction fail, even if it ended at the same moment.
    fn commit(&self, transaction: &Transaction, deadline: Deadline) -> Result<Committed, Error> {
        let body = encode::transaction(transaction);
        let Some(reply) = self.call(Method::PUT, "/v1/txn", &body, false, deadline)? else {
            return Ok(Committed::NoSession);
        };
        if reply.status == 409 {
            return refused(&reply.body);
        }
        encode::done(&reply.body, transaction).ok_or_else(|| odd("the outcome of a transaction"))
    }

    /// A token may see only some of the entries. A client that took these for all would see no holder where there is one.
    ///
    /// `consistent` has the leader ask a majority whether it still leads. Consul's default could read from a leader that was replaced.
    ///
    /// It is a transaction that only reads: since 1.22, Consul refuses a URL whose path has a space, or two dots, beside an encoded character.
    fn look(&self, prefix: &str, deadline: Deadline) -> Result<Vec<Entry>, Error> {
        let prefixes = [prefix.to_owned()];
        self.look_all(&prefixes, deadline).map(|mut entries| entries.pop().unwrap_or_default())
    }

    /// An older Consul takes half as many operations in a transaction, and refuses more by the status 413.
    fn look_all(&self, prefixes: &[String], deadline: Deadline) -> Result<Vec<Vec<Entry>>, Error> {
        let [prefix, ..] = prefixes else { return Ok(Vec::new()) };
        self.check_rights_without_token(prefix, deadline)?;
        let body = encode::looks(prefixes);
        let reply = self.call(Method::PUT, "/v1/txn?consistent", &body, true, deadline)?;
        let reply = reply.ok_or_else(|| odd("the entries"))?;
        // A transaction reports this only in its body.
        if reply.body.get("ResultsFilteredByACLs") == Some(&Value::Bool(true)) {
            return Err(Error::denied(format!("the token may not read all entries that begin with {prefix:?}")));
        }
        match reply.status {
            409 => Err(refused(&reply.body).err().unwrap_or_else(|| odd("the entries"))),
            413 if prefixes.len() > 1 => {
                let (some, others) = prefixes.split_at(prefixes.len() / 2);
                Ok([self.look_all(some, deadline)?, self.look_all(others, deadline)?].concat())
            }
            _ => encode::looked(&reply.body, prefixes).ok_or_else(|| odd("the entries")),
        }
    }

    fn shows_the_last(&self) -> bool {
        true
    }

    fn listen(&self, path: &str, deadline: Deadline) -> Result<Box<dyn Listening>, Error> {
        Ok(Box::new(Query::open(self.clone(), path, deadline)?))
    }

    fn close(&self) {
        self.http.close();
    }
}
