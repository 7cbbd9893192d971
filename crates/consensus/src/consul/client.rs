//! The requests to Consul.
//!
//! Any agent or server answers a request, or hands it on to the leader if only the leader may answer it. The token is in a header, never in the URL,
//! because servers write URLs into their logs.
//!
//! | status | result |
//! |---|---|
//! | 200 | what was asked for |
//! | 404 | it is not there: an outcome, not an error |
//! | 409 | a transaction was refused: an outcome, too |
//! | 500 about a session or a node | the session has ended, or the node for a new one is missing |
//! | anything else of Consul | an error by its status and words: see `classify.rs` |
//!
//! An answer counts as Consul's only if it has a header of Consul's, or is an error that Consul sends without one. Before the first such answer, any
//! other answer is an error at once: the URL may lead to a web server or to an etcd, and waiting would not help. An unknown datacenter is an error at
//! once, too: such an answer does not prove that the URL is right.

use super::classify::{ConsulFailure, NO_DATACENTER, TOO_LONG, classify, is_error_of_consul};
use super::encode;
use super::scope::Scope;
use crate::deadline::Deadline;
use crate::http::{Http, HttpAnswer, HttpCall};
use crate::json::parse;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::timing::consul::LATE;
use redis_dlock::{BackendFailure, Error};
use serde_json::Value;
use std::fmt;
use std::time::Duration;
use ureq::Agent;
use ureq::http::Method;

/// A client of the servers of one Consul.
pub(super) struct ConsulClient {
    pub(super) http: Http,
    token: Option<String>,
    pub(super) shortest_lease: Duration,
    /// How many long holds keep sessions of their own: [`ConsulBuilder::share_sessions`](super::ConsulBuilder::share_sessions).
    pub(super) most_own_sessions: usize,
    /// The scope that each request names.
    scope: Scope,
    /// Whether Consul has accepted the scope.
    is_placed: AtomicBool,
    /// Whether a session had to be created on the node of an agent or a server.
    pub(super) is_on_agents: AtomicBool,
    /// Whether requests without a token are known to see entries.
    sees_without_token: AtomicBool,
}

/// The path of a transaction.
const TRANSACTION: &str = "/v1/txn";

/// The header of the token.
const TOKEN: &str = "x-consul-token";

/// The result of a call if nothing failed on the way.
#[derive(Debug)]
pub(super) struct ConsulReply {
    pub(super) status: u16,
    pub(super) index: Option<u64>,
    /// Whether the answer lacks entries that the token may not see.
    pub(super) is_filtered: bool,
    pub(super) body: Value,
}

/// The statuses that answer the question itself: it exists, it does not exist, a check has failed.
const TELLING: [u16; 3] = [200, 404, 409];

impl ConsulClient {
    /// Keeps the token. Consul has no login: each request shows the token.
    pub(super) fn new(http: Http, token: Option<String>, shortest_lease: Duration, scope: Scope) -> Self {
        let is_placed = AtomicBool::new(!scope.is_of_enterprise());
        Self {
            http,
            token,
            shortest_lease,
            most_own_sessions: usize::MAX,
            scope,
            is_placed,
            is_on_agents: AtomicBool::new(false),
            sees_without_token: AtomicBool::new(false),
        }
    }

    /// Makes an agent with connections of its own.
    pub(super) fn own_agent(&self) -> Agent {
        self.http.own_agent()
    }

    /// Sends a request. `None` if a session that it names has ended, or if there is no node for a new one.
    pub(super) fn call(
        &self,
        method: Method,
        path: &str,
        body: &Value,
        is_repeatable: bool,
        deadline: Deadline,
    ) -> Result<Option<ConsulReply>, Error> {
        // ORDERING: SeqCst, as all flags of these stores. Two threads that come at the same time both ask.
        if !self.is_placed.load(Ordering::SeqCst) {
            self.send(Method::GET, "/v1/session/list", &Value::Null, true, deadline)?;
            self.is_placed.store(true, Ordering::SeqCst);
        }
        self.send(method, path, body, is_repeatable, deadline)
    }

