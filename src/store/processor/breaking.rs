//! Forced breaks: taking a key from its holder because an operator wants that.

use super::Claim;
use crate::error::Error;
use std::time::Duration;

/// The end of a hold against its holder's will: [`LockProcessor::breaking`](super::LockProcessor::breaking). In a store without it,
/// [`DLockGenerator::break_lock`](crate::DLockGenerator::break_lock) fails as unsupported.
pub trait Breaking: Send + Sync {
    /// Takes the key from the locker if it contains that very locker, and gives it to the first live waiter, or frees it; otherwise changes
    /// nothing. It is one atomic step. The next number is greater, as after a release. The client of the locker gets a
    /// [`Message::Broken`](super::Message::Broken). Blocks for at most `limit`. Safe to repeat.
    ///
    /// # Errors
    ///
    /// As [`release`](super::LockProcessor::release).
    fn break_hold(&self, order: &Break<'_>, limit: Duration) -> Result<BreakOutcome, Error>;

    /// Returns by whom the hold of this claim's locker was broken, and why, if it was. The store must know it for a minute, and longer until
    /// the lease that was broken would have ended; it may forget it then. Asked when the client of the locker has found that the key does not
    /// contain it, and by whoever has broken the hold and has lost the reply. Blocks for at most `limit`.
    ///
    /// # Errors
    ///
    /// As [`inspect`](super::LockProcessor::inspect).
    fn broken(&self, claim: &Claim<'_>, limit: Duration) -> Result<Option<Broken>, Error>;
}

/// An order to break a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Break<'a> {
    /// The lock's unique key.
    pub key: &'a str,
    /// The locker that was seen to hold it: any text.
    pub locker: &'a str,
    /// Who gives the order, without spaces.
    pub by: &'a str,
    /// Why, on one line.
    pub reason: &'a str,
}

impl<'a> Break<'a> {
    /// Creates an order.
    #[must_use]
    pub const fn new(key: &'a str, locker: &'a str, by: &'a str, reason: &'a str) -> Self {
        Self { key, locker, by, reason }
    }
}

/// What came of a forced break: [`DLockGenerator::break_lock`](crate::DLockGenerator::break_lock).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakOutcome {
    /// The lock was taken from the locker.
    Broken {
        /// The locker of the waiter that has the lock now; `None` if it was freed.
        next: Option<String>,
        /// How many processes still wait in the queue.
        waiting: u64,
    },
    /// The locker does not hold the lock; nothing was changed.
    NotHeldBy {
        /// Who holds it; `None` if it is free.
        holder: Option<String>,
    },
}

/// By whom and why a hold was broken: [`Breaking::broken`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Broken {
    /// Who gave the order.
    pub by: String,
    /// Why.
    pub reason: String,
}

impl Broken {
    /// Describes a broken hold.
    #[must_use]
    pub fn new(by: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { by: by.into(), reason: reason.into() }
    }
}
