//! The errors of this crate.

use crate::one_line::OneLine;
use std::error::Error as StdError;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// An error of this crate. A message names what failed, and a remedy where the crate knows one. It is one line, and contains no password.
///
/// A lock that somebody else holds is not an error: see the `Ok(None)` and `Ok(false)` of the `try_…` methods.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting, a URL or a line of a properties file cannot be used. Nothing was sent to the store.
    #[non_exhaustive]
    #[error("invalid {what} {value:?}: {}", OneLine(hint))]
    InvalidConfig {
        /// The setting.
        what: &'static str,
        /// The value as it was given. Of a URL it is at most the scheme, because the remainder may contain a password.
        value: String,
        /// How to correct it.
        hint: String,
    },

    /// The store could not be reached, did not answer in time, or refused the command for a reason that may pass.
    #[non_exhaustive]
    #[error("the lock store failed ({failure}): {}", OneLine(message))]
    Backend {
        /// What is known about the command.
        failure: BackendFailure,
        /// The cause, in the words of the server or the operating system.
        message: String,
        /// The error that made the store fail, if there is one: an [`std::io::Error`] for a connection that could not be opened
        /// or that broke. [`source`](StdError::source) returns it. It is `None` if the server answered with an error, and if
        /// the limit of a call ended.
        source: Option<Cause>,
    },

    /// The store refuses this user: the password is missing or wrong, or the user lacks the right to a command, key or channel.
    #[non_exhaustive]
    #[error("access denied by the lock store: {}; {}", OneLine(message), what_helps(message))]
    Denied {
        /// The server's words.
        message: String,
    },

    /// The key exists with a value of a type that no lock ever writes. Nothing was written.
    #[non_exhaustive]
    #[error("lock {key:?} needs a key that is in use by something else: {}; {}", OneLine(message), what_frees(message))]
    Conflict {
        /// The lock's unique key.
        key: String,
        /// The key of this lock that is in use, and what is wrong with it.
        message: String,
    },

    /// The store cannot do what was asked: a server that is too old, or of another kind than the URL says (a Sentinel, a node of a Redis Cluster),
    /// or an operation that this store lacks.
    #[non_exhaustive]
    #[error("unsupported: {}", OneLine(message))]
    Unsupported {
        /// What the store is or lacks, and what is required.
        message: String,
    },

    /// The lease of this hold ended before the hold did: somebody else may be inside, or may have been.
    #[error("{0}")]
    LeaseLost(Box<LeaseLoss>),

    /// The calling thread does not hold the lock (`IllegalMonitorStateException` on the JVM). Nothing was changed.
    #[non_exhaustive]
    #[error("the calling thread does not hold the lock {key:?}: only the thread that locked may unlock, once per lock")]
    NotHeld {
        /// The lock's unique key.
        key: String,
    },

    /// The thread already holds the lock 2,147,483,647 times, the most that `java.util.concurrent` allows.
    #[non_exhaustive]
    #[error("the calling thread holds the lock {key:?} 2147483647 times already: unlock as often as you lock")]
    TooManyHolds {
        /// The lock's unique key.
        key: String,
    },

    /// The calling thread already holds the lock, and may not lock it again: [`with_reentry(false)`](crate::DLockConfig::with_reentry).
    /// Nothing was changed.
    #[non_exhaustive]
    #[error(
        "the calling thread already holds the lock {key:?}, which is not reentrant: unlock it first; in a thread pool, do not wait for other jobs while holding it"
    )]
    AlreadyHeld {
        /// The lock's unique key.
        key: String,
    },

    /// Another process has the identity of this generator: one process is a copy of the other, made while it ran (a virtual machine
    /// whose snapshot was restored twice, a process that CRIU has restored). The generator has taken a new identity. Its holds are lost
    /// ([`LossCause::Cloned`]), and its waits go on under the new identity. Call again.
    #[non_exhaustive]
    #[error(
        "the lock {key:?} is held with this client's own locker {locker:?}, so a copy of this process runs elsewhere: this client has drawn a new identity and has lost its holds; call again"
    )]
    Cloned {
        /// The lock's unique key.
        key: String,
        /// The locker that the copy has made, too.
        locker: String,
    },

    /// The generator that made this lock was closed; make a new one.
    #[error("the lock generator was closed: no new holds; make a new generator")]
    ShutDown,

    /// The process was forked after the generator was made. The generator's threads and connections, and the locks it held,
    /// belong only to the parent. Nothing was sent.
    #[error("this process is a fork of the one that made the lock generator: make the generator after forking")]
    Forked,
}

