//! The generator, which makes locks, and its builder.

mod breaking;
mod builder;
mod describe;
mod several;

pub use builder::GeneratorBuilder;
pub use describe::ListedLocks;

use crate::client::Client;
use crate::config::{DEFAULT_LEASE, DLockConfig, check_type};
use crate::error::Error;
use crate::lock::leader::Leader;
use crate::lock::limits::{self, ShortLeases};
use crate::lock::properties::Leases;
use crate::lock::reentrant::DistributedReentrantLock;
use crate::port::LockProcessor;
#[cfg(feature = "redis")]
use crate::store::redis::RedisLockProcessor;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Makes the locks of one store. It is one client with one identity and the same few threads, however many locks it makes. JVM:
/// `DLockGenerator`.
///
/// Make one generator for a program and keep it. A clone is another handle of the same client. Handles of the same key made by
/// the same generator are one lock. Handles made by two generators, even in one process, exclude each other through the store
/// as two processes do. The threads (`dlock-retry`, `dlock-lease`, `dlock-listen`) start when they are first needed. They end
/// with [`close`](Self::close), or when the generator, its clones and all its locks are gone. Dropping the last of these handles
/// blocks as `close` does. Of the methods only `connect` and `close` block, and those that read a properties file.
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
    pub(super) client: Arc<Client>,
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
    /// [`Error::InvalidConfig`], which names the setting that cannot be used, also if it is a
    /// [limit of the store](crate::processor::StoreLimits) that forbids it; without a lease, those of
    /// [`lease_of`](Self::lease_of); [`Error::ShutDown`] after [`close`](Self::close).
    pub fn generate_with(&self, config: DLockConfig) -> Result<DistributedReentrantLock, Error> {
        // Asked each time: what an outage may last is known only once Sentinels have answered.
        let limits = self.client.core().processor.limits();
        let config = limits::within(self.with_its_lease(config)?.checked()?, &limits)?;
        if self.client.is_closed() {
            return Err(Error::ShutDown);
        }
        self.short_leases.warn_of(&config, &limits);
        let key = self.client.core().keys.key(&config.unique_key);
        self.client.see(&key, &config);
        Ok(DistributedReentrantLock::new(Arc::clone(&self.client), key, Arc::new(config)))
    }

    /// Returns a leadership of this name, to campaign for. Does not ask the store.
    ///
    /// # Errors
    ///
    /// Those of [`generate`](Self::generate).
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
        self.client.dropped_events()
    }

    /// Closes the generator. New calls, and calls that wait, fail with [`Error::ShutDown`]. A lock that is held stays held and
    /// is renewed until it is unlocked; the threads and sockets end with the last hold.
    ///
    /// Blocks until waiting threads have left. If nothing is held, it also blocks until `dlock-retry`, `dlock-lease` and
    /// `dlock-listen` have ended: a few round trips, or a few commands' time-outs (1 s each) if the server does not answer.
    /// Further calls do nothing more.
    pub fn close(&self) {
        self.client.close();
    }
}

#[cfg(all(test, dlock_shuttle))]
impl DLockGenerator {
    /// For the model, which checks that the parts end with their handles.
    pub(crate) fn downgrade(&self) -> std::sync::Weak<crate::client::parts::Parts> {
        self.client.downgrade()
    }
}
