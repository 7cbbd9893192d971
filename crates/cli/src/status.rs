//! Exit statuses and messages.

use redis_dlock::Error;
use std::fmt::Display;
use std::io::{self, Write};

/// `dlock doctor`: something is wrong with a server.
pub(crate) const UNSOUND: u8 = 1;
/// `dlock break`: another locker holds the lock, or none.
pub(crate) const NOT_HELD: u8 = 1;
pub(crate) const USAGE: u8 = 64;
pub(crate) const NOT_ACQUIRED: u8 = 65;
pub(crate) const LOST: u8 = 66;
pub(crate) const UNREACHABLE: u8 = 67;
pub(crate) const DENIED: u8 = 68;
pub(crate) const UNSUPPORTED: u8 = 69;
pub(crate) const SYSTEM: u8 = 70;
pub(crate) const CANNOT_EXECUTE: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;

/// The status of a process that a signal has ended, as shells say it.
pub(crate) fn of_signal(signal: i32) -> u8 {
    128 + u8::try_from(signal).unwrap_or(0)
}

/// The status for an error before the command has begun.
pub(crate) fn of(error: &Error) -> u8 {
    match error {
        Error::InvalidConfig { .. } => USAGE,
        Error::Backend { .. } => UNREACHABLE,
        Error::Denied { .. } => DENIED,
        Error::Unsupported { .. } | Error::Conflict { .. } => UNSUPPORTED,
        Error::LeaseLost(_) => LOST,
        _ => SYSTEM,
    }
}

/// An end of `dlock` without a word of the command: a status, and what is to be said.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: u8,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(status: u8, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// A failure of the operating system.
    pub(crate) fn system(what: &str, error: impl Display) -> Self {
        Self::new(SYSTEM, format!("{what}: {error}"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(of(&error), error.to_string())
    }
}

/// Prints a message. Does nothing if nobody can read it.
pub(crate) fn say(message: &str) {
    // One write, so that messages of several processes do not mix.
    let _ = io::stderr().write_all(format!("dlock: {message}\n").as_bytes());
}