/// Returns what to do about a denial. A server that does not know the user says nothing about rights.
fn what_helps(words: &str) -> &'static str {
    const UNKNOWN: [&str; 4] = ["WRONGPASS", "authentication failed", "ACL not found", "etcd wants to know its users"];
    if words.contains("NOAUTH") {
        "the server wants a login: put the user name and the password into the URL"
    } else if UNKNOWN.iter().any(|said| words.contains(said)) {
        "correct the user name and the password or token, or make that user on the server"
    } else if words.contains("no header may have") {
        "write the token as the server has issued it: without a line break or another control character"
    } else {
        "give the user the rights listed in the manual, page \"operations\", section \"ACL rules\", or for etcd and Consul in the documentation of dlock-consensus"
    }
}

/// Returns what to do about a key that is in use. Locks of other types and targets need the same fence.
fn what_frees(words: &str) -> &'static str {
    if words.starts_with("fence") {
        "remove that key: other locks need it, too, and the next lock makes it anew"
    } else {
        "remove that key, or choose another lock type or target"
    }
}

/// What is known about a command that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendFailure {
    /// The command was certainly not executed (no connection, LOADING, READONLY, …). It may be tried again. It says nothing
    /// about who holds the lock.
    NotExecuted,
    /// The server refuses all writes (OOM, MISCONF) until an operator intervenes.
    Refused,
    /// The command was sent and its outcome is unknown (time-out, connection closed, an error in the middle of a script).
    Unknown,
    /// The server executed the command, but too few of its replicas have acknowledged it: `RedisBuilder::replica_acks`. An attempt to lock was
    /// undone, and the store no longer knows its locker. A lease that was to be extended counts as not extended.
    Unacknowledged,
}

impl fmt::Display for BackendFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotExecuted => "command not executed",
            Self::Refused => "writes refused",
            Self::Unknown => "outcome unknown",
            Self::Unacknowledged => "not acknowledged by replicas",
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
    /// Why it was lost.
    pub cause: LossCause,
    /// The time from the loss to this error: from when it was noticed, or from the deadline if that passed.
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
    /// The lease was not extended before its deadline: the process was stopped, or the store was unreachable.
    Deadline,
    /// The key contains the locker of another holder.
    TakenOver {
        /// The other locker, or a note that the key is of another type.
        by: String,
    },
    /// The key is gone: it was deleted or evicted, or is missing after a failover.
    Deleted,
    /// The lock was held for longer than [`with_max_hold`](crate::DLockConfig::with_max_hold) allows. The store keeps the key
    /// for the remainder of its lease, which is no longer extended.
    HeldTooLong,
    /// An operator has taken the lock away: [`DLockGenerator::break_lock`](crate::DLockGenerator::break_lock). A holder that asks for the
    /// cause at the moment of the loss may be told `Deleted` or `TakenOver` instead, until the store has said who has taken it. `unlock` asks
    /// the store for that. `on_lost` and the log wait only for a fraction of a second for its answer.
    #[non_exhaustive]
    Broken {
        /// The client that broke the lock: the beginning of its lockers.
        by: String,
        /// The reason that was given.
        reason: String,
    },
    /// A copy of this process runs elsewhere with the same identity: [`Error::Cloned`]. The lock is not released, because the copy may hold
    /// it.
    Cloned,
    /// The thread that held the lock ended without unlocking. The lease is no longer extended. Others get the lock when it is over.
    ThreadEnded,
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline => f.write_str("it was not extended before its deadline"),
            Self::TakenOver { by } => write!(f, "the key was taken over by {by:?}"),
            Self::Broken { by, reason } => write!(f, "it was broken by {by:?}: {}", OneLine(reason)),
            Self::Deleted => f.write_str("the key was deleted from the store"),
            Self::Cloned => f.write_str("a copy of this process has the same identity and may hold it, too"),
            Self::ThreadEnded => f.write_str("the thread that held it has ended without unlocking"),
            Self::HeldTooLong => f.write_str("it was held for longer than max_hold, and is not extended any more"),
        }
    }
}

