//! The lock without guards, with pairs of `lock` and `unlock` as on the JVM.

use crate::client::wait_limit::{CancelToken, WaitLimit};
use crate::error::Error;
use crate::lock::handle::without_limit;
use crate::lock::reentrant::DistributedReentrantLock;
use crossbeam_channel::{Receiver, bounded};
use std::time::{Duration, Instant};

/// A lock whose holds are ended by [`unlock`](Self::unlock), for code ported from JVM DLock.
///
/// It shares the hold count with the guards of the same lock. New code is safer with guards: they unlock when a function
/// returns early or panics. If a thread ends while it holds the lock, the client notices and lets the lease run out
/// ([`LossCause::ThreadEnded`](crate::LossCause::ThreadEnded)). The same may happen to a hold that only the destructor of a
/// thread-local unlocks.
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
    /// Acquires the lock. Blocks as [`DistributedReentrantLock::lock`] does, without a limit. JVM: `lock()`.
    ///
    /// # Errors
    ///
    /// As [`DistributedReentrantLock::lock`].
    pub fn lock(&self) -> Result<(), Error> {
        without_limit(self.lock.handle.acquire(&WaitLimit::FOREVER)).map(drop)
    }

    /// Tries once to acquire the lock. Returns `false` if it is held. Blocks as [`DistributedReentrantLock::try_lock`] does.
    /// JVM: `tryLock()`.
    ///
    /// # Errors
    ///
    /// As [`DistributedReentrantLock::try_lock`].
    pub fn try_lock(&self) -> Result<bool, Error> {
        Ok(self.lock.handle.acquire(&WaitLimit::ONE_ATTEMPT)?.is_some())
    }

    /// Acquires the lock, blocking for at most `limit`, as [`DistributedReentrantLock::try_lock_for`] does. Returns `false` if it
    /// was held all that time. JVM: `tryLock(time, unit)` (which JVM DLock does not support).
    ///
    /// # Errors
    ///
    /// As [`DistributedReentrantLock::try_lock_for`].
    pub fn try_lock_for(&self, limit: Duration) -> Result<bool, Error> {
        Ok(self.lock.handle.acquire(&self.lock.handle.wait_limit(limit))?.is_some())
    }

    /// Acquires the lock, blocking until `deadline` at the latest. Returns `false` if it was held all that time.
    ///
    /// # Errors
    ///
    /// As [`DistributedReentrantLock::try_lock_until`].
    pub fn try_lock_until(&self, deadline: Instant) -> Result<bool, Error> {
        Ok(self.lock.handle.acquire(&self.lock.handle.limit_until(deadline))?.is_some())
    }

    /// Acquires the lock, blocking until `cancel` is cancelled at the latest. Returns `false` if it was cancelled. JVM:
    /// `lockInterruptibly()`.
    ///
    /// # Errors
    ///
    /// As [`DistributedReentrantLock::lock_cancellable`].
    pub fn lock_cancellable(&self, cancel: &CancelToken) -> Result<bool, Error> {
        Ok(self.lock.handle.acquire(&WaitLimit::FOREVER.or_cancelled(cancel))?.is_some())
    }

    /// Unlocks once. Blocks as [`DLockGuard::unlock`](crate::DLockGuard::unlock) does. JVM: `unlock()`.
    ///
    /// # Errors
    ///
    /// * [`Error::NotHeld`] if the calling thread does not hold the lock; nothing is changed (JVM:
    ///   `IllegalMonitorStateException`).
    /// * [`Error::LeaseLost`], [`Error::Backend`], [`Error::Denied`]: as [`DLockGuard::unlock`](crate::DLockGuard::unlock) (the
    ///   JVM drops these).
    pub fn unlock(&self) -> Result<(), Error> {
        self.lock.handle.unlock(None, None)
    }

    /// Returns the fencing token of the calling thread's hold; `None` if it holds nothing. Does not block.
    #[must_use]
    pub fn fencing_token(&self) -> Option<u64> {
        self.lock.is_held_by_current_thread().then(|| self.lock.handle.key.hold.token())
    }

    /// Returns `true` if the calling thread holds the lock with a lease that is certainly its own. Does not block.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.fencing_token().is_some_and(|token| self.lock.handle.holds_validly(token))
    }

    /// Returns for how long the lease of the calling thread's hold is certainly its own if it is not extended again; zero if
    /// the lease is lost or the thread holds nothing. Does not block.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.fencing_token().map_or(Duration::ZERO, |token| self.lock.handle.remaining_of(token))
    }

    /// Fails unless the calling thread holds the lock with a lease that is certainly its own. Does not block.
    ///
    /// # Errors
    ///
    /// [`Error::LeaseLost`] with the cause; [`Error::NotHeld`] if the thread holds nothing.
    pub fn ensure_valid(&self) -> Result<(), Error> {
        match self.fencing_token() {
            Some(token) => self.lock.handle.ensure_valid_hold(token),
            None => Err(Error::NotHeld { key: self.key().to_owned() }),
        }
    }

    /// Returns a channel that receives one message when the lease of the calling thread's hold is lost. See
    /// [`DLockGuard::lost`](crate::DLockGuard::lost). If the thread holds nothing, the channel is disconnected from the start. Does
    /// not block.
    #[must_use]
    pub fn lost(&self) -> Receiver<()> {
        self.fencing_token().map_or_else(|| bounded(0).1, |token| self.lock.handle.key.watch(token))
    }

    /// Returns how many times the calling thread holds the lock. JVM: `getHoldCount()`. Does not block.
    #[must_use]
    pub fn hold_count(&self) -> usize {
        self.lock.hold_count()
    }

    /// Returns `true` if the calling thread holds the lock, with a valid lease or a lost one. JVM: `isHeldByCurrentThread()`.
    /// Does not block.
    #[must_use]
    pub fn is_held_by_current_thread(&self) -> bool {
        self.lock.is_held_by_current_thread()
    }

    /// Returns the lock's key in the store.
    #[must_use]
    pub fn key(&self) -> &str {
        self.lock.key()
    }

    /// Returns the same lock with guards.
    #[must_use]
    pub fn guarded(&self) -> &DistributedReentrantLock {
        &self.lock
    }
}

impl From<DistributedReentrantLock> for UnguardedLock {
    fn from(lock: DistributedReentrantLock) -> Self {
        Self { lock }
    }
}
