//! Where locks come from.

use crate::client::{Client, Hook, Hooks, SlowWait};
use crate::clock::{Clock, SystemClock};
use crate::config::{DEFAULT_LEASE, DLockConfig, check_lease, check_type};
use crate::error::{Error, LeaseLoss};
use crate::lock::properties::{self, Leases};
use crate::lock::reentrant::DistributedReentrantLock;
use crate::store::processor::LockProcessor;
#[cfg(feature = "redis")]
use crate::store::redis::RedisLockProcessor;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Makes locks of one store: one client with its identity, and three threads however many locks it makes. JVM: `DLockGenerator`.
///
/// Make one for a program and keep it. A clone is another handle of the same client. Handles of the same key made by the same generator are one lock; those of two
/// generators, even in one process, exclude each other through the store like two processes. The threads (`dlock-retry`,
/// `dlock-lease`, `dlock-listen`) start on first need and end with [`close`](Self::close), or when the generator, its clones and all its locks are gone.
#[derive(Clone, Debug)]
pub struct DLockGenerator {
    client: Arc<Client>,
    leases: Arc<DefaultLeases>,
}

/// The leases of locks whose configs have none.
#[derive(Debug, Default)]
struct DefaultLeases {
    /// By lock type, from that file.
    by_type: Option<(Leases, PathBuf)>,
    /// For all other types, as the program has set it.
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
    /// Connects to the Redis at `url`: `redis://[user][:password@]host[:port][/db]`, `rediss://…` (feature `tls`), or `unix:///path`.
    ///
    /// Needs the feature `redis`, which is on by default.
    ///
    /// Blocks until the server has answered: at most the connect time-out (2 s) and one command's (1 s).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for a bad URL, [`Error::Backend`] when the server cannot be reached, [`Error::Denied`] when it refuses the
    /// login, [`Error::Unsupported`] when it is older than 7.0 or a cluster node.
    #[cfg(feature = "redis")]
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::new(RedisLockProcessor::connect(url)?)
    }

    /// Makes locks of the given store.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] when the operating system has no random numbers for the client id.
    pub fn new(processor: impl LockProcessor) -> Result<Self, Error> {
        Self::builder().build(processor)
    }

    /// Settings for a generator.
    pub fn builder() -> GeneratorBuilder {
        GeneratorBuilder::new()
    }

    /// Makes locks of the given store whose leases, by lock type, stand in a `config-dlock.properties` of JVM DLock (`ORDER=30000`, milliseconds).
    ///
    /// Locks of a type that the file lacks need a lease of their own ([`DLockConfig::with_lease`]). For a default beside the file, use
    /// [`GeneratorBuilder::properties`] and [`GeneratorBuilder::default_lease`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] naming the file, or the line that is wrong and why; else as [`new`](Self::new).
    pub fn from_properties(path: impl AsRef<Path>, processor: impl LockProcessor) -> Result<Self, Error> {
        Self::builder().properties(path)?.build(processor)
    }

    /// The lock of `lock_target` among those of `lock_type`, with the [lease of its type](Self::lease_of). Does not ask the store.
    /// JVM: `gen(lockType, lockTarget)`.
    ///
    /// # Errors
    ///
    /// Those of [`lease_of`](Self::lease_of); [`Error::ShutDown`] after [`close`](Self::close).
    pub fn generate(
        &self,
        lock_type: impl Into<String>,
        lock_target: impl AsRef<str>,
    ) -> Result<DistributedReentrantLock, Error> {
        self.generate_with(DLockConfig::new(lock_type, lock_target))
    }

    /// The lock with these settings. Does not ask the store. JVM: `gen(lockType, lockTarget, lease, unit)`.
    ///
    /// A config without [`with_lease`](DLockConfig::with_lease) takes the [lease of its type](Self::lease_of), as [`generate`](Self::generate) does.
    /// Handles of one key may have different settings; a tenure has those of the handle that asked for it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] naming the setting that cannot be used; without a lease those of [`lease_of`](Self::lease_of);
    /// [`Error::ShutDown`] after [`close`](Self::close).
    pub fn generate_with(&self, config: DLockConfig) -> Result<DistributedReentrantLock, Error> {
        let config = self.with_its_lease(config)?.checked()?;
        if self.client.is_closed() {
            return Err(Error::ShutDown);
        }
        let key = self.client.keys.key(config.shared_key());
        Ok(DistributedReentrantLock::new(Arc::clone(&self.client), key, Arc::new(config)))
    }

    /// Settings for a lock, with the [lease of its type](Self::lease_of), to change and hand to [`generate_with`](Self::generate_with).
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

    /// The lease of a lock of this type whose config has none: the one in the properties file, else the
    /// [default lease](GeneratorBuilder::default_lease), else, without a file, [`DEFAULT_LEASE`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for an empty type, and for one that the properties file lacks when no default lease was set.
    pub fn lease_of(&self, lock_type: &str) -> Result<Duration, Error> {
        self.leases.of(lock_type)
    }

    fn with_its_lease(&self, config: DLockConfig) -> Result<DLockConfig, Error> {
        if config.has_lease() {
            return Ok(config);
        }
        let lease = self.lease_of(config.lock_type())?;
        Ok(config.with_lease(lease))
    }

    /// Ends the making and getting of locks: new and waiting calls fail with [`Error::ShutDown`]. What is held stays
    /// held and is renewed until it is unlocked; the threads and sockets end with the last hold.
    ///
    /// Blocks until waiting threads have left, and, without holds, until both threads have ended: a few round trips, or
    /// a few commands' time-outs (1 s each) when the server does not answer. Called again it does nothing more.
    pub fn close(&self) {
        self.client.close();
    }
}

