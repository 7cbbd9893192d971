//! The requests to etcd, as JSON to its gateway.
//!
//! etcd speaks gRPC. Its gateway translates, in the same process and on the same port: one request of HTTP is one call, and its path is that of
//! the call. In its JSON, numbers of 64 bits are texts, and bytes are base64. A field that is zero, false or empty is left out.
//!
//! Where users are enabled, a call needs a token. etcd issues it for a password, and forgets it after a while. A call whose token is not accepted was
//! not executed: it is sent again, once, with a new token.
//!
//! | answer | result |
//! |---|---|
//! | 200 with a header | what was asked for; its term may be the highest so far |
//! | anything of a server of another cluster | an error that names both: see `cluster.rs` |
//! | "lease not found" | the session has ended: an outcome, not an error |
//! | "invalid auth token", "user name is empty" | the call is sent again with a new token |
//! | "authentication is not enabled" | anybody may do anything: the call is sent again without a token |
//! | 400 about a common name | an error that says what works, by name |
//! | anything else of etcd | an error by its code and words: see `classify.rs` |
//! | anything that is not etcd's | an error that says so |
//!
//! A body that is an array here is a stream of requests, one document after another, and so is the answer to it. A server that is written in Go
//! throws away what it has not read of a request when it begins to answer, unless the connection ends with that answer. It reads 512 bytes before
//! that, so a longer stream ends its connection. On a connection that was kept, a server answered between 18 and all of 1,000 renewals (shown on etcd
//! 3.4.23).
//!
//! An answer counts as etcd's only if it has the fields that each answer of etcd has. Before the first such answer, any other answer is an error at
//! once: the URL may lead to a web server, or to an etcd without its gateway. Waiting would not help.

use super::classify::{EtcdFailure, classify, error_in};
use super::cluster::Cluster;
use super::encode;
use crate::deadline::Deadline;
use crate::http::{Http, HttpAnswer, HttpCall, failure};
use crate::json::{number, parse, to_base64};
use crate::stream::Stream;
use crate::sync::Mutex;
use redis_dlock::{BackendFailure, Error};
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;
use ureq::http::Method;

/// A client of the servers of one etcd.
pub(super) struct EtcdClient {
    pub(super) http: Http,
    pub(super) login: Option<Login>,
    token: Mutex<Option<String>>,
    pub(super) cluster: Mutex<Cluster>,
}

/// A user and the password.
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

/// The path of the call that renews leases.
const KEEPALIVE: &str = "/v3/lease/keepalive";

/// The result of a call if nothing failed on the way.
enum EtcdReply {
    Value(Value),
    NoLease,
    Token,
    NoUsers,
}

impl EtcdClient {
    /// Keeps the login. Logs in with the first request.
    pub(super) fn new(http: Http, login: Option<Login>) -> Self {
        Self { http, login, token: Mutex::new(None), cluster: Mutex::default() }
    }

    /// Sends a request. A login that has expired is renewed once. `None` if a lease that it names has ended.
    pub(super) fn call(
        &self,
        path: &str,
        body: &Value,
        is_repeatable: bool,
        deadline: Deadline,
    ) -> Result<Option<Value>, Error> {
        for _ in 0..2 {
            let token = self.token(deadline)?;
            match self.send(path, body, token.as_deref(), is_repeatable, deadline)? {
                EtcdReply::Value(value) => return Ok(Some(value)),
                EtcdReply::NoLease => return Ok(None),
                EtcdReply::Token | EtcdReply::NoUsers => *self.token.lock() = None,
            }
        }
        Err(Error::denied(match self.login {
            Some(_) => "etcd does not accept the token that it has just issued",
            None => "etcd wants to know its users: write user:password@ before the host of the URL",
        }))
    }

