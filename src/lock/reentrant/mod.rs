//! The lock that a program uses, and its blocking and non-blocking methods.

use crate::client::Client;
use crate::client::wait_limit::{CancelToken, WaitLimit};
use crate::config::DLockConfig;
use crate::error::Error;
use crate::lock::guard::DLockGuard;
use crate::lock::handle::{Handle, without_limit};
use crate::lock::inspected::{Holder, LockState};
use crate::port::{Inspection, Operations};
use crate::state::key::Key;
use crate::state::owner::current_thread;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A reentrant lock, exclusive among the threads of all processes that use the same store and key.
///
/// All handles of a key that one [`DLockGenerator`](crate::DLockGenerator) made are one lock: they share the queue of waiting
/// threads and the hold count. A clone is another handle. The lock behaves as `java.util.concurrent.locks.ReentrantLock` in its
/// fair mode (without conditions), which JVM DLock follows too.
///
/// A thread that holds the lock gets it again without asking the store. Threads of one process get it in order of arrival.
/// Tasks that an executor runs on one thread are one owner: see [Tasks and thread pools](crate::manual::tasks_and_pools).
///
/// # Blocking
///
/// Each method says whether it blocks, and for how long. The *limit of one command* is one second, unless
/// [`RedisBuilder::io_timeout`](crate::RedisBuilder::io_timeout) or another store
/// ([`StoreLimits::command`](crate::port::StoreLimits::command)) sets another. Dropping the last handle of a client blocks as
/// [`DLockGenerator::close`](crate::DLockGenerator::close) does.
///
/// # Panics
///
/// No method panics. A panic of the closure that [`with`](Self::with) runs goes on to the caller.
///
/// # Examples
///
/// ```
/// use redis_dlock::{DLockConfig, DLockGenerator, MemoryLockProcessor};
/// use std::time::Duration;
///
/// let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
/// let lock = generator.generate_with(DLockConfig::new("ORDER", "4711").with_lease(Duration::from_secs(10)))?;
/// let guard = lock.lock()?;
/// let other = lock.clone();
/// let again = other.lock()?; // the same thread gets it again
/// assert_eq!(guard.fencing_token(), again.fencing_token());
/// # Ok::<_, redis_dlock::Error>(())
/// ```
#[derive(Clone)]
pub struct DistributedReentrantLock {
    pub(crate) handle: Handle,
}

impl DistributedReentrantLock {
    pub(crate) fn new(client: Arc<Client>, key: Arc<Key>, settings: Arc<DLockConfig>) -> Self {
        Self { handle: Handle { client, key, settings } }
    }

