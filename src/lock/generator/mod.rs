//! The generator, which makes locks, and its builder.

mod builder;
mod describe;
mod glob;

pub use builder::GeneratorBuilder;
pub use describe::ListedLocks;

use crate::client::Client;
use crate::client::wait_limit::{CancelToken, WaitLimit};
use crate::config::{DEFAULT_LEASE, DLockConfig, check_name, check_type};
use crate::description::Description;
use crate::error::Error;
use crate::lock::leader::Leader;
use crate::lock::limits::{self, ShortLeases};
use crate::lock::properties::Leases;
use crate::lock::reentrant::DistributedReentrantLock;
#[cfg(feature = "async")]
use crate::lock::several::HoldAllFuture;
use crate::lock::several::{DLockGuards, Holds};
use crate::log;
use crate::one_line::OneLine;
use crate::port::{Break, BreakOutcome, Broken, LockProcessor, Operations};
#[cfg(feature = "redis")]
use crate::store::redis::RedisLockProcessor;
use std::collections::HashSet;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How many characters of the reason for a break a holder is told.
const LONGEST_REASON: usize = 256;

/// Makes the locks of one store. It is one client with one identity and the same few threads, however many locks it makes. JVM:
/// `DLockGenerator`.
///
/// Make one generator for a program and keep it. A clone is another handle of the same client. Handles of the same key made by the same
/// generator are one lock. Handles made by two generators, even in one process, exclude each other through the store as two processes do. The
/// [threads](crate::manual::operations#threads) start when they are first needed. They end with [`close`](Self::close) and the last
/// hold, or when the generator, its clones and all its locks are gone. Dropping the last of these handles blocks as `close` does. Each method
/// that blocks says so.
///
/// # Examples
///
/// ```
/// use redis_dlock::{DLockGenerator, MemoryLockProcessor};
///
/// let generator = DLockGenerator::new(MemoryLockProcessor::new())?; // on Redis: DLockGenerator::connect("redis://127.0.0.1")?
/// let (order, bill) = (generator.generate("ORDER", "4711")?, generator.generate("BILL", "4711")?);
/// let _both = (order.lock()?, bill.lock()?); // two keys are two locks
/// # Ok::<_, redis_dlock::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DLockGenerator {
    pub(crate) client: Arc<Client>,
    leases: Arc<DefaultLeases>,
    short_leases: Arc<ShortLeases>,
}

// As a lock: see `Handle`.
impl UnwindSafe for DLockGenerator {}
impl RefUnwindSafe for DLockGenerator {}

/// The leases of locks whose configs set none.
#[derive(Debug, Default)]
struct DefaultLeases {
    /// By lock type, with the path of the file that they come from.
    by_type: Option<(Leases, PathBuf)>,
    /// For all other types: the default that the program set.
    other: Option<Duration>,
}

impl DefaultLeases {
    /// See [`DLockGenerator::lease_of`].
    fn of(&self, lock_type: &str) -> Result<Duration, Error> {
        check_type(lock_type)?;
        let by_type = self.by_type.as_ref();
        match (by_type.and_then(|(leases, _)| leases.get(lock_type)).copied().or(self.other), by_type) {
            (Some(lease), _) => Ok(lease),
            (None, None) => Ok(DEFAULT_LEASE),
            (None, Some((_, path))) => {
                let hint = format!(
                    "add a line {lock_type}=milliseconds to {}, set a default_lease for all types that the file lacks, or give the lock a \
                     lease with with_lease",
                    path.display()
                );
                Err(Error::invalid_config("lock type", lock_type, hint))
            }
        }
    }
}

