//! The builder of a generator.

use crate::client::{Client, Function, Options};
use crate::clock::{Clock, SystemClock};
use crate::config::check_lease;
use crate::error::{Error, LeaseLoss};
use crate::event::{Event, SlowWait};
use crate::lock::generator::{DLockGenerator, DefaultLeases};
use crate::lock::properties;
use crate::port::LockProcessor;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Settings of a [`DLockGenerator`].
///
/// # Examples
///
/// ```
/// use redis_dlock::{DLockGenerator, MemoryLockProcessor};
///
/// let generator = DLockGenerator::builder()
///     .on_lost(|loss| eprintln!("{loss}"))
///     .build(MemoryLockProcessor::new())?;
/// assert!(generator.generate("ORDER", "4711")?.try_lock()?.is_some());
/// # Ok::<_, redis_dlock::Error>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct GeneratorBuilder {
    clock: Arc<dyn Clock>,
    leases: DefaultLeases,
    client: Options,
}

impl GeneratorBuilder {
    pub(super) fn new() -> Self {
        Self { clock: Arc::new(SystemClock), leases: DefaultLeases::default(), client: Options::default() }
    }

    /// Sets whether waiters are *handed* the lock. Defaults to `true`: threads of this process pass it on among themselves, and
    /// the script call that releases the lock gives it to other processes in the order in which they began to wait. A process
    /// learns of that from a message in its inbox, which has a connection and a thread of its own from the first time that a
    /// thread waits.
    ///
    /// With `false`, each process polls: after lease/10, then every lease/6, and when the holder's lease ends. It then needs no
    /// channel rights on the server. All processes that use a lock should have the same setting: processes that only poll may
    /// starve beside those that hand over, as JVM processes may.
    pub fn listener(mut self, on: bool) -> Self {
        self.client.listens = on;
        self
    }

    /// Sets whether the client writes into the store what it is, for [`describe`](DLockGenerator::describe): its program, host, process number,
    /// user and version. Defaults to `true`. The lease thread writes this [record](crate::ClientRecord) a moment after the first lock, and
    /// again every 30 s. The record is removed when the generator is closed, and expires 90 s after the last refresh. With `false`, the client
    /// does not listen because of a lock with a reason.
    pub fn client_record(mut self, on: bool) -> Self {
        self.client.has_record = on;
        self
    }

    /// Sets the lease of locks whose config sets none and whose type is not in the [properties file](Self::properties). The default is 30 s
    /// without a file. With a file there is no default, and such a lock is an error.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if `lease` is shorter than 20 ms or longer than 24 days.
    pub fn default_lease(mut self, lease: Duration) -> Result<Self, Error> {
        check_lease(lease)?;
        self.leases.other = Some(lease);
        Ok(self)
    }

    /// Reads the leases of lock types from a properties file, as [`DLockGenerator::from_properties`] does, and blocks for it. A
    /// [`default_lease`](Self::default_lease), set before or after, applies to all other types. A second call replaces the
    /// file.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`], which names the file, or the line that is wrong and why.
    pub fn properties(mut self, path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        self.leases.by_type = Some((properties::read(path)?, path.to_owned()));
        Ok(self)
    }

    /// Sets the source of local time, for tests. Defaults to [`SystemClock`].
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Builds the generator. Does not ask the store.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] when the operating system has no random numbers for the client id.
    pub fn build(self, processor: impl LockProcessor) -> Result<DLockGenerator, Error> {
        let client = Client::new(Box::new(processor), self.clock, self.client)?;
        Ok(DLockGenerator { client, leases: Arc::new(self.leases), short_leases: Arc::default() })
    }
}

