//! Methods whose guard has no lifetime, and the method that returns the lock without guards.

use crate::client::wait_limit::{CancelToken, WaitLimit};
use crate::error::Error;
use crate::lock::handle::without_limit;
use crate::lock::owned_guard::OwnedDLockGuard;
use crate::lock::reentrant::DistributedReentrantLock;
use crate::lock::unguarded::UnguardedLock;
use std::time::{Duration, Instant};

impl DistributedReentrantLock {
    /// As [`lock`](Self::lock), with a guard that owns its handle.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock).
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// # use redis_dlock::{DLockGenerator, Error, OwnedDLockGuard};
    /// fn locked(generator: &DLockGenerator, order: &str) -> Result<OwnedDLockGuard, Error> {
    ///     generator.generate("ORDER", order)?.lock_owned()
    /// }
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn lock_owned(&self) -> Result<OwnedDLockGuard, Error> {
        without_limit(OwnedDLockGuard::acquire(self, &WaitLimit::FOREVER))
    }

    /// As [`try_lock`](Self::try_lock), with a guard that owns its handle.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock).
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// let guard = lock.try_lock_owned()?.expect("nobody else has it");
    /// assert!(guard.lock().is_held_by_current_thread());
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn try_lock_owned(&self) -> Result<Option<OwnedDLockGuard>, Error> {
        OwnedDLockGuard::acquire(self, &WaitLimit::ONE_ATTEMPT)
    }

    /// As [`try_lock_for`](Self::try_lock_for), with a guard that owns its handle.
    ///
    /// # Errors
    ///
    /// As [`try_lock_for`](Self::try_lock_for).
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// # use std::time::Duration;
    /// assert!(lock.try_lock_owned_for(Duration::from_secs(2))?.is_some());
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn try_lock_owned_for(&self, limit: Duration) -> Result<Option<OwnedDLockGuard>, Error> {
        OwnedDLockGuard::acquire(self, &self.handle.wait_limit(limit))
    }

    /// As [`try_lock_until`](Self::try_lock_until), with a guard that owns its handle.
    ///
    /// # Errors
    ///
    /// As [`try_lock_until`](Self::try_lock_until).
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// # use std::time::{Duration, Instant};
    /// assert!(lock.try_lock_owned_until(Instant::now() + Duration::from_secs(2))?.is_some());
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn try_lock_owned_until(&self, deadline: Instant) -> Result<Option<OwnedDLockGuard>, Error> {
        OwnedDLockGuard::acquire(self, &self.handle.limit_until(deadline))
    }

    /// As [`lock_cancellable`](Self::lock_cancellable), with a guard that owns its handle.
    ///
    /// # Errors
    ///
    /// As [`lock_cancellable`](Self::lock_cancellable).
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// # use redis_dlock::CancelToken;
    /// assert!(lock.lock_owned_cancellable(&CancelToken::new())?.is_some());
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn lock_owned_cancellable(&self, cancel: &CancelToken) -> Result<Option<OwnedDLockGuard>, Error> {
        OwnedDLockGuard::acquire(self, &WaitLimit::FOREVER.or_cancelled(cancel))
    }

    /// As [`try_lock_cancellable_for`](Self::try_lock_cancellable_for), with a guard that owns its handle.
    ///
    /// # Errors
    ///
    /// As [`try_lock_for`](Self::try_lock_for).
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// # use redis_dlock::CancelToken;
    /// # use std::time::Duration;
    /// assert!(lock.try_lock_owned_cancellable_for(Duration::from_secs(2), &CancelToken::new())?.is_some());
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn try_lock_owned_cancellable_for(
        &self,
        limit: Duration,
        cancel: &CancelToken,
    ) -> Result<Option<OwnedDLockGuard>, Error> {
        OwnedDLockGuard::acquire(self, &self.handle.wait_limit(limit).or_cancelled(cancel))
    }

    /// As [`try_lock_cancellable_until`](Self::try_lock_cancellable_until), with a guard that owns its handle.
    ///
    /// # Errors
    ///
    /// As [`try_lock_for`](Self::try_lock_for).
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// # use redis_dlock::CancelToken;
    /// # use std::time::{Duration, Instant};
    /// let deadline = Instant::now() + Duration::from_secs(2);
    /// assert!(lock.try_lock_owned_cancellable_until(deadline, &CancelToken::new())?.is_some());
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn try_lock_owned_cancellable_until(
        &self,
        deadline: Instant,
        cancel: &CancelToken,
    ) -> Result<Option<OwnedDLockGuard>, Error> {
        OwnedDLockGuard::acquire(self, &self.handle.limit_until(deadline).or_cancelled(cancel))
    }

    /// Returns the same lock with the JVM's `lock`/`unlock` pairs, for ported code. It shares the hold count with the guards.
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// let ported = lock.unguarded();
    /// ported.lock()?;
    /// assert_eq!(lock.hold_count(), 1);
    /// ported.unlock()?;
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    #[must_use]
    pub fn unguarded(&self) -> UnguardedLock {
        self.clone().into()
    }
}
