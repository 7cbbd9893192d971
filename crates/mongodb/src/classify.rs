//! What is known of a command that failed.
//!
//! The driver sends each command once: retries are off. So an error of the server is the error of the only attempt.
//!
//! | error | means |
//! |---|---|
//! | any, before the command was sent: no primary, no connection, a pool that was cleared | not executed |
//! | 10107, 13435, 10058: not the primary; 112: a write conflict; 11000: another insertion was first | not executed |
//! | 13, 18, 8000, and a failed authentication | denied |
//! | 9, 59, 168, 40324, 40573: the server does not know this | unsupported |
//! | 14031: the disk is full | refused |
//! | 189, 91, 11600, 11602, 13436: it stopped being the primary, or a server, at that moment | unknown |
//! | a `writeConcernError` (64, 100, …): executed, but not acknowledged by a majority | unknown |
//! | a connection that broke, a limit that ended, any other | unknown |

use mongodb::error::{Error as DriverError, ErrorKind};
use redis_dlock::{BackendFailure, Error};

/// Another insertion of the same document was first.
pub(crate) const DUPLICATE: i32 = 11000;

/// The code of an error with which the server has refused a whole command.
pub(crate) fn code(error: &DriverError) -> Option<i32> {
    match &*error.kind {
        ErrorKind::Command(error) => Some(error.code),
        _ => None,
    }
}

pub(crate) fn classify(error: &DriverError, was_sent: bool) -> Error {
    let words = error.to_string();
    let failed = |failure| match &*error.kind {
        ErrorKind::Io(cause) => Error::backend_caused_by(failure, words.clone(), std::sync::Arc::clone(cause)),
        _ => Error::backend(failure, words.clone()),
    };
    match (&*error.kind, code(error)) {
        (ErrorKind::Authentication { .. }, _) | (_, Some(13 | 18 | 8000)) => Error::denied(words),
        (ErrorKind::IncompatibleServer { .. } | ErrorKind::SessionsNotSupported, _)
        | (_, Some(9 | 59 | 168 | 40324 | 40573)) => Error::unsupported(words),
        (ErrorKind::Shutdown, _) => Error::ShutDown,
        (_, Some(10107 | 13435 | 10058 | 112 | DUPLICATE)) => failed(BackendFailure::NotExecuted),
        (_, Some(14031)) => failed(BackendFailure::Refused),
        _ if was_sent => failed(BackendFailure::Unknown),
        _ => failed(BackendFailure::NotExecuted),
    }
}
