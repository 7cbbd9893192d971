//! Methods that a task awaits: the feature `async`.

use crate::client::wait_limit::WaitLimit;
use crate::lock::hold_future::{HoldFuture, TryHoldFuture};
use crate::lock::reentrant::DistributedReentrantLock;
use std::time::{Duration, Instant};

impl DistributedReentrantLock {
    /// Acquires the lock for a [`Hold`](crate::Hold), as [`hold`](Self::hold) does, for a task that awaits it, on any runtime.
    ///
    /// Never blocks the thread that polls it: the client's own threads ask the store, and wake the task. Tasks and threads wait in the same
    /// queues, in order of arrival. Dropping the future ends the wait, and leaves neither a hold nor a place in a queue.
    ///
    /// # Errors
    ///
    /// As [`hold`](Self::hold).
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// # futures_lite::future::block_on(async {
    /// let hold = lock.hold_async().await?;
    /// hold.ensure_valid()?;
    /// hold.release_async().await
    /// # })?;
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn hold_async(&self) -> HoldFuture {
        HoldFuture::new(self)
    }

    /// Tries once to acquire the lock for a [`Hold`](crate::Hold), as [`try_hold`](Self::try_hold) does, for a task that awaits it. Its output is
    /// `None` if the lock is held. Never blocks the thread that polls it.
    ///
    /// # Errors
    ///
    /// As [`try_hold`](Self::try_hold).
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// # futures_lite::future::block_on(async {
    /// let hold = lock.try_hold_async().await?.expect("nobody else has it");
    /// assert!(lock.try_hold_async().await?.is_none());
    /// # Ok::<_, redis_dlock::Error>(())
    /// # })?;
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn try_hold_async(&self) -> TryHoldFuture {
        TryHoldFuture::new(self, WaitLimit::ONE_ATTEMPT)
    }

    /// Acquires the lock for a [`Hold`](crate::Hold), for a task that awaits it for at most `limit`, which counts from now. Its output is `None` if
    /// the lock was held all that time. Needs no timer of the runtime. Never blocks the thread that polls it.
    ///
    /// # Errors
    ///
    /// As [`try_hold_for`](Self::try_hold_for).
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// # use std::time::Duration;
    /// # futures_lite::future::block_on(async {
    /// let _hold = lock.hold_async().await?;
    /// assert!(lock.try_hold_async_for(Duration::from_millis(20)).await?.is_none());
    /// # Ok::<_, redis_dlock::Error>(())
    /// # })?;
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn try_hold_async_for(&self, limit: Duration) -> TryHoldFuture {
        TryHoldFuture::new(self, self.handle.wait_limit(limit))
    }

    /// Acquires the lock for a [`Hold`](crate::Hold), for a task that awaits it until `deadline` at the latest. Its output is `None` if the lock
    /// was held all that time. Never blocks the thread that polls it.
    ///
    /// # Errors
    ///
    /// As [`try_hold_for`](Self::try_hold_for).
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// # use std::time::{Duration, Instant};
    /// # futures_lite::future::block_on(async {
    /// assert!(lock.try_hold_async_until(Instant::now() + Duration::from_secs(2)).await?.is_some());
    /// # Ok::<_, redis_dlock::Error>(())
    /// # })?;
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn try_hold_async_until(&self, deadline: Instant) -> TryHoldFuture {
        TryHoldFuture::new(self, self.handle.limit_until(deadline))
    }
}