/// The functions that are told what happens.
impl GeneratorBuilder {
    /// Sets a function that is called with each [`Event`] of the locks and of the store. Use it for figures of your own, for a trace of who
    /// held what, or to find out what slows a program down. The manual's page [Events](crate::manual::events) has the list of the events, and
    /// their order.
    ///
    /// The function runs on a thread (`dlock-events`, started by the first event), for one event after another, with no mutex of this crate
    /// held. So it may lock, and a slow function delays no lock. Of the other functions it delays only that of
    /// [`on_slow_wait`](Self::on_slow_wait). Up to 4,096 acquisitions and releases wait for it, and up to 4,096 other events. Further ones are
    /// dropped: [`Event::Dropped`] says how many, at their place in the order, and
    /// [`DLockGenerator::dropped_events`](crate::DLockGenerator::dropped_events) counts all. A panic in the function is logged. When the
    /// generator ends, the events that still wait are delivered, but nobody waits for that. A second call replaces the function.
    ///
    /// With a function, a lock and its release cost two more readings of the clock and two entries in a queue. Without one they cost nothing.
    ///
    /// ```
    /// # use redis_dlock::{DLockGenerator, Event, MemoryLockProcessor};
    /// let generator = DLockGenerator::builder()
    ///     .on_event(|event| match event {
    ///         Event::Released(released) => println!("{} was held for {:?}", released.lock.unique_key(), released.held),
    ///         Event::StoreFailing(failing) => eprintln!("{}", failing.error),
    ///         _ => {}
    ///     })
    ///     .build(MemoryLockProcessor::new())?;
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn on_event(mut self, told: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.client.hooks.on_event = Some(Function::Events(Box::new(told)));
        self
    }

    /// Sets a function that is called for every hold whose lease is lost, at once, with the key, the locker and the cause. Use it for metrics,
    /// for an alarm, or to stop the work where not every guard is watched. The function runs on a thread of its own (`dlock-events`), for one
    /// loss after another. So it delays no renewal, and never waits for the other functions. A panic in it is logged. When the generator ends,
    /// the losses that still wait are reported. While 4,096 losses wait for the function, further ones are only logged. A second call replaces
    /// the function.
    ///
    /// ```
    /// # use redis_dlock::{DLockGenerator, MemoryLockProcessor};
    /// let generator = DLockGenerator::builder()
    ///     .on_lost(|loss| eprintln!("stop the work on {}: {}", loss.key, loss.cause))
    ///     .build(MemoryLockProcessor::new())?;
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn on_lost(mut self, told: impl Fn(&LeaseLoss) + Send + Sync + 'static) -> Self {
        self.client.hooks.on_lost = Some(Function::Losses(Box::new(told)));
        self
    }

    /// Sets a function that is called once for every thread that has waited for a lock for this long; the thread keeps its place and waits on.
    /// Use it to find out why work stalls: [`inspect`](crate::DistributedReentrantLock::inspect) says who holds the lock. The function runs on
    /// the thread of [`on_event`](Self::on_event) (`dlock-events`), for one wait after another. So a slow function delays no lock, but these
    /// two functions wait for one another. A panic in it is logged. While 4,096 waits are still to be reported, further ones are only logged. A
    /// second call replaces the function and the time. [`slow_wait_after`](Self::slow_wait_after) also replaces the time.
    ///
    /// A call whose own limit ends sooner is not reported. The time is measured by the generator's [clock](Self::clock). If the
    /// thread is just asking the store, the wait is reported when the store has answered.
    ///
    /// ```
    /// # use redis_dlock::{DLockGenerator, MemoryLockProcessor};
    /// # use std::time::Duration;
    /// let generator = DLockGenerator::builder()
    ///     .on_slow_wait(Duration::from_secs(5), |wait| eprintln!("a thread has waited for {} for {:?}", wait.key, wait.waited))
    ///     .build(MemoryLockProcessor::new())?;
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn on_slow_wait(mut self, after: Duration, told: impl Fn(&SlowWait) + Send + Sync + 'static) -> Self {
        self.client.hooks.on_slow_wait = Some(Function::SlowWaits(Box::new(told)));
        self.client.hooks.slow_after = Some(after);
        self
    }

    /// Sets how long a thread must wait for a lock until [`Event::SlowWait`] tells of it. Defaults to 10 s. The time is that of
    /// [`on_slow_wait`](Self::on_slow_wait), too.
    pub fn slow_wait_after(mut self, after: Duration) -> Self {
        self.client.hooks.slow_after = Some(after);
        self
    }

    /// Sets whether the generator records metrics with the facade of the crate [`metrics`](https://docs.rs/metrics). Defaults to `false`, so
    /// that a program pays for them only where it wants them. The manual's page [Metrics](crate::manual::metrics) has the table of the names.
    ///
    /// Install the recorder before this generator is [built](Self::build), which registers the series: a recorder that comes later gets none. The
    /// recorder is called on the threads that lock and on those of this crate, with no mutex of this crate held. A panic in it is logged; if it
    /// panics while the generator is built, the generator records nothing.
    ///
    /// Needs the feature `metrics`.
    #[cfg(feature = "metrics")]
    pub fn metrics(mut self, on: bool) -> Self {
        self.client.hooks.metrics = on;
        self
    }
}
