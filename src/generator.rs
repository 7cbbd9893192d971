//! Where locks come from.

use crate::client::Client;
use crate::clock::{Clock, SystemClock};
use crate::config::{DEFAULT_LEASE, DLockConfig, check_lease};
use crate::error::{Error, LeaseLoss};
use crate::lock::DistributedReentrantLock;
use crate::loss_hook::LossHook;
use crate::processor::LockProcessor;
use crate::properties::{self, Leases};
use crate::redis::RedisLockProcessor;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Makes locks of one store: one client with its identity, and three threads however many locks it makes. JVM: `DLockGenerator`.
///
/// Make one for a program and keep it. Handles of the same key made by the same generator are one lock; those of two
/// generators, even in one process, exclude each other through the store like two processes. The threads (`dlock-retry`,
/// `dlock-lease`, `dlock-listen`) start on first need and end with [`close`](Self::close), or when the generator and all its locks are gone.
#[derive(Debug)]
pub struct DLockGenerator {
    client: Arc<Client>,
    leases: DefaultLeases,
}

/// The lease of a lock for which none was given.
#[derive(Debug)]
enum DefaultLeases {
    /// The same for every type.
    Same(Duration),
    /// By lock type, from that file; other types have none.
    ByType(Leases, PathBuf),
}

impl DLockGenerator {
    /// Connects to the Redis at `url`: `redis://[user][:password@]host[:port][/db]`, `rediss://…` (feature `tls`), or `unix:///path`.
    ///
    /// Blocks until the server has answered: at most the connect time-out (2 s) and one command's (1 s).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for a bad URL, [`Error::Backend`] when the server cannot be reached, [`Error::Denied`] when it refuses the
    /// login, [`Error::Unsupported`] when it is older than 7.0 or a cluster node.
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
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] naming the file, or the line that is wrong and why; else as [`new`](Self::new).
    pub fn from_properties(path: impl AsRef<Path>, processor: impl LockProcessor) -> Result<Self, Error> {
        Self::builder().properties(path)?.build(processor)
    }

    /// The lock of `lock_target` among those of `lock_type`, with the lease of its type in the properties file, else with
    /// the default lease. Does not ask the store. JVM: `gen(lockType, lockTarget)`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for an empty type, or one that the properties file does not have.
    pub fn generate(
        &self,
        lock_type: impl Into<String>,
        lock_target: impl AsRef<str>,
    ) -> Result<DistributedReentrantLock, Error> {
        let lock_type = lock_type.into();
        let lease = match &self.leases {
            DefaultLeases::Same(lease) => *lease,
            DefaultLeases::ByType(leases, path) => *leases.get(&lock_type).ok_or_else(|| {
                let hint = format!("add a line {lock_type}=milliseconds to {}, or use generate_with", path.display());
                Error::invalid("lock type", lock_type.clone(), hint)
            })?,
        };
        self.generate_with(DLockConfig::new(lock_type, lock_target).with_lease(lease))
    }

    /// The lock with these settings. Does not ask the store. JVM: `gen(lockType, lockTarget, lease, unit)`.
    ///
    /// Handles of one key may have different settings; a tenure has those of the handle that asked for it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] naming the setting that cannot be used; [`Error::ShutDown`] after [`close`](Self::close).
    pub fn generate_with(&self, config: DLockConfig) -> Result<DistributedReentrantLock, Error> {
        let config = config.checked()?;
        if self.client.is_closed() {
            return Err(Error::ShutDown);
        }
        let key = self.client.key(config.shared_key());
        Ok(DistributedReentrantLock::new(Arc::clone(&self.client), key, Arc::new(config)))
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
    on_lost: Option<LossHook>,
}

impl GeneratorBuilder {
    fn new() -> Self {
        Self { clock: Arc::new(SystemClock), leases: DefaultLeases::Same(DEFAULT_LEASE), listener: true, on_lost: None }
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

    /// Sets the lease of locks that are given none. Defaults to 30 s.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] unless it is from 20 ms to 24 days.
    pub fn default_lease(mut self, lease: Duration) -> Result<Self, Error> {
        check_lease(lease)?;
        self.leases = DefaultLeases::Same(lease);
        Ok(self)
    }

    /// Takes the leases from a properties file, as [`DLockGenerator::from_properties`] does.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] naming the file, or the line that is wrong and why.
    pub fn properties(mut self, path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        self.leases = DefaultLeases::ByType(properties::read(path)?, path.to_owned());
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
        self.on_lost = Some(LossHook::new(told));
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
        let client = Client::new(Box::new(processor), self.clock, self.listener, self.on_lost)?;
        Ok(DLockGenerator { client, leases: self.leases })
    }
}

#[cfg(all(test, dlock_shuttle))]
impl DLockGenerator {
    /// For the model, which looks whether the client ends with its handles.
    pub(crate) fn downgrade(&self) -> std::sync::Weak<Client> {
        Arc::downgrade(&self.client)
    }
}