    /// Acquires the lock. Blocks the thread until the lock is acquired, without a limit, through outages of the store, too.
    ///
    /// In async code, call it on a thread of its own for the whole hold (`spawn_blocking`): see [Tasks and thread pools](crate::manual::tasks_and_pools).
    ///
    /// # Errors
    ///
    /// * [`Error::Denied`], [`Error::Conflict`], [`Error::Unsupported`]: immediately.
    /// * [`Error::Backend`]: only if the store has never answered this generator yet (the error names the cause), or if the
    ///   operating system refuses a thread.
    /// * [`Error::LeaseLost`]: the calling thread already holds the lock, but has lost its lease.
    /// * [`Error::TooManyHolds`], [`Error::ShutDown`]; [`Error::Forked`] in a child process that inherited the lock.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_dlock::{DLockGenerator, MemoryLockProcessor};
    /// # let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
    /// let lock = generator.generate("ORDER", "4711")?;
    /// {
    ///     let guard = lock.lock()?;
    ///     println!("inside, with token {}", guard.fencing_token());
    /// } // unlocked
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    #[inline]
    #[doc(alias("acquire", "obtain"))]
    pub fn lock(&self) -> Result<DLockGuard<'_>, Error> {
        if let Some(token) = self.handle.lock_again() {
            return Ok(DLockGuard::new(&self.handle, token));
        }
        without_limit(DLockGuard::acquire(&self.handle, &WaitLimit::FOREVER))
    }

    /// Tries once to acquire the lock. Does not wait for a holder, and does not overtake threads of this process that already wait.
    /// Returns `None` if the lock is held, or [kept after a hold](crate::Holder::delayed_release), or if another thread of this process is about to
    /// get it. It also returns `None` while this client is giving the lock back, such as at the end of a linger or after a task has ended its hold.
    ///
    /// Blocks for one round trip to the store, sometimes two, or for some more after a lost reply. If the lock may
    /// [linger](crate::DLockConfig::with_linger) elsewhere, the call asks again for up to 5 ms, or five round trips if they take longer. A
    /// round trip takes at most the limit of one command.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and [`Error::Backend`] whenever the store did not answer, or refused.
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// match lock.try_lock()? {
    ///     Some(_guard) => println!("inside"),
    ///     None => println!("somebody else is inside"),
    /// }
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn try_lock(&self) -> Result<Option<DLockGuard<'_>>, Error> {
        DLockGuard::acquire(&self.handle, &WaitLimit::ONE_ATTEMPT)
    }

    /// Acquires the lock, blocking for at most `limit`. Returns `None` if it was held all that time. A `limit` of zero means
    /// [`try_lock`](Self::try_lock); `Duration::MAX` waits for ever. The call may take 1 ms longer, because no request to the
    /// store is given less time.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and [`Error::Backend`] if the time ended while the store did not answer, or refused.
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// # use std::time::Duration;
    /// let Some(guard) = lock.try_lock_for(Duration::from_secs(2))? else { return Ok(()) };
    /// guard.ensure_valid()?;
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn try_lock_for(&self, limit: Duration) -> Result<Option<DLockGuard<'_>>, Error> {
        DLockGuard::acquire(&self.handle, &self.handle.wait_limit(limit))
    }

    /// Acquires the lock, blocking until `deadline` at the latest. Returns `None` if it was held all that time. A deadline in
    /// the past means [`try_lock`](Self::try_lock). The call may take 1 ms longer, as [`try_lock_for`](Self::try_lock_for).
    ///
    /// # Errors
    ///
    /// As [`try_lock_for`](Self::try_lock_for).
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// # use std::time::{Duration, Instant};
    /// let deadline = Instant::now() + Duration::from_secs(2); // of a request, for all of its steps
    /// assert!(lock.try_lock_until(deadline)?.is_some());
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn try_lock_until(&self, deadline: Instant) -> Result<Option<DLockGuard<'_>>, Error> {
        DLockGuard::acquire(&self.handle, &self.handle.limit_until(deadline))
    }

    /// Acquires the lock, blocking until `cancel` is cancelled at the latest. Returns `None` if it was cancelled, even before the call. If a
    /// command is in flight, the call first waits for the reply, at most for the limit of one command.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock).
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// # use redis_dlock::CancelToken;
    /// let cancel = CancelToken::new(); // its clones cancel from other threads
    /// assert!(lock.lock_cancellable(&cancel)?.is_some());
    /// cancel.cancel();
    /// assert!(lock.lock_cancellable(&cancel)?.is_none());
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    #[doc(alias = "lockInterruptibly")]
    pub fn lock_cancellable(&self, cancel: &CancelToken) -> Result<Option<DLockGuard<'_>>, Error> {
        DLockGuard::acquire(&self.handle, &WaitLimit::FOREVER.or_cancelled(cancel))
    }

    /// Acquires the lock, blocking for at most `limit`, and until `cancel` is cancelled at the latest. Returns `None` if either ended the wait.
    /// A `limit` of zero means [`try_lock`](Self::try_lock), which is not cancelled. Otherwise blocks as [`try_lock_for`](Self::try_lock_for)
    /// and [`lock_cancellable`](Self::lock_cancellable) do.
    ///
    /// # Errors
    ///
    /// As [`try_lock_for`](Self::try_lock_for).
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// # use redis_dlock::CancelToken;
    /// # use std::time::Duration;
    /// let cancel = CancelToken::new();
    /// assert!(lock.try_lock_cancellable_for(Duration::from_secs(2), &cancel)?.is_some());
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn try_lock_cancellable_for(
        &self,
        limit: Duration,
        cancel: &CancelToken,
    ) -> Result<Option<DLockGuard<'_>>, Error> {
        DLockGuard::acquire(&self.handle, &self.handle.wait_limit(limit).or_cancelled(cancel))
    }

    /// As [`try_lock_cancellable_for`](Self::try_lock_cancellable_for), with a deadline.
    ///
    /// # Errors
    ///
    /// As [`try_lock_for`](Self::try_lock_for).
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// # use redis_dlock::CancelToken;
    /// # use std::time::{Duration, Instant};
    /// let (cancel, deadline) = (CancelToken::new(), Instant::now() + Duration::from_secs(2));
    /// assert!(lock.try_lock_cancellable_until(deadline, &cancel)?.is_some());
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn try_lock_cancellable_until(
        &self,
        deadline: Instant,
        cancel: &CancelToken,
    ) -> Result<Option<DLockGuard<'_>>, Error> {
        DLockGuard::acquire(&self.handle, &self.handle.limit_until(deadline).or_cancelled(cancel))
    }

    /// Returns how many times the calling thread holds the lock. Does not block.
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// let outer = lock.lock()?;
    /// let inner = lock.lock()?;
    /// assert_eq!(lock.hold_count(), 2);
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    #[must_use]
    pub fn hold_count(&self) -> usize {
        if self.is_held_by_current_thread() { self.handle.key.hold.count() as usize } else { 0 }
    }

    /// Returns `true` if the calling thread holds the lock, with a valid lease or a lost one. Does not block.
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// let guard = lock.lock()?;
    /// assert!(lock.is_held_by_current_thread());
    /// std::thread::scope(|scope| scope.spawn(|| assert!(!lock.is_held_by_current_thread())).join()).expect("no panic");
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    #[must_use]
    pub fn is_held_by_current_thread(&self) -> bool {
        self.handle.key.hold.is_owned_by(current_thread())
    }

    /// Returns about how many threads wait for this key through this generator. Does not ask the store, and does not block.
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// assert_eq!(lock.queue_length(), 0);
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    #[must_use]
    pub fn queue_length(&self) -> usize {
        self.handle.key.queue_length()
    }

    /// Returns `true` if anybody holds the lock, or if it is [kept](Holder::delayed_release) after a hold. Blocks for one round trip to the store, at
    /// most for the limit of one command. The answer may be out of date when this returns.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`], [`Error::Denied`], [`Error::Conflict`], [`Error::Unsupported`]; [`Error::Forked`] in a child process that inherited the
    /// lock; [`Error::ShutDown`] if the generator is closed and its last hold has ended. The embedded store goes on to answer even then.
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// assert!(!lock.is_locked()?);
    /// let guard = lock.lock()?;
    /// assert!(lock.is_locked()?);
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn is_locked(&self) -> Result<bool, Error> {
        Ok(self.holder()?.is_some())
    }

    /// Returns the holder of the lock; `None` if nobody holds it, and the lock is not [kept](Holder::delayed_release) after a hold. Blocks as
    /// [`is_locked`](Self::is_locked) does. The answer may be out of date when this returns.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// let guard = lock.lock()?;
    /// let holder = lock.holder()?.expect("this thread holds it");
    /// assert!(holder.is_local);
    /// println!("held by {holder}, for {:?} more unless it extends the lease", holder.remaining);
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    #[doc(alias = "owner")]
    pub fn holder(&self) -> Result<Option<Holder>, Error> {
        Ok(self.inspect()?.holder)
    }

    /// Returns the holder of the lock, and how many processes wait for it. Blocks as [`is_locked`](Self::is_locked) does. The
    /// answer may be out of date when this returns.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// let state = lock.inspect()?;
    /// assert_eq!((state.holder, state.waiting), (None, 0));
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn inspect(&self) -> Result<LockState, Error> {
        self.handle.client.core().process.check()?;
        let Inspection { holder, remaining, waiting } =
            self.handle.client.core().processor.inspect(self.key(), self.handle.client.core().limits.command)?;
        let holder = holder.map(|locker| {
            let is_local = self.handle.client.core().is_ours(&locker);
            Holder { locker, remaining, is_local }
        });
        Ok(LockState { holder, waiting })
    }

    /// Returns the lock's key in the store: `DLOCK_{type}_{target}`.
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// assert_eq!(lock.key(), "DLOCK_ORDER_4711");
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    #[must_use]
    pub fn key(&self) -> &str {
        &self.handle.key.name
    }

    /// Returns the lock's type: `ORDER` in the key `DLOCK_ORDER_4711`.
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// assert_eq!(lock.lock_type(), "ORDER");
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    #[must_use]
    pub fn lock_type(&self) -> &str {
        self.handle.settings.lock_type()
    }

    /// Returns the lock's target: `4711` in the key `DLOCK_ORDER_4711`.
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// assert_eq!(lock.target(), "4711");
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    #[must_use]
    pub fn target(&self) -> &str {
        self.handle.settings.target()
    }

    /// Returns the settings of this handle.
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
    /// assert_eq!(lock.config().lease(), redis_dlock::DEFAULT_LEASE);
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn config(&self) -> &DLockConfig {
        &self.handle.settings
    }
}

impl fmt::Debug for DistributedReentrantLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedReentrantLock")
            .field("key", &self.key())
            .field("lease", &self.handle.settings.lease())
            .field("hold_count", &self.hold_count())
            .field("queue_length", &self.queue_length())
            .finish_non_exhaustive()
    }
}

// Its other methods. They stand below, because the page of the lock shows the methods in this order.
mod scoped;

mod owned;

mod holds;

#[cfg(feature = "async")]
mod tasks;
