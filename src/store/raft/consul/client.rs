//! The requests to Consul.

use super::classify::{Failure, classify};
use super::encode;
use super::query::Query;
use crate::error::{BackendFailure, Error};
use crate::store::processor::{DeadWaiters, StoreLimits};
use crate::store::raft::deadline::Deadline;
use crate::store::raft::http::{Answer, Call, Http};
use crate::store::raft::json::parse;
use crate::store::raft::kv::{Committed, Entry, Kv, Listening, Transaction};
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use ureq::Agent;
use ureq::http::Method;

/// A client of the servers of one Consul.
pub(super) struct Client {
    http: Http,
    token: Option<String>,
    shortest_lease: Duration,
}

/// The header of the token.
const TOKEN: &str = "x-consul-token";

/// What a call comes to if nothing failed on the way.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) index: Option<u64>,
    pub(super) body: Value,
}

/// The statuses that say something of what was asked about: it is there, it is not, a check has failed.
const TELLING: [u16; 3] = [200, 404, 409];

impl Client {
    pub(super) fn new(http: Http, token: Option<String>, shortest_lease: Duration) -> Self {
        Self { http, token, shortest_lease }
    }

    /// Makes connections of their own.
    pub(super) fn own_agent(&self) -> Agent {
        self.http.own_agent()
    }

    /// Sends a request. `None` if a session that it names has ended.
    fn call(
        &self,
        method: Method,
        path: &str,
        body: &Value,
        is_repeatable: bool,
        deadline: Deadline,
    ) -> Result<Option<Reply>, Error> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let secret = self.token.as_deref().map(|token| (TOKEN, token));
        let call = Call { method, path, body: &body, secret, is_repeatable };
        self.http.send(&call, deadline, |answer| read(&answer))
    }

    /// Asks for an entry, and waits until it has changed since an index, on connections of its own.
    pub(super) fn wait(&self, agent: &Agent, path: &str, since: u64, wait: Duration) -> Result<Reply, Error> {
        let path = format!("/v1/kv/{}?index={since}&wait={}ms", encode::in_url(path), wait.as_millis());
        let secret = self.token.as_deref().map(|token| (TOKEN, token));
        let call = Call { method: Method::GET, path: &path, body: "", secret, is_repeatable: true };
        // The server adds up to a sixteenth to the time, so that not all queries end at once.
        let patience = wait + wait / 16 + Duration::from_secs(2);
        let reply = self.http.send_by(agent, patience, &call, Deadline::after(patience), |answer| read(&answer))?;
        reply.ok_or_else(|| odd("the entry"))
    }
}

fn read(answer: &Answer) -> Result<Option<Reply>, Error> {
    if !TELLING.contains(&answer.status) {
        return match classify(answer.status, &answer.body) {
            Failure::NoSession => Ok(None),
            Failure::Other(error) => Err(error),
        };
    }
    // What is not there has a text or nothing as its answer.
    let body = if answer.status == 404 { Value::Null } else { parse(&answer.body, "Consul")? };
    Ok(Some(Reply { status: answer.status, index: answer.index, body }))
}

/// An answer that lacks what every Consul sends.
pub(super) fn odd(what: &str) -> Error {
    Error::backend(BackendFailure::Unknown, format!("the answer of Consul lacks {what}"))
}

/// Reads why a transaction was refused.
fn refused(errors: &Value) -> Result<Committed, Error> {
    let errors = errors.get("Errors").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let words: Vec<_> = errors.iter().filter_map(|error| error.get("What")?.as_str()).collect();
    let says = |text: &str| words.iter().any(|words| words.contains(text));
    if says("Permission denied") || says("permission denied") {
        return Err(Error::denied(words.join("; ")));
    }
    Ok(if says("invalid session") { Committed::NoSession } else { Committed::Refused(None) })
}

impl Kv for Arc<Client> {
    fn limits(&self) -> StoreLimits {
        StoreLimits {
            shortest_lease: self.shortest_lease,
            longest_lease: Duration::from_secs(24 * 3600 * 4 / 5),
            command: Duration::from_secs(3),
            outage: Duration::from_secs(3),
            dead_holder_leases: 3,
            dead_waiters: DeadWaiters::AfterLeases(3),
            remaining_known: false,
            ..StoreLimits::default()
        }
    }

    fn has_answered(&self) -> bool {
        self.http.has_answered()
    }

    /// A quarter longer.
    fn life(&self, lease: Duration) -> Duration {
        lease + lease / 4
    }

    fn open_session(&self, life: Duration, name: &str, deadline: Deadline) -> Result<String, Error> {
        // Without the checks of the node: only the time to live counts. By default, the death of one server would end the session.
        let body = json!({
            "Name": format!("dlock {name}"), "TTL": format!("{}ms", life.as_millis()), "LockDelay": "0s",
            "Behavior": "delete", "NodeChecks": [], "ServiceChecks": [],
        });
        let reply = self.call(Method::PUT, "/v1/session/create", &body, false, deadline)?;
        let id = reply.as_ref().and_then(|reply| reply.body.get("ID")?.as_str());
        Ok(id.ok_or_else(|| odd("the session"))?.to_owned())
    }

    fn renew(&self, session: &str, deadline: Deadline) -> Result<bool, Error> {
        let path = format!("/v1/session/renew/{session}");
        let reply = self.call(Method::PUT, &path, &Value::Null, true, deadline)?;
        Ok(reply.is_some_and(|reply| reply.status == 200))
    }

    fn end_session(&self, session: &str, deadline: Deadline) -> Result<(), Error> {
        let path = format!("/v1/session/destroy/{session}");
        self.call(Method::PUT, &path, &Value::Null, true, deadline).map(drop)
    }

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

    fn look(&self, prefix: &str, deadline: Deadline) -> Result<Vec<Entry>, Error> {
        let path = format!("/v1/kv/{}?recurse&consistent", encode::in_url(prefix));
        let reply = self.call(Method::GET, &path, &Value::Null, true, deadline)?;
        match reply {
            Some(reply) if reply.status == 404 => Ok(Vec::new()),
            reply => reply.and_then(|reply| encode::entries(&reply.body)).ok_or_else(|| odd("the entries")),
        }
    }

    fn listen(&self, path: &str, deadline: Deadline) -> Result<Box<dyn Listening>, Error> {
        Ok(Box::new(Query::open(self.clone(), path, deadline)?))
    }

    fn close(&self) {
        self.http.close();
    }
}

/// Without the token.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("http", &self.http)
            .field("has_token", &self.token.is_some())
            .finish_non_exhaustive()
    }
}