impl DLockGenerator {
    /// Connects to the Redis at `url`: `redis://[user][:password@]host[:port][/db]`, `rediss://…` (feature `tls`), `unix:///path`,
    /// `redis+sentinel://host[:port][,host…]/service` (see [Failover](crate::manual::failover)), or `redis+cluster://host[:port][,host…]`
    /// (see [Cluster](crate::manual::cluster); a node behind `redis://` is enough).
    ///
    /// Needs the feature `redis`, which is on by default.
    ///
    /// Blocks until the server has answered, for at most the connect time-out (2 s) and the time-out of one command (1 s).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for a bad URL, [`Error::Backend`] when the server cannot be reached, [`Error::Denied`] when it refuses the
    /// login, [`Error::Unsupported`] when it is older than 7.0 or a Sentinel.
    #[cfg(feature = "redis")]
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::new(RedisLockProcessor::connect(url)?)
    }

    /// Makes a generator of locks in the given store. Does not ask the store.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] when the operating system has no random numbers for the client id.
    pub fn new(processor: impl LockProcessor) -> Result<Self, Error> {
        Self::builder().build(processor)
    }

    /// Returns a builder with the default settings of a generator.
    pub fn builder() -> GeneratorBuilder {
        GeneratorBuilder::new()
    }

    /// Makes a generator of locks in the given store, with leases by lock type from a `config-dlock.properties` of JVM DLock
    /// (`ORDER=30000`, milliseconds). Blocks while it reads the file; does not ask the store.
    ///
    /// A lock whose type is not in the file needs a lease of its own ([`DLockConfig::with_lease`]). To set a default beside the
    /// file, use [`GeneratorBuilder::properties`] and [`GeneratorBuilder::default_lease`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`], which names the file, or the line that is wrong and why; otherwise as [`new`](Self::new).
    pub fn from_properties(path: impl AsRef<Path>, processor: impl LockProcessor) -> Result<Self, Error> {
        Self::builder().properties(path)?.build(processor)
    }

    /// Returns the lock named by this type and target, with the [lease of its type](Self::lease_of). Does not ask the store.
    /// JVM: `gen(lockType, lockTarget)`.
    ///
    /// # Errors
    ///
    /// Those of [`lease_of`](Self::lease_of); [`Error::InvalidConfig`] for a key longer than 16 KiB; [`Error::ShutDown`] after
    /// [`close`](Self::close).
    pub fn generate(
        &self,
        lock_type: impl Into<String>,
        lock_target: impl AsRef<str>,
    ) -> Result<DistributedReentrantLock, Error> {
        self.generate_with(DLockConfig::new(lock_type, lock_target))
    }

    /// Returns the lock with these settings. Does not ask the store. JVM: `gen(lockType, lockTarget, lease, unit)`.
    ///
    /// A config without [`with_lease`](DLockConfig::with_lease) takes the [lease of its type](Self::lease_of), as
    /// [`generate`](Self::generate) does. Handles of one key may have different settings: a tenure has the settings of the
    /// handle that asked for it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`], which names the setting that cannot be used, for example because it exceeds a [limit of the
    /// store](crate::port::StoreLimits); for a config without a lease, those of [`lease_of`](Self::lease_of); [`Error::ShutDown`] after
    /// [`close`](Self::close).
    pub fn generate_with(&self, config: DLockConfig) -> Result<DistributedReentrantLock, Error> {
        // The store is asked each time, because it knows how long an outage may last only once Sentinels have answered.
        let limits = self.client.core().processor.limits().in_range();
        let config = limits::within(self.with_its_lease(config)?.checked()?, &limits)?;
        if self.client.is_closed() {
            return Err(Error::ShutDown);
        }
        let key = self.client.core().keys.key(&config.unique_key);
        if !self.client.core().process.is_forked() {
            self.short_leases.warn_of(&config, &limits);
            self.client.core().events.see(&key, &config);
        }
        Ok(DistributedReentrantLock::new(Arc::clone(&self.client), key, Arc::new(config)))
    }

    /// Returns a leadership of this name, to campaign for. Does not ask the store.
    ///
    /// # Errors
    ///
    /// Those of [`generate`](Self::generate).
    #[doc(alias = "election")]
    pub fn leader(&self, lock_type: impl Into<String>, target: impl AsRef<str>) -> Result<Leader, Error> {
        self.leader_with(DLockConfig::new(lock_type, target))
    }

    /// Returns a leadership with these settings of its lock, to campaign for. Does not ask the store.
    ///
    /// # Errors
    ///
    /// Those of [`generate_with`](Self::generate_with).
    pub fn leader_with(&self, config: DLockConfig) -> Result<Leader, Error> {
        self.generate_with(config).map(Leader::of)
    }

    /// Returns settings for a lock, with the [lease of its type](Self::lease_of), to change and pass to
    /// [`generate_with`](Self::generate_with).
    ///
    /// ```
    /// # use redis_dlock::{DLockGenerator, MemoryLockProcessor};
    /// # use std::time::Duration;
    /// let generator =
    ///     DLockGenerator::builder().default_lease(Duration::from_secs(5))?.build(MemoryLockProcessor::new())?;
    /// let config = generator.config("ORDER", "4711")?;
    /// assert_eq!(config.lease(), Duration::from_secs(5));
    /// let lock = generator.generate_with(config.with_reason("nightly export"))?;
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`lease_of`](Self::lease_of).
    pub fn config(&self, lock_type: impl Into<String>, lock_target: impl AsRef<str>) -> Result<DLockConfig, Error> {
        self.with_its_lease(DLockConfig::new(lock_type, lock_target))
    }

    /// Returns the lease of a lock of this type whose config sets none: the lease in the properties file; if the type is not
    /// there, the [default lease](GeneratorBuilder::default_lease); if neither a file nor a default was set, [`DEFAULT_LEASE`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for an empty type, and for a type that is not in the properties file when no default lease was
    /// set.
    pub fn lease_of(&self, lock_type: &str) -> Result<Duration, Error> {
        self.leases.of(lock_type)
    }

    fn with_its_lease(&self, config: DLockConfig) -> Result<DLockConfig, Error> {
        if config.lease.is_some() {
            return Ok(config);
        }
        let lease = self.lease_of(config.lock_type())?;
        Ok(config.with_lease(lease))
    }

    /// Returns how many events were dropped, because a function of the program was too slow for them, or the operating system refused its
    /// thread: see [`GeneratorBuilder::on_event`]. Each function that is not told of an event counts. Does not block.
    #[must_use]
    pub fn dropped_events(&self) -> u64 {
        self.client.core().events.dropped()
    }

    /// Closes the generator. New calls, and calls that wait, fail with [`Error::ShutDown`]. A lock that is held stays held and
    /// is renewed until it is unlocked; the threads and sockets end with the last hold.
    ///
    /// Blocks until waiting threads have left. If nothing is held, it also blocks until the threads have ended: a few round trips, or a few commands'
    /// time-outs (1 s each; on etcd and Consul 3 s) if no server answers. Further calls do nothing more.
    ///
    /// An executor may poll a task inside `wake()`, and the task may call this there. Then it does not block, and the client ends when the last
    /// thread has left and nothing is held.
    #[doc(alias = "shutdown")]
    pub fn close(&self) {
        self.client.close();
    }

    /// Returns who holds a lock and why, and who waits for it in which order.
    ///
    /// The store names the lockers. What is known of each process comes from its [client record](crate::ClientRecord), and from its own answer
    /// to a message. [Who holds it](crate::manual::who_holds_it#describe-a-lock) says from when on a process can be asked. A process that
    /// cannot be asked is described by its locker and its record. The lock itself is not affected.
    ///
    /// Blocks for two commands, and then until all who were asked have answered, for at most a second.
    ///
    /// ```
    /// # use redis_dlock::{DLockConfig, DLockGenerator, MemoryLockProcessor};
    /// let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
    /// let lock = generator.generate_with(DLockConfig::new("ORDER", "4711").with_reason("nightly export"))?;
    /// let guard = lock.lock()?;
    /// let holder = generator.describe("ORDER", "4711")?.holder.expect("somebody holds it");
    /// assert!(holder.is_local);
    /// assert_eq!(holder.told.and_then(|told| told.reason).as_deref(), Some("nightly export"));
    /// # drop(guard);
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for an empty type or a key longer than 16 KiB; [`Error::Unsupported`] if the store cannot tell;
    /// [`Error::Backend`], [`Error::Denied`], [`Error::Conflict`], [`Error::ShutDown`]; [`Error::Forked`] in a child process that inherited the
    /// generator.
    pub fn describe(&self, lock_type: impl Into<String>, lock_target: impl AsRef<str>) -> Result<Description, Error> {
        let config = DLockConfig::new(lock_type, lock_target);
        check_name(&config)?;
        self.client.describe(&config.unique_key)
    }

    /// Returns the locks that somebody holds or waits for and whose `{type}_{target}` is like the pattern. In the pattern `*` stands for any
    /// text and `?` for any character. A `\` makes the next character stand for itself.
    ///
    /// The iterator asks for the locks page by page, when they are needed. It asks a server with `SCAN`, about a thousand keys at a time, which
    /// holds up no other client. In a Cluster it asks node after node. Locks that come and go meanwhile may or may not be listed, and a lock
    /// may be listed twice. The order is that of the server. Making the iterator does not ask the store.
    ///
    /// ```
    /// # use redis_dlock::{DLockGenerator, MemoryLockProcessor};
    /// let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
    /// let lock = generator.generate("ORDER", "4711")?;
    /// let guard = lock.lock()?;
    /// for found in generator.list("ORDER_*") {
    ///     let found = found?;
    ///     println!("{} is held by {:?}, {} wait", found.key, found.locker, found.waiting);
    /// }
    /// # drop(guard);
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn list(&self, pattern: &str) -> ListedLocks {
        ListedLocks::new(&self.client, pattern)
    }

    /// Takes several locks, all or none, blocking for at most `limit` for all of them together. Returns `None` if one of them was held all
    /// that time. A `limit` of zero means [`try_lock_all`](Self::try_lock_all); `Duration::MAX` waits for ever.
    ///
    /// An item of the list is a pair of type and target, or a [`DLockConfig`], for a lock with settings of its own. The locks are taken in the
    /// order of their keys, whatever their order in the list. So callers that take their locks by this method, in any process, never wait for
    /// one another in a circle. A thread that already holds a lock and takes others beside it may wait in a circle, as with single locks: take
    /// all in one call, or give a limit. A lock that the thread itself holds by a guard is entered again.
    ///
    /// Blocks as [`try_lock_for`](DistributedReentrantLock::try_lock_for), for one round trip to the store for each lock, if all are free.
    /// While the call waits for one lock, it keeps those before it, and their leases are renewed. If the limit ends, these are given back
    /// together. If a lease is lost meanwhile, the wait ends, and all locks are given back and taken again within the limit.
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
    #[doc(alias = "MultiLock")]
    pub fn lock_all<C: Into<DLockConfig>>(
        &self,
        locks: impl IntoIterator<Item = C>,
        limit: Duration,
    ) -> Result<Option<DLockGuards>, Error> {
        DLockGuards::acquire(self.differing(locks)?, &self.wait_limit(limit))
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
        DLockGuards::acquire(self.differing(locks)?, &self.wait_limit(limit).or_cancelled(cancel))
    }

    /// Takes several locks as [`lock_all`](Self::lock_all) does, for [`Holds`], which belong to no thread. If the calling thread itself holds
    /// one of the locks, the call waits until the limit ends.
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
        Holds::acquire(self.differing(locks)?, &self.wait_limit(limit))
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
        Holds::acquire(self.differing(locks)?, &self.wait_limit(limit).or_cancelled(cancel))
    }

    /// Takes several locks as [`hold_all`](Self::hold_all) does, for a task that awaits them. The limit counts from now. Never blocks the thread that
    /// polls the future. Dropping that gives back what it has taken.
    ///
    /// # Errors
    ///
    /// The output of the future is an error as that of [`hold_all`](Self::hold_all).
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
    pub fn hold_all_async<C: Into<DLockConfig>>(
        &self,
        locks: impl IntoIterator<Item = C>,
        limit: Duration,
    ) -> HoldAllFuture {
        HoldAllFuture::new(self.differing(locks), self.wait_limit(limit))
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

    /// Takes a lock away from a holder that does not give it back, such as a process that hangs, or a JVM. `expected_locker` is the locker that
    /// was seen ([`Holder::locker`](crate::Holder::locker) of [`inspect`](crate::DistributedReentrantLock::inspect)). If another one holds the
    /// lock, or none does, nothing is changed, and the outcome says who holds it. Otherwise the lock goes, in one step, to the first process
    /// that waits, with a greater fencing token, or is freed.
    ///
    /// A holder of this crate learns of the break by a message if its process listens, and otherwise by its next probe, at most lease/6 later.
    /// It has then lost its lease, with the cause [`LossCause::Broken`](crate::LossCause::Broken). Until then it may go on, as a holder that
    /// was stopped past its lease may: pass the [token](crate::manual::fencing_tokens) to what the lock protects. A
    /// [lock-delay](DLockConfig::with_lock_delay) does not apply.
    ///
    /// The holder is told this generator's client id and the first 256 characters of the reason, with unprintable ones escaped.
    ///
    /// Blocks for one round trip to the store (for up to three after a lost reply), each at most for the limit of one command. Safe to repeat,
    /// because a locker holds a lock only once.
    ///
    /// ```
    /// # use redis_dlock::{BreakOutcome, DLockGenerator, MemoryLockProcessor};
    /// # let store = MemoryLockProcessor::new();
    /// # let generator = DLockGenerator::new(store.clone())?;
    /// let lock = generator.generate("ORDER", "4711")?;
    /// # let other = DLockGenerator::new(store)?.generate("ORDER", "4711")?;
    /// # std::mem::forget(other.lock()?);
    /// if let Some(holder) = lock.holder()? {
    ///     let outcome = generator.break_lock("ORDER", "4711", &holder.locker, "hangs since noon")?;
    ///     assert!(matches!(outcome, BreakOutcome::Broken { next: None, .. }));
    /// }
    /// assert!(lock.try_lock()?.is_some());
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for an empty type or a key longer than 16 KiB; [`Error::Unsupported`] if the store cannot break locks; [`Error::Backend`],
    /// [`Error::Denied`], [`Error::Conflict`] as an unlock; [`Error::ShutDown`] after [`close`](Self::close); [`Error::Forked`].
    #[doc(alias = "forceUnlock")]
    pub fn break_lock(
        &self,
        lock_type: impl Into<String>,
        lock_target: impl AsRef<str>,
        expected_locker: &str,
        reason: &str,
    ) -> Result<BreakOutcome, Error> {
        let name = DLockConfig::new(lock_type, lock_target);
        check_name(&name)?;
        self.client.core().process.check()?;
        if self.client.is_closed() {
            return Err(Error::ShutDown);
        }
        if !self.client.core().limits.breaks {
            return Err(Error::unsupported("the store cannot break locks: end the holder's process"));
        }
        let reason = OneLine(reason.chars().take(LONGEST_REASON).collect::<String>()).to_string();
        let order = Break::new(name.unique_key(), expected_locker, self.client.core().id.current().as_str(), &reason);
        let outcome = self
            .client
            .core()
            .processor
            .break_hold(&order, self.client.core().limits.command)
            .or_else(|error| self.look_for_break(&order, error))?;
        if let BreakOutcome::Broken { next, .. } = &outcome {
            log::info!(
                RELEASE,
                "lock {:?}: the hold of {expected_locker:?} was broken ({reason}); now held by {next:?}",
                name.unique_key()
            );
        }
        Ok(outcome)
    }

    /// Finds out whether an order was carried out whose reply is lost: the store then says by whom the hold was broken. Fails with the error
    /// of the order otherwise. The order may still be carried out then.
    fn look_for_break(&self, order: &Break<'_>, error: Error) -> Result<BreakOutcome, Error> {
        if !error.is_unknown() {
            return Err(error);
        }
        let limit = self.client.core().limits.command;
        match self.client.core().processor.broken(order.key, order.locker, limit) {
            Ok(Some(Broken { by, reason })) if by == order.by && reason == order.reason => {
                let found = self.client.core().processor.inspect(order.key, limit)?;
                Ok(BreakOutcome::Broken { next: found.holder, waiting: found.waiting })
            }
            _ => Err(error),
        }
    }
}
