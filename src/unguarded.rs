//! The JVM's way to lock: pairs of calls, without a guard.

use crate::cancel::Patience;
use crate::error::Error;
use crate::lock::DistributedReentrantLock;
use std::time::Duration;

/// A lock whose holds are ended by [`unlock`](Self::unlock), for code ported from JVM DLock.
///
/// It shares the hold count with the guards of the same lock. New code is safer with guards: they unlock when a
/// function returns early or panics. A thread that ends while it holds is noticed, and its lease runs out
/// ([`LossCause::ThreadEnded`](crate::LossCause::ThreadEnded)); so may be a hold that is only unlocked by the destructor of a thread-local.
///
/// ```
/// use redis_dlock::{DLockGenerator, MemoryLockProcessor};
///
/// let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
/// let lock = generator.generate("ORDER", "4711")?.unguarded();
/// lock.lock()?;
/// let result = (|| { /* the work */ })();
/// lock.unlock()?; // what `finally` does on the JVM
/// # let _ = result;
/// # Ok::<_, redis_dlock::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct UnguardedLock {
    lock: DistributedReentrantLock,
}

impl UnguardedLock {
    pub(crate) fn new(lock: DistributedReentrantLock) -> Self {
        Self { lock }
    }

    /// Gets the lock, waiting for as long as it takes. JVM: `lock()`.
    ///
    /// # Errors
    ///
    /// As [`DistributedReentrantLock::lock`].
    pub fn lock(&self) -> Result<(), Error> {
        // Only a caller's own limit ends the waiting without an error.
        self.lock.acquire(&Patience::Forever)?.map(drop).ok_or(Error::ShutDown)
    }

    /// Tries once to get the lock. JVM: `tryLock()`.
    ///
    /// # Errors
    ///
    /// As [`DistributedReentrantLock::try_lock`].
    pub fn try_lock(&self) -> Result<bool, Error> {
        Ok(self.lock.acquire(&Patience::OneAttempt)?.is_some())
    }

    /// Gets the lock, waiting no longer than `limit`. JVM: `tryLock(time, unit)` (which JVM DLock does not support).
    ///
    /// # Errors
    ///
    /// As [`DistributedReentrantLock::try_lock_for`].
    pub fn try_lock_for(&self, limit: Duration) -> Result<bool, Error> {
        Ok(self.lock.acquire(&self.lock.patience(limit))?.is_some())
    }

    /// Unlocks once. Blocks for one round trip when it ends the hold. JVM: `unlock()`.
    ///
    /// # Errors
    ///
    /// * [`Error::NotHeld`] from any thread but the holder; nothing is changed (JVM: `IllegalMonitorStateException`).
    /// * [`Error::LeaseLost`], [`Error::Backend`], [`Error::Denied`]: as [`DLockGuard::unlock`](crate::DLockGuard::unlock) (the JVM drops these).
    pub fn unlock(&self) -> Result<(), Error> {
        self.lock.release(None, true)
    }

    /// The fencing token of the calling thread's hold; `None` when it holds nothing. Does not block.
    #[must_use]
    pub fn fencing_token(&self) -> Option<u64> {
        self.lock.is_held_by_current_thread().then(|| self.lock.local_key().hold.token())
    }

    /// Whether the calling thread holds the lock with a lease that is certainly its own. Does not block.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.fencing_token().is_some_and(|token| self.lock.local_key().is_valid(self.lock.client(), token))
    }
}

impl From<DistributedReentrantLock> for UnguardedLock {
    fn from(lock: DistributedReentrantLock) -> Self {
        Self::new(lock)
    }
}