impl Error {
    /// Returns `true` if the store could not be reached or answered too late, or if its replicas did not acknowledge in time. The same
    /// attempt to lock, or the same query, may succeed later without anybody's help. If the store executed the failed attempt
    /// nevertheless, it is undone in the background. Do not repeat an `unlock`: the hold is over, whatever `unlock` returns, and its release is
    /// repeated in the background.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Backend {
                failure: BackendFailure::NotExecuted | BackendFailure::Unknown | BackendFailure::Unacknowledged,
                ..
            }
        )
    }

    /// Returns `true` if a lease was lost: somebody else may be inside, or may have been.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::LeaseLost(_))
    }

    /// Creates an [`Error::InvalidConfig`]; `hint` says what to do.
    #[must_use]
    pub fn invalid_config(what: &'static str, value: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::InvalidConfig { what, value: value.into(), hint: hint.into() }
    }

    /// Creates an [`Error::Backend`] without a cause.
    #[must_use]
    pub fn backend(failure: BackendFailure, message: impl Into<String>) -> Self {
        Self::Backend { failure, message: message.into(), source: None }
    }

    /// Creates an [`Error::Backend`] with the error that caused it, which becomes its [`source`](StdError::source). The message
    /// should repeat the words of the cause, because logs show only the message.
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

    /// Creates an [`Error::Denied`].
    #[must_use]
    pub fn denied(message: impl Into<String>) -> Self {
        Self::Denied { message: message.into() }
    }

    /// Creates an [`Error::Conflict`].
    #[must_use]
    pub fn conflict(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Conflict { key: key.into(), message: message.into() }
    }

    /// Creates an [`Error::Unsupported`].
    #[must_use]
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::Unsupported { message: message.into() }
    }

    /// Returns `true` if the request may have been executed without a reply.
    pub(crate) const fn is_unknown(&self) -> bool {
        matches!(self, Self::Backend { failure: BackendFailure::Unknown, .. })
    }

    /// Returns this error with an unknown outcome: an earlier try of the command may have been executed.
    pub(crate) fn of_perhaps_executed(self) -> Self {
        match self {
            Self::Backend { message, source, .. } => {
                Self::Backend { failure: BackendFailure::Unknown, message, source }
            }
            other => other,
        }
    }

    /// Returns this error with an unknown outcome if it says only that a question about a command was not executed, or was refused. The command
    /// itself may have been executed.
    pub(crate) fn of_perhaps_sent(self) -> Self {
        match self {
            Self::Backend { failure: BackendFailure::NotExecuted | BackendFailure::Refused, .. } => {
                self.of_perhaps_executed()
            }
            other => other,
        }
    }

    /// Converts this error to one with an unknown outcome, with the same cause.
    #[cfg(feature = "redis")]
    pub(crate) fn into_unknown(self) -> Self {
        let message = self.to_string();
        let source = if let Self::Backend { source, .. } = self { source } else { None };
        Self::Backend { failure: BackendFailure::Unknown, message, source }
    }
}

/// The error that made a store fail, in [`Error::Backend`]. Clones share it. It dereferences to the error itself.
#[derive(Clone)]
pub struct Cause(Arc<dyn StdError + Send + Sync>);

// The inner error is shared and never changed here. `Error` was unwind-safe before it had a cause, and must stay so.
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

// `Cause` is not an error itself, so that `source()` returns the inner error, which can be downcast.
impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
#[path = "../tests/white_box/error.rs"]
mod tests;
