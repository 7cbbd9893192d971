//! Forced breaks: they take a key from its holder by an operator's order.

/// An order to break a hold: [`Request::Break`](super::Request::Break).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Break<'a> {
    /// The lock's unique key.
    pub key: &'a str,
    /// The locker that was seen to hold the key: any text.
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

/// The outcome of a forced break: [`DLockGenerator::break_lock`](crate::DLockGenerator::break_lock).
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

/// By whom and why a hold was broken: [`Request::Broken`](super::Request::Broken).
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
