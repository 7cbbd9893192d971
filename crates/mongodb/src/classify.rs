//! What is known of a command that failed.
//!
//! The driver sends each command once: retries are off. So an error of the server is the error of the only attempt.
//!
//! | error | means |
//! |---|---|
//! | any, before the command was sent: no primary, no connection, a pool that was cleared | not executed |
//! | 10107, 13435, 10058: not the primary; 112: a write conflict; 11000: another insertion was first | not executed |
//! | 13, 18, 8000, and a failed authentication | denied |
//! | 9, 59, 115, 168, 40324, 40573: the server does not know this; the server is a router | unsupported |
//! | 14031: the disk is full | refused |
//! | 189, 91, 11600, 11602, 13436: it stopped being the primary, or a server, at that moment | unknown |
//! | a `writeConcernError` (64, 100, …): executed, but not acknowledged by a majority | unknown |
//! | a connection that broke, a limit that ended, any other | unknown |

use mongodb::error::{Error as DriverError, ErrorKind, WriteFailure};
use redis_dlock::{BackendFailure, Error};
use std::fmt;

/// Another insertion of the same document was first.
pub(crate) const DUPLICATE: i32 = 11000;

/// The code of an error with which the server has refused a whole command.
pub(crate) fn code(error: &DriverError) -> Option<i32> {
    match &*error.kind {
        ErrorKind::Command(error) => Some(error.code),
        _ => None,
    }
}

/// What an error says, without the server's reply, which contains the document, and with it what other programs have written. Cut to a length that
/// a log can take.
pub(crate) fn words(error: &DriverError) -> String {
    const LONGEST: usize = 300;
    let words = match &*error.kind {
        ErrorKind::Command(error) => format!("{} ({}, {})", error.message, error.code_name, error.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(error)) => {
            format!("no majority has acknowledged it: {} ({}, {})", error.message, error.code_name, error.code)
        }
        ErrorKind::Io(cause) => cause.to_string(),
        ErrorKind::Custom(cause) => match cause.downcast_ref::<Sharded>() {
            Some(sharded) => sharded.to_string(),
            None => error.kind.to_string(),
        },
        kind => kind.to_string(),
    };
    match words.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

/// The server is a router of a sharded cluster.
#[derive(Debug)]
pub(crate) struct Sharded;

impl fmt::Display for Sharded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the server is a router (mongos), whose own clock would decide when leases end: name a replica set, such as that of one shard",
        )
    }
}

/// Classifies the error of a command. `otherwise` is what is known of it if the error does not say more.
pub(crate) fn classify(error: &DriverError, otherwise: BackendFailure) -> Error {
    let words = words(error);
    let failed = |failure| match &*error.kind {
        ErrorKind::Io(cause) => Error::backend_caused_by(failure, words.clone(), std::sync::Arc::clone(cause)),
        _ => Error::backend(failure, words.clone()),
    };
    match (&*error.kind, code(error)) {
        (ErrorKind::Authentication { .. }, _) | (_, Some(13 | 18 | 8000)) => Error::denied(words),
        (ErrorKind::IncompatibleServer { .. } | ErrorKind::SessionsNotSupported, _)
        | (_, Some(9 | 59 | 115 | 168 | 40324 | 40573)) => Error::unsupported(words),
        (ErrorKind::Custom(cause), _) if cause.is::<Sharded>() => Error::unsupported(words),
        (ErrorKind::Shutdown, _) => Error::ShutDown,
        (_, Some(10107 | 13435 | 10058 | 112 | DUPLICATE)) => failed(BackendFailure::NotExecuted),
        (_, Some(14031)) => failed(BackendFailure::Refused),
        _ => failed(otherwise),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_is_unsupported_and_words_are_short() {
        let refused = classify(&DriverError::custom(Sharded), BackendFailure::NotExecuted);
        assert!(matches!(refused, Error::Unsupported { .. }) && refused.to_string().contains("mongos"), "{refused}");
        let long = DriverError::custom("w".repeat(10_000));
        assert!(words(&long).chars().count() <= 301);
    }
}
