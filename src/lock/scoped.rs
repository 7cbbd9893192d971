//! Methods that hold the lock while a closure runs.

use crate::error::Error;
use crate::lock::guard::DLockGuard;
use crate::lock::reentrant::DistributedReentrantLock;

impl DistributedReentrantLock {
    /// Acquires the lock as [`lock`](Self::lock) does, runs `work`, and unlocks as [`DLockGuard::unlock`] does. Blocks for all
    /// three.
    ///
    /// The whole hold is on the calling thread, and no `.await` can occur inside it. If `work` panics, the lock is unlocked as
    /// by a dropped guard, and the panic continues.
    ///
    /// # Errors
    ///
    /// * Those of [`lock`](Self::lock): `work` has not run.
    /// * Those of [`DLockGuard::unlock`]: `work` has run, and its result is dropped. After [`Error::LeaseLost`], `work` may
    ///   have run beside another holder. To keep the result in that case, let `work` store it elsewhere.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_dlock::{DLockGenerator, MemoryLockProcessor};
    /// # let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
    /// let lock = generator.generate("ORDER", "4711")?;
    /// let token = lock.with(|guard| {
    ///     // … the work …
    ///     guard.fencing_token()
    /// })?;
    /// # assert!(token > 0);
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn with<R>(&self, work: impl FnOnce(&DLockGuard<'_>) -> R) -> Result<R, Error> {
        run(self.lock()?, work)
    }

    /// Tries once to acquire the lock, as [`try_lock`](Self::try_lock) does. If that succeeds, runs `work` and unlocks, as
    /// [`with`](Self::with) does. Blocks for these. Returns `None` if the lock is held: `work` has not run.
    ///
    /// # Errors
    ///
    /// Those of [`try_lock`](Self::try_lock) and of [`DLockGuard::unlock`], as with [`with`](Self::with).
    pub fn try_with<R>(&self, work: impl FnOnce(&DLockGuard<'_>) -> R) -> Result<Option<R>, Error> {
        self.try_lock()?.map(|guard| run(guard, work)).transpose()
    }
}

fn run<R>(guard: DLockGuard<'_>, work: impl FnOnce(&DLockGuard<'_>) -> R) -> Result<R, Error> {
    let result = work(&guard);
    guard.unlock()?;
    Ok(result)
}
