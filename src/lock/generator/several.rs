//! Taking several locks at once.

use crate::client::wait_limit::{CancelToken, WaitLimit};
use crate::config::DLockConfig;
use crate::error::Error;
use crate::lock::generator::DLockGenerator;
use crate::lock::reentrant::DistributedReentrantLock;
use crate::lock::several::{DLockGuards, Holds};
use std::collections::HashSet;
use std::time::Duration;

impl DLockGenerator {
    /// Takes several locks, all or none, blocking for at most `limit` for all of them together. Returns `None` if one of them was held all
    /// that time. A `limit` of zero means [`try_lock_all`](Self::try_lock_all); `Duration::MAX` waits for ever.
    ///
    /// An item of the list is a pair of type and target, or a [`DLockConfig`], for a lock with settings of its own. The locks are taken in
    /// the order of their keys, whatever their order in the list. So callers that take their locks by this method, in any process, never
    /// wait for one another in a circle. A thread that already holds a lock may wait in one, as with single locks, if it takes others beside it: take
    /// all in one call, or give a limit. A lock that the thread itself holds is entered again.
    ///
    /// Blocks as [`try_lock_for`](DistributedReentrantLock::try_lock_for), for one round trip to the store for each lock, if all are free. While it
    /// waits for one lock it keeps those before it, and their leases are renewed. If the limit ends, they are given back together. If a lease is
    /// lost meanwhile, the wait ends, and all are given back and taken anew within the limit.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidConfig`] for an empty list, and for a lock that is in the list twice: it names the key.
    /// * Those of [`generate_with`](Self::generate_with) and of [`try_lock_for`](DistributedReentrantLock::try_lock_for), for each lock. What was taken
    ///   before is given back.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_dlock::{DLockGenerator, MemoryLockProcessor};
    /// # use std::time::Duration;
    /// let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
    /// let (from, to) = ("4711", "0815");
    /// let accounts = [("ACCOUNT", from), ("ACCOUNT", to)];
    /// let Some(guards) = generator.lock_all(accounts, Duration::from_secs(2))? else { return Ok(()) };
    /// for (lock, token) in guards.locks().zip(guards.fencing_tokens()) {
    ///     println!("{} with token {token}", lock.key());
    /// }
    /// guards.ensure_valid()?; // before a step that must not run beside another holder of one of the accounts
    /// guards.unlock()?;
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn lock_all<C: Into<DLockConfig>>(
        &self,
        locks: impl IntoIterator<Item = C>,
        limit: Duration,
    ) -> Result<Option<DLockGuards>, Error> {
        let locks = self.differing(locks)?;
        let limit = self.wait_limit(limit);
        DLockGuards::acquire(locks, &limit)
    }

    /// Tries once to take several locks, all or none. Returns `None` if one of them is held. Blocks as
    /// [`try_lock`](DistributedReentrantLock::try_lock) for each lock.
    ///
    /// # Errors
    ///
    /// As [`lock_all`](Self::lock_all).
    ///
    /// ```
    /// # use redis_dlock::{DLockConfig, DLockGenerator, MemoryLockProcessor};
    /// # use std::time::Duration;
    /// let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
    /// let stock = DLockConfig::new("STOCK", "nails").with_lease(Duration::from_secs(5));
    /// let both = generator.try_lock_all([stock, ("ORDER", "4711").into()])?;
    /// assert!(both.is_some());
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn try_lock_all<C: Into<DLockConfig>>(
        &self,
        locks: impl IntoIterator<Item = C>,
    ) -> Result<Option<DLockGuards>, Error> {
        DLockGuards::acquire(self.differing(locks)?, &WaitLimit::ONE_ATTEMPT)
    }

    /// Does the same as [`lock_all`](Self::lock_all), until `cancel` is cancelled at the latest. Returns `None` then, too.
    ///
    /// # Errors
    ///
    /// As [`lock_all`](Self::lock_all).
    pub fn lock_all_cancellable<C: Into<DLockConfig>>(
        &self,
        locks: impl IntoIterator<Item = C>,
        limit: Duration,
        cancel: &CancelToken,
    ) -> Result<Option<DLockGuards>, Error> {
        let locks = self.differing(locks)?;
        let limit = self.wait_limit(limit).or_cancelled(cancel);
        DLockGuards::acquire(locks, &limit)
    }

