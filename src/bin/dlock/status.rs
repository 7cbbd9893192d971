//! Exit statuses and messages.

use redis_dlock::Error;
use std::fmt::Display;
use std::io::{self, Write};

/// Something is wrong with a server, or somebody else holds the lock.
pub(crate) const WRONG: u8 = 1;
pub(crate) const USAGE: u8 = 64;
pub(crate) const NOT_ACQUIRED: u8 = 65;
pub(crate) const LOST: u8 = 66;
pub(crate) const UNREACHABLE: u8 = 67;
pub(crate) const DENIED: u8 = 68;
pub(crate) const UNSUPPORTED: u8 = 69;
pub(crate) const SYSTEM: u8 = 70;
pub(crate) const CANNOT_EXECUTE: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;

/// What `--help` says of them.
pub(crate) const TABLE: &str = "\
Exit status:
  that of the command; 128 + n if signal n ended it, or ended dlock while it waited for the lock
  64   wrong usage: arguments, URL or configuration file
  65   not acquired: somebody else held the lock for all the time of --wait, or with --no-wait at the first attempt
  66   the lock was lost while the command ran (with --on-lost stop)
  67   the server cannot be reached, or does not answer
  68   the server denies the login, or a right
  69   the server cannot carry the lock: it is too old, or the key is used for something else
  70   the operating system refused something that dlock needs
  126  the command cannot be executed
  127  the command was not found

INT, TERM, HUP, QUIT, USR1 and USR2 are forwarded to the command's process group. When dlock ends, even by SIGKILL, nothing of
this group is left. A dlock that is stopped (Ctrl-Z) renews nothing: after the lease, others may get the lock.";

/// The same for `dlock ls`, `show` and `watch`.
pub(crate) const ASKING: &str = "\
Exit status:
  0    done, whether or not there is such a lock
  64   wrong usage: arguments, URL or configuration file
  67   the server cannot be reached, or does not answer
  68   the server denies the login, or a right
  69   the server cannot tell, or the key is used for something else
  70   the output could not be written";

/// The same for `dlock break`.
pub(crate) const BREAKING: &str = "\
Exit status:
  0    the lock was taken from that locker
  1    that locker does not hold the lock: nothing was changed
  64   wrong usage: arguments, URL or configuration file
  67   the server cannot be reached, or does not answer
  68   the server denies the login, or a right
  69   the server cannot break locks, or the key is used for something else

The broken holder is told at once if it listens, else by its next look, a sixth of its lease later at most. Until then it goes on.";

/// The same for `dlock doctor`.
pub(crate) const DOCTOR: &str = "\
Exit status:
  0    nothing is wrong; there may be notices
  1    something is wrong with a server, or it cannot be reached
  64   wrong usage: arguments, URL or configuration file
  70   the findings could not be written";

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