    /// Sends a request as it is. An answer that only etcd can give proves that the URL leads to etcd.
    fn send(
        &self,
        path: &str,
        body: &Value,
        token: Option<&str>,
        is_repeatable: bool,
        deadline: Deadline,
    ) -> Result<EtcdReply, Error> {
        let (body, is_stream) = match body {
            Value::Array(stream) => (stream.iter().map(Value::to_string).collect::<Vec<_>>().join("\n"), true),
            body => (body.to_string(), false),
        };
        let secret = token.map(|token| ("authorization", token));
        let call = HttpCall { method: Method::POST, path, body: &body, secret, is_repeatable, is_stream };
        self.http.send(&call, deadline, |answer| self.read(&answer))
    }

    /// Returns the token of the login, if there is one. An empty token means that users are not enabled. It is remembered, too, so no login is tried
    /// again until a request is refused for it.
    fn token(&self, deadline: Deadline) -> Result<Option<String>, Error> {
        let Some(login) = &self.login else { return Ok(None) };
        if let Some(token) = self.token.lock().clone() {
            return Ok(Some(token).filter(|token| !token.is_empty()));
        }
        let body = json!({ "name": login.user, "password": login.password });
        let token = match self.send("/v3/auth/authenticate", &body, None, true, deadline)? {
            EtcdReply::Value(answer) => answer.get("token").and_then(Value::as_str).unwrap_or_default().to_owned(),
            // Users are not enabled, so anybody may do anything.
            _ => String::new(),
        };
        *self.token.lock() = Some(token.clone());
        Ok(Some(token).filter(|token| !token.is_empty()))
    }

    /// Reads the answer to the renewal of a lease.
    fn is_renewed(&self, answer: &Value) -> Result<bool, Error> {
        if let Some(error) = answer.get("error") {
            return Err(Error::backend(BackendFailure::Unknown, format!("etcd did not renew a lease: {error}")));
        }
        // A leader that has been replaced and does not know it yet renews in vain (etcd's issue 15247). The terms of other answers show it.
        if encode::term(answer).is_some_and(|term| self.cluster.lock().is_past(term)) {
            let message = "a server of etcd renewed a lease that does not lead any more";
            return Err(Error::backend(BackendFailure::Unknown, message));
        }
        // The gateway leaves out what is zero, and a lease that has ended has no time left.
        let left = answer.get("result").and_then(|result| number(result.get("TTL")?));
        Ok(left.is_some_and(|left| left > 0))
    }

    /// Renews leases by one request, a stream of renewals. The server answers each in its turn. It leaves some out if the time is over, or if a proxy
    /// in between has cut the stream or knows no streams. Each of those is renewed alone. If such a renewal fails for another reason than a missing
    /// right, the rest fails with the same error.
    pub(super) fn renew_some(&self, leases: &[&str], deadline: Deadline) -> Vec<Result<bool, Error>> {
        let body = leases.iter().map(|lease| json!({ "ID": lease })).collect();
        let answers = self.call(KEEPALIVE, &body, true, deadline).ok().flatten().unwrap_or_default();
        let answers = answers.as_array().map_or(std::slice::from_ref(&answers), Vec::as_slice);
        let mut failed = None;
        let renewed = |(n, lease): (usize, &&str)| {
            let answer = answers.get(n).filter(|answer| answer.pointer("/result/ID").is_some_and(|id| id == *lease));
            match (answer, &failed) {
                (Some(answer), _) => self.is_renewed(answer),
                (None, Some(error)) => Err(Error::clone(error)),
                // The right may be missing for this lease alone: etcd 3.6 looks at the keys of a lease that it renews.
                (None, None) => self.renew_one(lease, deadline).inspect_err(|error| {
                    failed = (!matches!(error, Error::Denied { .. })).then(|| error.clone());
                }),
            }
        };
        leases.iter().enumerate().map(renewed).collect()
    }

    /// The leader renews, and answers for itself alone: the protocol compares the term with that of a look, which a majority confirms.
    pub(super) fn renew_one(&self, lease: &str, deadline: Deadline) -> Result<bool, Error> {
        let body = json!({ "ID": lease });
        let Some(answer) = self.call(KEEPALIVE, &body, true, deadline)? else { return Ok(false) };
        self.is_renewed(&answer)
    }

