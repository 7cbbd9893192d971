//! Exit statuses, and the failures that have them.

use crate::message::{HolderFields, tell_at_the_end, without_logins};
use log::Level;
use redis_dlock::Error;
use std::fmt::Display;

/// The status of `dlock doctor` if something is wrong with a server.
pub(crate) const UNSOUND: u8 = 1;
/// The status of `dlock break` if another locker holds the lock, or none.
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

/// The status of a process that a signal has ended, as in shells.
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

/// A failure of `dlock` itself: a status and a message.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: u8,
    pub(crate) message: String,
    /// The holder that the message names.
    holder: Option<Box<HolderFields>>,
}

impl Failure {
    /// The message of a wrong usage may repeat an argument that is a URL.
    pub(crate) fn new(status: u8, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, message: if status == USAGE { without_logins(&message) } else { message }, holder: None }
    }

    /// Adds the holder that the message names.
    pub(crate) fn naming(mut self, holder: impl Into<HolderFields>) -> Self {
        self.holder = Some(Box::new(holder.into()));
        self
    }

    /// Adds the place that the message is about.
    pub(crate) fn read_in(mut self, place: &str) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// Prints the message, and returns the status.
    pub(crate) fn tell(&self) -> u8 {
        tell_at_the_end(Level::Error, &self.message, self.holder.as_deref());
        self.status
    }

    /// A failure of the operating system.
    pub(crate) fn system(what: &str, error: impl Display) -> Self {
        Self::new(SYSTEM, format!("{what}: {error}"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (status, message) = (of(&error), error.to_string());
        match &error {
            // The library shows no login of the given URL. But its advice contains the form of one.
            Error::InvalidConfig { what, .. } if *what == "URL" => Self { status, message, holder: None },
            _ => Self::new(status, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_a_url_is_shown_as_it_is() {
        let advice = "write redis://[user][:password@]host[:port][/db]";
        let of = |what| Failure::from(Error::invalid_config(what, "redis://u:secret@h", advice)).message;
        assert!(of("URL").ends_with(advice), "{}", of("URL"));
        assert!(!of("lock_target").contains("secret"), "{}", of("lock_target"));
    }
}
