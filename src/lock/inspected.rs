//! The store's answer about a lock.

use crate::description::{self, DelayedRelease};
use std::fmt;
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

impl Holder {
    /// Returns the hold that has ended, if the release is [delayed](crate::DLockGuard::unlock_after): nobody holds the lock, and the store keeps
    /// everybody out for the [`remaining`](Self::remaining) time.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// lock.lock()?.unlock_after(Duration::from_secs(600))?;
    /// if lock.try_lock()?.is_none() {
    ///     match lock.holder()? {
    ///         Some(holder) if holder.delayed_release().is_some() => println!("done"),
    ///         Some(holder) => println!("under way: held by {holder}"),
    ///         None => println!("free by now"),
    ///     }
    /// }
    /// # assert!(lock.holder()?.is_some_and(|holder| holder.delayed_release().is_some()));
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    #[must_use]
    pub fn delayed_release(&self) -> Option<DelayedRelease> {
        DelayedRelease::of_locker(&self.locker)
    }
}

/// Shows the locker, for a line such as `held by {holder}`. [`describe`](crate::DLockGenerator::describe) tells more.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&description::locker_in_words(&self.locker))
    }
}

/// The state of a lock in the store: see [`DistributedReentrantLock::inspect`](crate::DistributedReentrantLock::inspect).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockState {
    /// The holder; `None` if nobody holds the lock, and it is not [kept](Holder::delayed_release) after a hold.
    pub holder: Option<Holder>,
    /// About how many processes wait in the store's queue. Each process has at most one place there, however many of its
    /// threads wait. A process that has died keeps its place until the store reaches it. Processes that only poll are not
    /// counted.
    pub waiting: u64,
}
