//! The store's answer about a lock.

use std::time::Duration;

/// The holder of a lock, as [`DistributedReentrantLock::holder`](crate::DistributedReentrantLock::holder) found it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The value of the key. [Operations](crate::manual::operations#who-holds-a-lock) says what it consists of.
    pub locker: String,
    /// How long until its lease and its [lock-delay](crate::DLockConfig::with_lock_delay) end if it is not extended; `None` for a key that
    /// never expires (this crate writes none).
    pub remaining: Option<Duration>,
    /// Whether the holder belongs to the generator that was asked.
    pub is_local: bool,
}

/// The state of a lock in the store: see [`DistributedReentrantLock::inspect`](crate::DistributedReentrantLock::inspect).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockState {
    /// The holder; `None` if nobody holds the lock.
    pub holder: Option<Holder>,
    /// About how many processes wait in the store's queue. Each process has at most one place there, however many of its
    /// threads wait. A process that has died keeps its place until the store reaches it. Processes that only poll are not
    /// counted.
    pub waiting: u64,
}
