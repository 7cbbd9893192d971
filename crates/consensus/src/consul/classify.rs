//! What an error of Consul says of a request. Its errors are texts.
//!
//! The only question is whether the request may have been executed. Consul refuses some requests before it does anything, and its words say so. Any
//! other failed request may be in the log of a leader that has been replaced since. A request with an unknown error counts as executed.

use redis_dlock::{BackendFailure, Error};

/// The cause of a failed request.
#[derive(Debug)]
pub(super) enum ConsulFailure {
    /// A session has ended, or the node of a new one is not in the catalog.
    NoSession,
    Other(Error),
}

/// Texts of errors that come before anything is written.
const BEFORE: [&str; 6] = [
    "No cluster leader",
    "No known Consul servers",
    // The request was not passed on.
    NO_DATACENTER,
    "Remote DC has no server currently reachable",
    "rate limit exceeded",
    "rejecting request",
];

/// The error of a server that does not know a datacenter. After its start a server may have to hear of other datacenters first.
pub(super) const NO_DATACENTER: &str = "No path to datacenter";

/// The error of a Consul that is not Enterprise, for a namespace or a partition.
const ENTERPRISE: &str = "Consul Enterprise feature";

/// Consul's error for a transaction with too many operations: more than 128, or than 64 in older versions.
pub(super) const TOO_LONG: &str = "Transaction contains too many operations";

/// Returns whether this is an error that Consul may send without a header of its own: before a request has reached its API.
pub(super) fn is_error_of_consul(status: u16, words: &str) -> bool {
    let known =
        ["Your IP is issuing too many", "Permission denied", "ACL not found", "rpc error", ENTERPRISE, TOO_LONG];
    status >= 400 && BEFORE.iter().chain(&known).any(|text| words.contains(text))
}

/// Returns whether the error names a namespace or a partition.
fn is_of_place(words: &str) -> bool {
    ["amespace \"", "artition \""].iter().any(|kind| words.contains(kind))
}

/// Classifies an answer that is not a success.
pub(super) fn classify(status: u16, words: &str) -> ConsulFailure {
    let words = words.trim();
    let backend = |failure| ConsulFailure::Other(Error::backend(failure, format!("Consul answered {status}: {words}")));
    match status {
        403 => ConsulFailure::Other(Error::denied(words)),
        400 if words.contains(ENTERPRISE) => ConsulFailure::Other(Error::unsupported(words)),
        // This is the error of Consul Enterprise for an unknown namespace or partition.
        400 | 404 | 500 if words.contains("does not exist") && is_of_place(words) => {
            ConsulFailure::Other(Error::unsupported(words))
        }
        // Nothing was written, and waiting would not help.
        413 => ConsulFailure::Other(Error::unsupported(format!(
            "an entry of the lock is longer than Consul takes: shorten the names and the reason, or raise the server's \
             kv_max_value_size: {words}"
        ))),
        429 => backend(BackendFailure::NotExecuted),
        400 | 500 if words.contains("Invalid Session TTL") => {
            ConsulFailure::Other(Error::unsupported(format!("Consul refuses the lease (session_ttl_min): {words}")))
        }
        500 if words.contains("invalid session") || words.contains("Missing node registration") => {
            ConsulFailure::NoSession
        }
        500 if words.contains("Permission denied") || words.contains("ACL not found") => {
            ConsulFailure::Other(Error::denied(words))
        }
        // 503 is the answer of a leader whose limit of writes is reached (`request_limits`).
        500 | 503 if BEFORE.iter().any(|text| words.contains(text)) => backend(BackendFailure::NotExecuted),
        // Such as a leader that was replaced while it wrote.
        // A redirection, or a request that was not understood: a server in between, or a Consul that is too old.
        300..=399 | 400 | 404..=407 => backend(BackendFailure::NotExecuted),
        _ => backend(BackendFailure::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_its_class() {
        use BackendFailure::{NotExecuted, Unknown};
        for (status, words, want) in [
            (500, "No cluster leader", NotExecuted),
            (500, "No path to datacenter", NotExecuted),
            (500, "Remote DC has no server currently reachable", NotExecuted),
            (500, "rpc error: leadership lost while committing log", Unknown),
            (429, "Your IP is issuing too many concurrent connections", NotExecuted),
            (429, "rate limit exceeded, try again later or against a different server", NotExecuted),
            (
                503,
                "rate limit exceeded for operation that can only be performed by the leader, try again later",
                NotExecuted,
            ),
            (502, "", Unknown),
            (503, "", Unknown),
            (302, "", NotExecuted),
            (400, "Bad request", NotExecuted),
        ] {
            match classify(status, words) {
                ConsulFailure::Other(Error::Backend { failure, .. }) => assert_eq!(failure, want, "{words}"),
                other => panic!("{words} became {other:?}"),
            }
        }
        for words in ["invalid session \"7\"", "apply failed: Missing node registration"] {
            assert!(matches!(classify(500, words), ConsulFailure::NoSession));
        }
        for (status, words) in [(403, "Permission denied"), (403, "ACL not found"), (500, "Permission denied")] {
            assert!(
                matches!(classify(status, words), ConsulFailure::Other(Error::Denied { message, .. }) if message == words)
            );
        }
        for (status, words) in [
            (400, "Invalid query parameter: \"ns\" - Namespaces are a Consul Enterprise feature"),
            (500, "rpc error making call: Namespace \"x\" does not exist"),
            (500, "rpc error making call: Partition \"x\" does not exist"),
        ] {
            assert!(matches!(classify(status, words), ConsulFailure::Other(Error::Unsupported { .. })), "{words}");
        }
        for (status, words, setting) in [
            (500, "Invalid Session TTL '2000000000', must be between [10s=24h0m0s]", "session_ttl_min"),
            (413, "Value for key \"k\" is too large (601 > 600 bytes)", "kv_max_value_size"),
        ] {
            let ConsulFailure::Other(Error::Unsupported { message, .. }) = classify(status, words) else {
                panic!("{words}")
            };
            assert!(message.contains(setting) && message.contains(words), "{message}");
        }
    }
}