/// Settings of a [`DLockGenerator`].
#[derive(Debug)]
#[must_use]
pub struct GeneratorBuilder {
    clock: Arc<dyn Clock>,
    leases: DefaultLeases,
    listener: bool,
    hooks: Hooks,
}

impl GeneratorBuilder {
    fn new() -> Self {
        Self { clock: Arc::new(SystemClock), leases: DefaultLeases::default(), listener: true, hooks: Hooks::default() }
    }

    /// Sets whether waiters are *handed* the lock. Defaults to `true`: threads of this process pass it on among themselves, and other
    /// processes are given it by the releasing script call, in the order of their waiting, and hear of it in an inbox (a connection and a
    /// thread of its own, from the first time that a thread waits).
    ///
    /// Without, each process asks: after lease/10, then every lease/6, and when the holder's lease ends. It then needs no
    /// channel rights on the server. All processes of a lock should have the same setting: those that only ask may starve beside those that
    /// hand over, as JVM processes may.
    pub fn listener(mut self, on: bool) -> Self {
        self.listener = on;
        self
    }

    /// Sets the lease of locks whose config has none, and whose type does not stand in the [properties file](Self::properties). Defaults to 30 s
    /// without such a file, and to no lease at all, which is an error, with one.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] unless it is from 20 ms to 24 days.
    pub fn default_lease(mut self, lease: Duration) -> Result<Self, Error> {
        check_lease(lease)?;
        self.leases.other = Some(lease);
        Ok(self)
    }

    /// Takes the leases of the types in a properties file, as [`DLockGenerator::from_properties`] does. A
    /// [`default_lease`](Self::default_lease), set before or after, counts for all other types; called again, the other file counts.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] naming the file, or the line that is wrong and why.
    pub fn properties(mut self, path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        self.leases.by_type = Some((properties::read(path)?, path.to_owned()));
        Ok(self)
    }

    /// Sets a function that is told of every hold whose lease is lost, at once, with the key, the locker and the cause: for metrics, an
    /// alarm, or stopping the work, where not every guard is watched. It runs on a thread of its own (`dlock-lost`, started by the
    /// first loss), one loss after another: a slow one delays no renewal. A panic in it is logged. Losses that it has
    /// not been told of when the generator ends are told afterwards.
    ///
    /// ```
    /// # use redis_dlock::{DLockGenerator, MemoryLockProcessor};
    /// let generator = DLockGenerator::builder()
    ///     .on_lost(|loss| eprintln!("stop the work on {}: {}", loss.key, loss.cause))
    ///     .build(MemoryLockProcessor::new())?;
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn on_lost(mut self, told: impl Fn(&LeaseLoss) + Send + Sync + 'static) -> Self {
        self.hooks.on_lost = Some(Arc::new(Hook::new(told)));
        self
    }

    /// Sets a function that is told once of every thread that has waited for a lock for this long, while it waits on in its place. Use it to
    /// find out why work stalls: [`inspect`](DistributedReentrantLock::inspect) says who holds the lock. It runs on a thread of its own
    /// (`dlock-slow-wait`, started by the first slow wait), one wait after another, and a slow function delays nobody. A panic in it is logged.
    ///
    /// A call whose own limit ends sooner is not told of. The time is that of the generator's [clock](Self::clock); a thread that is just asking the
    /// store is told of when that answers.
    ///
    /// ```
    /// # use redis_dlock::{DLockGenerator, MemoryLockProcessor};
    /// # use std::time::Duration;
    /// let generator = DLockGenerator::builder()
    ///     .on_slow_wait(Duration::from_secs(5), |wait| eprintln!("{} is waited for since {:?}", wait.key, wait.waited))
    ///     .build(MemoryLockProcessor::new())?;
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn on_slow_wait(mut self, after: Duration, told: impl Fn(&SlowWait) + Send + Sync + 'static) -> Self {
        self.hooks.on_slow_wait = Some((after, Hook::new(told)));
        self
    }

    /// Sets the source of local time, for tests. Defaults to [`SystemClock`].
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Makes the generator. Does not ask the store.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] when the operating system has no random numbers for the client id.
    pub fn build(self, processor: impl LockProcessor) -> Result<DLockGenerator, Error> {
        let client = Client::new(Box::new(processor), self.clock, self.listener, self.hooks)?;
        Ok(DLockGenerator { client, leases: Arc::new(self.leases) })
    }
}

#[cfg(all(test, dlock_shuttle))]
impl DLockGenerator {
    /// For the model, which looks whether the core ends with its handles.
    pub(crate) fn downgrade(&self) -> std::sync::Weak<crate::client::core::Core> {
        self.client.downgrade()
    }
}
