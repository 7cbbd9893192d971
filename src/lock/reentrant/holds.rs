//! Methods that return a [`Hold`], which belongs to no thread.

use crate::client::wait_limit::{CancelToken, WaitLimit};
use crate::error::Error;
use crate::lock::handle::without_limit;
use crate::lock::hold::Hold;
use crate::lock::reentrant::DistributedReentrantLock;
use std::time::{Duration, Instant};

impl DistributedReentrantLock {
    /// Acquires the lock for a [`Hold`], which belongs to no thread. Blocks as [`lock`](Self::lock) does. If the calling thread holds the lock
    /// by a guard, the call waits for ever. While another `Hold` exists, the call waits until that is released, even if this thread took it.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), without those of reentry.
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// let hold = lock.hold()?;
    /// std::thread::spawn(move || hold.release()).join().expect("no panic")?;
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn hold(&self) -> Result<Hold, Error> {
        without_limit(Hold::acquire(self, &WaitLimit::FOREVER))
    }

    /// Tries once to acquire the lock for a [`Hold`]. Returns `None` if it is held, even by the calling thread, or
    /// [kept after a hold](crate::Holder::delayed_release). Blocks as [`try_lock`](Self::try_lock) does.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock), without those of reentry.
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// let hold = lock.try_hold()?.expect("nobody else has it");
    /// assert!(lock.try_hold()?.is_none());
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn try_hold(&self) -> Result<Option<Hold>, Error> {
        Hold::acquire(self, &WaitLimit::ONE_ATTEMPT)
    }

    /// Acquires the lock for a [`Hold`], blocking for at most `limit`, as [`try_lock_for`](Self::try_lock_for) does. Returns `None` if it was
    /// held all that time.
    ///
    /// # Errors
    ///
    /// As [`try_lock_for`](Self::try_lock_for), without those of reentry.
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// # use std::time::Duration;
    /// let _guard = lock.lock()?;
    /// assert!(lock.try_hold_for(Duration::from_millis(20))?.is_none());
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn try_hold_for(&self, limit: Duration) -> Result<Option<Hold>, Error> {
        Hold::acquire(self, &self.handle.wait_limit(limit))
    }

    /// Acquires the lock for a [`Hold`], blocking until `deadline` at the latest. Returns `None` if it was held all that time.
    ///
    /// # Errors
    ///
    /// As [`try_lock_for`](Self::try_lock_for), without those of reentry.
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// # use std::time::{Duration, Instant};
    /// assert!(lock.try_hold_until(Instant::now() + Duration::from_secs(2))?.is_some());
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn try_hold_until(&self, deadline: Instant) -> Result<Option<Hold>, Error> {
        Hold::acquire(self, &self.handle.limit_until(deadline))
    }

    /// Acquires the lock for a [`Hold`], blocking until `cancel` is cancelled at the latest. Returns `None` if it was cancelled.
    ///
    /// # Errors
    ///
    /// As [`lock_cancellable`](Self::lock_cancellable), without those of reentry.
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// # use redis_dlock::CancelToken;
    /// assert!(lock.hold_cancellable(&CancelToken::new())?.is_some());
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn hold_cancellable(&self, cancel: &CancelToken) -> Result<Option<Hold>, Error> {
        Hold::acquire(self, &WaitLimit::FOREVER.or_cancelled(cancel))
    }

    /// Acquires the lock for a [`Hold`], blocking for at most `limit`, and until `cancel` is cancelled at the latest. Returns `None` if it was
    /// held all that time, or cancelled.
    ///
    /// # Errors
    ///
    /// As [`try_lock_for`](Self::try_lock_for), without those of reentry.
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// # use redis_dlock::CancelToken;
    /// # use std::time::Duration;
    /// assert!(lock.try_hold_cancellable_for(Duration::from_secs(2), &CancelToken::new())?.is_some());
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn try_hold_cancellable_for(&self, limit: Duration, cancel: &CancelToken) -> Result<Option<Hold>, Error> {
        Hold::acquire(self, &self.handle.wait_limit(limit).or_cancelled(cancel))
    }
}