    /// Opens the stream of the changes of an entry from an index on. `None` begins with the next change. The stream lasts for `life`.
    pub(super) fn watch(
        &self,
        path: &str,
        from: Option<u64>,
        life: Duration,
        deadline: Deadline,
    ) -> Result<Stream, Error> {
        let mut create = json!({ "key": to_base64(path) });
        if let Some(from) = from {
            create["start_revision"] = from.to_string().into();
        }
        let body = json!({ "create_request": create }).to_string();
        let token = self.token(deadline)?;
        let secret = token.as_deref().map(|token| ("authorization", token));
        let call = HttpCall {
            method: Method::POST,
            path: "/v3/watch",
            body: &body,
            secret,
            is_repeatable: true,
            is_stream: false,
        };
        let mut stream = Stream::open(&self.http, &call, life, deadline)?;
        if stream.status == 200 {
            return Ok(stream);
        }
        let body = stream.body.read_to_string().map_err(|e| failure(&stream.server, e))?;
        let Stream { server, status, .. } = &stream;
        let answer = HttpAnswer { server, status: *status, index: None, is_of_consul: false, is_filtered: false, body };
        match self.read(&answer)? {
            EtcdReply::Token | EtcdReply::NoUsers => {
                *self.token.lock() = None;
                Err(Error::backend(BackendFailure::NotExecuted, "the login at etcd has expired"))
            }
            EtcdReply::Value(_) | EtcdReply::NoLease => Err(odd("the watch")),
        }
    }

    /// Reads an answer. The refusal of a certificate comes first: it has no body of JSON, and a gateway that refuses so is etcd's.
    fn read(&self, answer: &HttpAnswer<'_>) -> Result<EtcdReply, Error> {
        if answer.status == 400 && answer.body.contains(COMMON_NAME) {
            let message = "etcd's JSON gateway refuses a client certificate that has a common name while users are enabled: take one without, or log \
                           in with user:password@ and no client certificate";
            return Err(Error::unsupported(message));
        }
        let body = parse(&answer.body, "etcd").ok().or_else(|| stream(&answer.body));
        let body = body.filter(|body| is_of_etcd(answer.status, body.get(0).unwrap_or(body)));
        let body = body.ok_or_else(|| answer.foreign(GATEWAY))?;
        self.cluster.lock().take_in(&body, answer.server, &self.http.servers)?;
        self.http.prove();
        if answer.status == 200 {
            return Ok(EtcdReply::Value(body));
        }
        match classify(answer.status, &body) {
            EtcdFailure::NoLease => Ok(EtcdReply::NoLease),
            EtcdFailure::Token => Ok(EtcdReply::Token),
            EtcdFailure::NoUsers => Ok(EtcdReply::NoUsers),
            EtcdFailure::Other(error) => Err(error),
        }
    }
}

/// What etcd's access control answers before the gateway sees the request (`embed/serve.go`).
const COMMON_NAME: &str = "CommonName of client sending a request against gateway";

/// The end of the error for an answer that is not the gateway's. It names the most frequent mistakes.
const GATEWAY: &str = "etcd's JSON gateway does: check the host, the port and the path of the URL, and that etcd was not started with \
                       --enable-grpc-gateway=false";

/// Reads a stream of answers that has ended.
fn stream(body: &str) -> Option<Value> {
    let answers: Result<Vec<_>, _> = serde_json::Deserializer::from_str(body).into_iter().collect();
    answers.ok().filter(|answers| !answers.is_empty()).map(Value::Array)
}

/// Returns whether this is an answer of etcd's gateway: each success has a header, and each error has a gRPC code.
fn is_of_etcd(status: u16, body: &Value) -> bool {
    if status == 200 {
        return body.get("header").is_some() || body.get("result").is_some();
    }
    error_in(body).get("code").is_some_and(Value::is_u64)
}

/// The error for an answer that lacks a field which every etcd sends.
pub(super) fn odd(what: &str) -> Error {
    Error::backend(BackendFailure::Unknown, format!("the answer of etcd lacks {what}"))
}

/// Shows no login.
impl fmt::Debug for EtcdClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdClient")
            .field("http", &self.http)
            .field("has_login", &self.login.is_some())
            .finish_non_exhaustive()
    }
}
