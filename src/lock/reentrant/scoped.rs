//! Methods that hold the lock while a closure runs.

use crate::client::wait_limit::CancelToken;
use crate::error::Error;
use crate::lock::guard::DLockGuard;
use crate::lock::reentrant::DistributedReentrantLock;
use std::time::Duration;

impl DistributedReentrantLock {
    /// Acquires the lock as [`lock`](Self::lock) does, runs `work`, and unlocks as [`DLockGuard::unlock`] does. Blocks for all
    /// three.
    ///
    /// If `work` returns a `Result` of its own, there are two of them: `lock.with(|_| save())??`, or `lock.try_with(|_| save())?.transpose()?`.
    ///
    /// The whole hold is on the calling thread, and no `.await` can occur inside it. If `work` panics, the lock is unlocked as
    /// by a dropped guard, and the panic continues.
    ///
    /// If the store does not confirm the release ([`Error::Backend`], [`Error::Denied`] from `unlock`), the result is returned all
    /// the same: `work` has run, and alone. The release is then repeated in the background, as that of a dropped guard is, and
    /// the log has a WARN. Others get the lock at the latest when the lease ends. An error here would make the caller
    /// repeat work that is done. To be told of such a release, use a guard and [`DLockGuard::unlock`].
    ///
    /// # Errors
    ///
    /// * Those of [`lock`](Self::lock): `work` has not run.
    /// * [`Error::LeaseLost`]: `work` has run, and may have run beside another holder. Its result is dropped. To keep it, let
    ///   `work` store it elsewhere.
    /// * [`Error::NotHeld`], [`Error::Forked`]: `work` itself has ended the hold
    ///   ([`UnguardedLock::unlock`](crate::UnguardedLock::unlock)), or has forked and returned in the child.
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
    /// Those of [`try_lock`](Self::try_lock), and those of [`with`](Self::with) after `work`.
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// if lock.try_with(|_guard| { /* the work */ })?.is_none() {
    ///     println!("somebody else does it");
    /// }
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn try_with<R>(&self, work: impl FnOnce(&DLockGuard<'_>) -> R) -> Result<Option<R>, Error> {
        self.try_lock()?.map(|guard| run(guard, work)).transpose()
    }

    /// Acquires the lock as [`try_lock_for`](Self::try_lock_for) does, blocking for at most `limit`, runs `work` and unlocks, as
    /// [`with`](Self::with) does. The limit is for the wait alone. Returns `None` if the lock was held all that time: `work`
    /// has not run.
    ///
    /// # Errors
    ///
    /// Those of [`try_lock_for`](Self::try_lock_for), and those of [`with`](Self::with) after `work`.
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// # use std::time::Duration;
    /// assert_eq!(lock.try_with_for(Duration::from_secs(2), |_guard| 6 * 7)?, Some(42));
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn try_with_for<R>(
        &self,
        limit: Duration,
        work: impl FnOnce(&DLockGuard<'_>) -> R,
    ) -> Result<Option<R>, Error> {
        self.try_lock_for(limit)?.map(|guard| run(guard, work)).transpose()
    }

    /// Acquires the lock as [`lock_cancellable`](Self::lock_cancellable) does, runs `work` and unlocks, as [`with`](Self::with)
    /// does. The token ends the wait alone, and not `work`. Returns `None` if it was cancelled: `work` has not run.
    ///
    /// # Errors
    ///
    /// Those of [`lock_cancellable`](Self::lock_cancellable), and those of [`with`](Self::with) after `work`.
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// # use redis_dlock::CancelToken;
    /// let cancel = CancelToken::new();
    /// assert_eq!(lock.with_cancellable(&cancel, |_guard| 6 * 7)?, Some(42));
    /// cancel.cancel();
    /// assert_eq!(lock.with_cancellable(&cancel, |_guard| 6 * 7)?, None);
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn with_cancellable<R>(
        &self,
        cancel: &CancelToken,
        work: impl FnOnce(&DLockGuard<'_>) -> R,
    ) -> Result<Option<R>, Error> {
        self.lock_cancellable(cancel)?.map(|guard| run(guard, work)).transpose()
    }
}

fn run<R>(guard: DLockGuard<'_>, work: impl FnOnce(&DLockGuard<'_>) -> R) -> Result<R, Error> {
    let result = work(&guard);
    match guard.unlock() {
        Err(error @ (Error::LeaseLost(_) | Error::NotHeld { .. } | Error::Forked)) => Err(error),
        // A release that was not confirmed says nothing about the work. It was logged, and is repeated in the background.
        _ => Ok(result),
    }
}