    /// Sends a request in the scope of the locks. In a transaction each operation names the scope, too, because the parameters do not reach
    /// operations.
    fn send(
        &self,
        method: Method,
        path: &str,
        body: &Value,
        is_repeatable: bool,
        deadline: Deadline,
    ) -> Result<Option<ConsulReply>, Error> {
        let body = match body {
            Value::Null => String::new(),
            Value::Array(_) if path.starts_with(TRANSACTION) => self.scope.in_transaction(body.clone()).to_string(),
            _ => body.to_string(),
        };
        let secret = self.token.as_deref().map(|token| (TOKEN, token));
        let path = self.scope.in_path(path);
        let call = HttpCall { method, path: &path, body: &body, secret, is_repeatable, is_stream: false };
        self.http.send(&call, deadline, |answer| self.read(&answer))
    }

    /// Fails if this client has no token, and may not read entries without one.
    ///
    /// Consul hides entries from a client without a token, and does not say so. It does refuse a request for a single entry, so this makes one such
    /// request. The request leaves out the end of a path that a URL must not have: see [`look`](crate::kv::Kv::look) of Consul.
    pub(super) fn check_rights_without_token(&self, prefix: &str, deadline: Deadline) -> Result<(), Error> {
        // ORDERING: SeqCst, as all flags of these stores: a request that is sent once too often costs little.
        if self.token.is_some() || self.sees_without_token.load(Ordering::SeqCst) {
            return Ok(());
        }
        let path = prefix.split([' ', '%']).next().unwrap_or_default();
        self.call(Method::GET, &format!("/v1/kv/{}", encode::in_url(path)), &Value::Null, true, deadline)?;
        self.sees_without_token.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Asks for an entry and those below it, and waits until one of them has changed since an index, on connections of its own.
    pub(super) fn wait(&self, agent: &Agent, path: &str, since: u64, wait: Duration) -> Result<ConsulReply, Error> {
        let path = format!("/v1/kv/{}?recurse&index={since}&wait={}ms", encode::in_url(path), wait.as_millis());
        let path = self.scope.in_path(&path);
        let secret = self.token.as_deref().map(|token| (TOKEN, token));
        let call =
            HttpCall { method: Method::GET, path: &path, body: "", secret, is_repeatable: true, is_stream: false };
        // The server adds up to a sixteenth to the time, so that not all queries end at once.
        let patience = wait + wait / 16 + LATE;
        let reply =
            self.http.send_by(agent, Some(patience), &call, Deadline::after(patience), |answer| self.read(&answer))?;
        reply.ok_or_else(|| odd("the entry"))
    }

    /// Reads an answer. An answer that only Consul can give proves that the URL leads to Consul.
    fn read(&self, answer: &HttpAnswer<'_>) -> Result<Option<ConsulReply>, Error> {
        if !answer.is_of_consul && !is_error_of_consul(answer.status, &answer.body) {
            return Err(answer.foreign(API));
        }
        if answer.status == 500 && answer.body.contains(NO_DATACENTER) {
            let name = self.scope.datacenter.as_deref().unwrap_or_default();
            let message = format!(
                "Consul answered 500: {NO_DATACENTER} {name:?}: correct dc in the URL, or join that datacenter"
            );
            return Err(Error::backend(BackendFailure::NotExecuted, message));
        }
        self.http.prove();
        let is_too_long = answer.status == 413 && answer.body.contains(TOO_LONG);
        if !TELLING.contains(&answer.status) && !is_too_long {
            return match classify(answer.status, &answer.body) {
                ConsulFailure::NoSession => Ok(None),
                ConsulFailure::Other(error) => Err(error),
            };
        }
        // The answer for a missing entry is a text, or nothing.
        let body = if answer.status == 404 || is_too_long { Value::Null } else { parse(&answer.body, "Consul")? };
        Ok(Some(ConsulReply { status: answer.status, index: answer.index, is_filtered: answer.is_filtered, body }))
    }
}

/// The end of the error for an answer that is not Consul's. It names the most frequent mistakes.
const API: &str =
    "Consul does: check the host, the port and the path of the URL (an agent serves its API on port 8500)";

/// The error for an answer that lacks a field which every Consul sends.
pub(super) fn odd(what: &str) -> Error {
    Error::backend(BackendFailure::Unknown, format!("the answer of Consul lacks {what}"))
}

/// Shows no token.
impl fmt::Debug for ConsulClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsulClient")
            .field("http", &self.http)
            .field("has_token", &self.token.is_some())
            .finish_non_exhaustive()
    }
}
