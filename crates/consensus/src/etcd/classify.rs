//! What an error of etcd says of a request.
//!
//! The code of gRPC says little: etcd answers one code for errors before and after a write. So the words decide. They are those of etcd's `rpctypes`,
//! which its own clients read, too. A request with an unknown error counts as executed.

use redis_dlock::{BackendFailure, Error};
use serde_json::Value;

/// The cause of a failed request.
#[derive(Debug)]
pub(super) enum EtcdFailure {
    /// The lease has ended.
    NoLease,
    /// The token of the login is not valid any more, or the request had none and needs one.
    Token,
    /// Users are not enabled.
    NoUsers,
    Other(Error),
}

/// The codes of gRPC that etcd uses.
const NOT_FOUND: u64 = 5;
const DENIED: u64 = 7;
const EXHAUSTED: u64 = 8;
const UNAVAILABLE: u64 = 14;
const UNAUTHENTICATED: u64 = 16;

/// Returns the error in an answer that is not a success: the answer itself or, where a stream was asked for, an object in it (since etcd 3.6).
pub(super) fn error_in(body: &Value) -> &Value {
    body.get("error").filter(|error| error.is_object()).unwrap_or(body)
}

/// Classifies an answer that is not a success. The texts are those of etcd's `rpctypes`.
pub(super) fn classify(status: u16, body: &Value) -> EtcdFailure {
    let body = error_in(body);
    let words = ["error", "message"].iter().find_map(|name| body.get(name)?.as_str()).unwrap_or_default();
    let says = |text: &str| words.contains(text);
    let backend = |failure| EtcdFailure::Other(Error::backend(failure, format!("etcd answered {status}: {words}")));
    match body.get("code").and_then(Value::as_u64) {
        _ if says("lease not found") => EtcdFailure::NoLease,
        _ if says("authentication is not enabled") => EtcdFailure::NoUsers,
        // Users may have been enabled or changed since the login.
        _ if ["invalid auth token", "user name is empty", "revision of auth store is old"].into_iter().any(says) => {
            EtcdFailure::Token
        }
        Some(DENIED | UNAUTHENTICATED) => EtcdFailure::Other(Error::denied(words)),
        _ if says("authentication failed") || says("permission denied") => EtcdFailure::Other(Error::denied(words)),
        // Nothing was written, and waiting would not help.
        _ if says("request is too large") => EtcdFailure::Other(Error::unsupported(format!(
            "a request is longer than etcd takes: shorten the names and the reason, or raise the server's --max-request-bytes: {words}"
        ))),
        Some(EXHAUSTED) if says("space exceeded") => backend(BackendFailure::Refused),
        // Before 3.4.17 and 3.5.0 the gateway has this code for an answer that is too long, too, which comes after the execution.
        Some(EXHAUSTED) if says("too many requests") => backend(BackendFailure::NotExecuted),
        // Other errors of this code may have come after the request was passed on.
        Some(UNAVAILABLE) if says("no leader") || says("not leader") => backend(BackendFailure::NotExecuted),
        Some(NOT_FOUND) if body.get("error").is_some_and(|error| error == "Not Found") => EtcdFailure::Other(
            Error::unsupported("the server does not have the JSON interface /v3 of etcd 3.4 or newer"),
        ),
        _ => backend(BackendFailure::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_error_has_its_class() {
        use BackendFailure::{NotExecuted, Refused, Unknown};
        for (code, words, want) in [
            (14, "etcdserver: no leader", NotExecuted),
            (14, "etcdserver: leader changed", Unknown),
            (14, "etcdserver: request timed out", Unknown),
            (8, "etcdserver: too many requests", NotExecuted),
            (8, "grpc: received message larger than max (4194400 vs. 4194304)", Unknown),
            (8, "etcdserver: mvcc: database space exceeded", Refused),
            (2, "something new", Unknown),
        ] {
            match classify(503, &json!({ "error": words, "code": code })) {
                EtcdFailure::Other(Error::Backend { failure, message, .. }) => {
                    assert_eq!((failure, message), (want, format!("etcd answered 503: {words}")));
                }
                other => panic!("{words} became {other:?}"),
            }
        }
        let of = |code: u64, words: &str| classify(400, &json!({ "error": words, "code": code }));
        assert!(matches!(of(5, "etcdserver: requested lease not found"), EtcdFailure::NoLease));
        assert!(matches!(of(16, "etcdserver: invalid auth token"), EtcdFailure::Token));
        let of_stream = json!({ "error": { "code": 16, "message": "etcdserver: invalid auth token" } });
        assert!(matches!(classify(401, &of_stream), EtcdFailure::Token));
        assert!(matches!(of(3, "etcdserver: user name is empty"), EtcdFailure::Token));
        assert!(matches!(of(3, "etcdserver: revision of auth store is old"), EtcdFailure::Token));
        assert!(matches!(of(9, "etcdserver: authentication is not enabled"), EtcdFailure::NoUsers));
        for (code, words) in [
            (7, "etcdserver: permission denied"),
            (3, "etcdserver: authentication failed, invalid user ID or password"),
        ] {
            assert!(matches!(of(code, words), EtcdFailure::Other(Error::Denied { message, .. }) if message == words));
        }
        for (code, words, told) in
            [(5, "Not Found", ""), (3, "etcdserver: request is too large", "--max-request-bytes")]
        {
            let EtcdFailure::Other(Error::Unsupported { message, .. }) = of(code, words) else { panic!("{words}") };
            assert!(message.contains(told), "{message}");
        }
    }
}