    /// Takes several locks as [`lock_all`](Self::lock_all) does, for [`Holds`], which belong to no thread. If the calling thread itself keeps one of
    /// them, it waits until the limit ends.
    ///
    /// # Errors
    ///
    /// As [`lock_all`](Self::lock_all), without those of reentry.
    ///
    /// ```
    /// # use redis_dlock::{DLockGenerator, MemoryLockProcessor};
    /// # use std::time::Duration;
    /// let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
    /// let holds = generator.hold_all([("CART", "ada"), ("STOCK", "nails")], Duration::from_secs(2))?.expect("both are free");
    /// std::thread::spawn(move || holds.release()).join().expect("no panic")?;
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn hold_all<C: Into<DLockConfig>>(
        &self,
        locks: impl IntoIterator<Item = C>,
        limit: Duration,
    ) -> Result<Option<Holds>, Error> {
        let locks = self.differing(locks)?;
        let limit = self.wait_limit(limit);
        Holds::acquire(locks, &limit)
    }

    /// Tries once to take several locks, as [`try_lock_all`](Self::try_lock_all) does, for [`Holds`].
    ///
    /// # Errors
    ///
    /// As [`hold_all`](Self::hold_all).
    pub fn try_hold_all<C: Into<DLockConfig>>(
        &self,
        locks: impl IntoIterator<Item = C>,
    ) -> Result<Option<Holds>, Error> {
        Holds::acquire(self.differing(locks)?, &WaitLimit::ONE_ATTEMPT)
    }

    /// Does the same as [`hold_all`](Self::hold_all), until `cancel` is cancelled at the latest. Returns `None` then, too.
    ///
    /// # Errors
    ///
    /// As [`hold_all`](Self::hold_all).
    pub fn hold_all_cancellable<C: Into<DLockConfig>>(
        &self,
        locks: impl IntoIterator<Item = C>,
        limit: Duration,
        cancel: &CancelToken,
    ) -> Result<Option<Holds>, Error> {
        let locks = self.differing(locks)?;
        let limit = self.wait_limit(limit).or_cancelled(cancel);
        Holds::acquire(locks, &limit)
    }

    /// Takes several locks as [`hold_all`](Self::hold_all) does, for a task that awaits them. The limit counts from the first poll. Never blocks the
    /// thread that polls it. Dropping the future gives back what it has taken.
    ///
    /// # Errors
    ///
    /// As [`hold_all`](Self::hold_all).
    ///
    /// ```
    /// # use redis_dlock::{DLockGenerator, MemoryLockProcessor};
    /// # use std::time::Duration;
    /// # futures_lite::future::block_on(async {
    /// let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
    /// let both = [("CART", "ada"), ("STOCK", "nails")];
    /// let holds = generator.hold_all_async(both, Duration::from_secs(2)).await?.expect("both are free");
    /// assert!(generator.hold_all_async(both, Duration::ZERO).await?.is_none());
    /// holds.release_async().await
    /// # })?;
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    #[cfg(feature = "async")]
    pub async fn hold_all_async<C: Into<DLockConfig>>(
        &self,
        locks: impl IntoIterator<Item = C>,
        limit: Duration,
    ) -> Result<Option<Holds>, Error> {
        let locks = self.differing(locks)?;
        Holds::acquire_async(locks, self.wait_limit(limit)).await
    }

    /// Returns the locks of a list that names each of them once.
    fn differing<C: Into<DLockConfig>>(
        &self,
        locks: impl IntoIterator<Item = C>,
    ) -> Result<Vec<DistributedReentrantLock>, Error> {
        let locks = locks.into_iter().map(|config| self.generate_with(config.into())).collect::<Result<Vec<_>, _>>()?;
        if locks.is_empty() {
            return Err(Error::invalid_config("list of locks", "[]", "name at least one lock"));
        }
        let mut keys = HashSet::new();
        if let Some(twice) = locks.iter().find(|lock| !keys.insert(lock.key())) {
            return Err(Error::invalid_config(
                "list of locks",
                twice.key(),
                "it is in the list twice: name each lock once",
            ));
        }
        Ok(locks)
    }

    /// Returns the limit of a wait that begins now.
    fn wait_limit(&self, limit: Duration) -> WaitLimit<'static> {
        WaitLimit::within(limit, self.client.core().clock.now())
    }
}
