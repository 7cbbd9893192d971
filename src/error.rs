//! What can go wrong, by name.

use crate::one_line::OneLine;
use std::error::Error as StdError;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// An error of this crate. Every message names the value at fault and says what to do, on one line; none carries a password.
///
/// That a lock is held by somebody else is no error: see the `Ok(None)` and `Ok(false)` of the `try_…` methods.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting, a URL or a line of a properties file cannot be used. Nothing was sent to the store.
    #[non_exhaustive]
    #[error("invalid {what} {value:?}: {}", OneLine(hint))]
    InvalidConfig {
        /// Which setting.
        what: &'static str,
        /// The value as it was given. Of a URL at most the scheme: the rest may contain a password.
        value: String,
        /// What to do about it.
        hint: String,
    },

    /// The store could not be reached, did not answer in time, or refused the command for a reason that may pass.
    #[non_exhaustive]
    #[error("the lock store failed ({failure}): {}", OneLine(message))]
    Backend {
        /// What is known of the command.
        failure: BackendFailure,
        /// The cause, in the words of the server or of the operating system.
        message: String,
        /// The error that made the store fail, if there is one: an [`std::io::Error`] for a connection that could not be opened or that broke.
        /// [`source`](StdError::source) returns it. There is none for what the server answered, nor when the limit of a call ended.
        source: Option<Cause>,
    },

    /// The store refuses this user: no or wrong password, a missing command, key or channel right.
    #[non_exhaustive]
    #[error(
        "access denied by the lock store: {}; give the user the rights listed in the README, section \"ACL rules\"",
        OneLine(message)
    )]
    Denied {
        /// The server's words.
        message: String,
    },

    /// The key exists with a value that no lock ever writes, of another type. Nothing was written.
    #[non_exhaustive]
    #[error(
        "key {key:?} is in use by something else: {}; choose another lock type or target, or remove that key",
        OneLine(message)
    )]
    Conflict {
        /// The lock's unique key.
        key: String,
        /// Which of the lock's keys, and what is wrong with it.
        message: String,
    },

    /// The server cannot carry this lock: it is older than 7.0, or part of a Redis Cluster.
    #[non_exhaustive]
    #[error("unsupported server: {}", OneLine(message))]
    Unsupported {
        /// What the server is, and what is needed.
        message: String,
    },

    /// The lease of this hold ended before the hold did: somebody else may be, or have been, inside.
    #[error("{0}")]
    LeaseLost(Box<LeaseLoss>),

    /// The calling thread does not hold the lock (`IllegalMonitorStateException` on the JVM). Nothing was changed.
    #[non_exhaustive]
    #[error("the calling thread does not hold the lock {key:?}: only the thread that locked may unlock, once per lock")]
    NotHeld {
        /// The lock's unique key.
        key: String,
    },

    /// The thread holds the lock 2,147,483,647 times already, as many as `java.util.concurrent` allows.
    #[non_exhaustive]
    #[error("the calling thread holds the lock {key:?} 2147483647 times already: unlock as often as you lock")]
    TooManyHolds {
        /// The lock's unique key.
        key: String,
    },

    /// The generator that made this lock was closed; make a new one.
    #[error("the lock generator was closed: no new holds; make a new generator")]
    ShutDown,

    /// The process was forked after the generator was made. Its threads and its connection are the parent's alone, and so is
    /// what it held: nothing was sent.
    #[error("this process is a fork of the one that made the lock generator: make a new generator after forking")]
    Forked,
}

/// What is known of a command that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendFailure {
    /// The command was certainly not executed (no connection, LOADING, READONLY, …): it may be tried again, and says
    /// nothing about who holds the lock.
    NotExecuted,
    /// The server executes nothing that writes (OOM, MISCONF) until an operator helps.
    Refused,
    /// The command was sent and its outcome is unknown (time-out, connection closed, an error in the middle of a script).
    Unknown,
}

impl fmt::Display for BackendFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotExecuted => "command not executed",
            Self::Refused => "writes refused",
            Self::Unknown => "outcome unknown",
        })
    }
}

/// How a lease was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseLoss {
    /// The lock's unique key.
    pub key: String,
    /// The locker string of the tenure that was lost.
    pub locker: String,
    /// Why.
    pub cause: LossCause,
    /// How long before this error was made the loss was noticed or, for a passed deadline, happened.
    pub ago: Duration,
}

impl fmt::Display for LeaseLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the lease of lock {:?} (locker {:?}) was lost {:?} ago: {}; what was done since may have run beside another holder",
            self.key, self.locker, self.ago, self.cause
        )
    }
}

