//! The guard of one hold that owns its handle of the lock.

use crate::client::wait_limit::WaitLimit;
use crate::error::{Error, LeaseLoss};
use crate::lock::guard::OfThisThread;
use crate::lock::reentrant::DistributedReentrantLock;
use crossbeam_channel::Receiver;
use std::marker::PhantomData;
use std::time::Duration;

/// Keeps the lock as a [`DLockGuard`](crate::DLockGuard) does, and owns a handle of the lock. So a function can make a lock and
/// return its guard, and a struct or a map can store guards of many locks.
///
/// Like a `DLockGuard`, it belongs to the thread that locked and cannot be sent to another thread. Dropping it unlocks in the
/// same way. While it lives, the client behind its generator lives, too. If it is the last handle of that client, dropping it
/// also ends the client, and blocks until the client's threads have ended and the store has replied.
///
/// A guard in a thread-local variable may be dropped only when its thread already counts as ended. Then the lease runs out
/// instead ([`LossCause::ThreadEnded`](crate::LossCause::ThreadEnded)).
///
/// ```
/// use redis_dlock::{DLockGenerator, Error, MemoryLockProcessor, OwnedDLockGuard};
/// use std::collections::HashMap;
///
/// fn locked(generator: &DLockGenerator, order: &str) -> Result<OwnedDLockGuard, Error> {
///     generator.generate("ORDER", order)?.lock_owned()
/// }
///
/// let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
/// let mut orders = HashMap::new();
/// for order in ["4711", "4712"] {
///     orders.insert(order, locked(&generator, order)?);
/// }
/// assert!(orders["4711"].is_valid());
/// for (_, guard) in orders {
///     guard.unlock()?;
/// }
/// # Ok::<_, Error>(())
/// ```
///
/// ```compile_fail,E0277
/// # use redis_dlock::{DLockGenerator, MemoryLockProcessor};
/// # let lock = DLockGenerator::new(MemoryLockProcessor::new()).unwrap().generate("T", "x").unwrap();
/// let guard = lock.lock_owned().unwrap();
/// std::thread::spawn(move || drop(guard)); // error: TheThreadThatLocksMustUnlock
/// ```
#[derive(Debug)]
#[must_use = "the lock is unlocked at once when its guard is dropped"]
pub struct OwnedDLockGuard {
    lock: DistributedReentrantLock,
    token: u64,
    done: bool,
    _of_this_thread: PhantomData<OfThisThread>,
}

queries!(OwnedDLockGuard);

/// With guards that own their handle.
impl OwnedDLockGuard {
    pub(super) fn acquire(lock: &DistributedReentrantLock, limit: &WaitLimit<'_>) -> Result<Option<Self>, Error> {
        let token = lock.handle.acquire(limit)?;
        Ok(token.map(|token| Self { lock: lock.clone(), token, done: false, _of_this_thread: PhantomData }))
    }

    /// Unlocks, and returns the outcome. Blocks as [`DLockGuard::unlock`](crate::DLockGuard::unlock) does.
    ///
    /// # Errors
    ///
    /// As [`DLockGuard::unlock`](crate::DLockGuard::unlock).
    pub fn unlock(mut self) -> Result<(), Error> {
        self.done = true;
        self.lock.handle.unlock(None, Some(self.token))
    }

    /// Unlocks, and keeps everybody from the lock until `at_least` has passed since the hold began. See
    /// [`DLockGuard::unlock_after`](crate::DLockGuard::unlock_after).
    ///
    /// # Errors
    ///
    /// As [`DLockGuard::unlock_after`](crate::DLockGuard::unlock_after).
    pub fn unlock_after(mut self, at_least: Duration) -> Result<Duration, Error> {
        self.done = true;
        self.lock.handle.unlock_after(None, self.token, at_least)
    }
}

impl Drop for OwnedDLockGuard {
    fn drop(&mut self) {
        if !self.done {
            self.lock.handle.unlock_dropped(None, self.token);
        }
    }
}