/// Why a lease was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossCause {
    /// The lease ran out without being extended in time: the process was stopped, or the store unreachable.
    Deadline,
    /// The key holds the locker of somebody else.
    TakenOver {
        /// That locker, or a note that the key is of another type.
        by: String,
    },
    /// The key is gone: deleted, evicted, or not there after a failover.
    Deleted,
    /// It was held for longer than [`with_max_hold`](crate::DLockConfig::with_max_hold) allows. The store keeps the key for
    /// what is left of its lease, but it is not extended any more.
    HeldTooLong,
    /// The thread that held it has ended without unlocking. The lease is not extended any more; others get the lock when it
    /// has run out.
    ThreadEnded,
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline => f.write_str("it was not extended before its deadline"),
            Self::TakenOver { by } => write!(f, "the key was taken over by {by:?}"),
            Self::Deleted => f.write_str("the key was deleted from the store"),
            Self::ThreadEnded => f.write_str("the thread that held it has ended without unlocking"),
            Self::HeldTooLong => f.write_str("it was held for longer than max_hold, and is not extended any more"),
        }
    }
}

impl Error {
    /// Whether the store was unreachable or answered too late: the same attempt to lock, or question, may succeed later without
    /// anybody's help. What may have been executed all the same is undone in the background. Do not repeat an `unlock`: the hold is over
    /// after it, whatever it returns, and its release is repeated in the background.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Backend { failure: BackendFailure::NotExecuted | BackendFailure::Unknown, .. })
    }

    /// Whether a lease was lost: somebody else may be, or have been, inside.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::LeaseLost(_))
    }

    /// Makes an [`Error::InvalidConfig`]; `hint` says what to do.
    #[must_use]
    pub fn invalid_config(what: &'static str, value: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::InvalidConfig { what, value: value.into(), hint: hint.into() }
    }

    /// Makes an [`Error::Backend`] that no other error has caused.
    #[must_use]
    pub fn backend(failure: BackendFailure, message: impl Into<String>) -> Self {
        Self::Backend { failure, message: message.into(), source: None }
    }

    /// Makes an [`Error::Backend`] with the error that caused it, which becomes its [`source`](StdError::source). The message
    /// should repeat the words of the cause: logs show the message alone.
    ///
    /// ```
    /// use redis_dlock::{BackendFailure, Error};
    /// use std::{error::Error as _, io};
    ///
    /// let cause = io::Error::from(io::ErrorKind::ConnectionRefused);
    /// let error = Error::backend_caused_by(BackendFailure::NotExecuted, format!("cannot connect: {cause}"), cause);
    /// let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    /// assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::ConnectionRefused));
    /// ```
    #[must_use]
    pub fn backend_caused_by(failure: BackendFailure, message: impl Into<String>, cause: impl Into<Cause>) -> Self {
        Self::Backend { failure, message: message.into(), source: Some(cause.into()) }
    }

    /// Makes an [`Error::Denied`].
    #[must_use]
    pub fn denied(message: impl Into<String>) -> Self {
        Self::Denied { message: message.into() }
    }

    /// Makes an [`Error::Conflict`].
    #[must_use]
    pub fn conflict(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Conflict { key: key.into(), message: message.into() }
    }

    /// Makes an [`Error::Unsupported`].
    #[must_use]
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::Unsupported { message: message.into() }
    }

    /// This error as one that leaves the outcome open, with the same cause.
    #[cfg(feature = "redis")]
    pub(crate) fn into_unknown(self) -> Self {
        let message = self.to_string();
        let source = if let Self::Backend { source, .. } = self { source } else { None };
        Self::Backend { failure: BackendFailure::Unknown, message, source }
    }
}

/// The error that made a store fail: [`Error::Backend`]. Clones share it. It dereferences to the error itself.
#[derive(Clone)]
pub struct Cause(Arc<dyn StdError + Send + Sync>);

// Shared and never changed here. `Error` was unwind-safe before it had a cause, and stays so.
impl std::panic::UnwindSafe for Cause {}
impl std::panic::RefUnwindSafe for Cause {}

impl<E: StdError + Send + Sync + 'static> From<E> for Cause {
    fn from(error: E) -> Self {
        Self(Arc::new(error))
    }
}

impl Deref for Cause {
    type Target = dyn StdError + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

// `Cause` is no error itself, so that `source()` is the error in it, and can be downcast.
impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::panic::{RefUnwindSafe, UnwindSafe};

    #[test]
    fn an_error_goes_everywhere_and_a_copy_has_the_same_cause() {
        fn goes_everywhere<E: StdError + Clone + Send + Sync + UnwindSafe + RefUnwindSafe + 'static>(_: &E) {}
        let cause = io::Error::other("the cable");
        let error = Error::backend_caused_by(BackendFailure::NotExecuted, format!("no answer: {cause}"), cause);
        goes_everywhere(&error);
        assert_eq!(error.to_string(), "the lock store failed (command not executed): no answer: the cable");
        let copy = error.clone();
        let [a, b] = [&error, &copy].map(|error| error.source().and_then(|source| source.downcast_ref::<io::Error>()));
        assert!(a.is_some() && a.map(std::ptr::from_ref) == b.map(std::ptr::from_ref));
        assert!(Error::backend(BackendFailure::Unknown, "no words").source().is_none());
    }
}
