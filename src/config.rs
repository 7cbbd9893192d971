//! Settings of one lock.

mod checks;

pub use checks::LONGEST_KEY;
pub(crate) use checks::{check_lease, check_name, check_type, whole_milliseconds};

use crate::error::Error;
use crate::one_line::OneLine;
use crate::timing;
use std::sync::Arc;
use std::time::Duration;

/// The lease of a lock if neither its config nor its generator sets one: thirty seconds, as in Redisson.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// The shortest lease. Below it, the safety margin of the deadline (2 ms) would leave hardly any time to extend the lease.
pub const MIN_LEASE: Duration = Duration::from_millis(20);

/// The longest lease: 2,147,483,647 ms (24 days), the range of JVM DLock's `int` of milliseconds.
pub const MAX_LEASE: Duration = Duration::from_millis(i32::MAX as u64);

/// The longest lock-delay. A request that a dead holder has sent arrives within a minute, or not at all.
pub(crate) const LONGEST_LOCK_DELAY: Duration = Duration::from_secs(60);

/// The prefix of all lock keys.
pub(crate) const PREFIX: &str = "DLOCK_";

const DEFAULT_LOCAL_PASSES: u32 = 16;

/// The longest reason, and the longest name of a holder, in characters. Stores keep them in the entry of the lock, and etcd and Consul refuse an
/// entry that is too long.
const LONGEST_NOTE: usize = 1024;
const RENEW_AT_RANGE: std::ops::RangeInclusive<f64> = 0.1..=0.85;

/// Settings of one lock: its name, its lease, and how the lease is renewed. JVM: `DLockConfig`.
///
/// Creating a config cannot fail; [`DLockGenerator::generate_with`](crate::DLockGenerator::generate_with) checks it.
///
/// ```
/// use redis_dlock::DLockConfig;
/// use std::time::Duration;
///
/// let config = DLockConfig::new("ORDER", " 4711 ").with_lease(Duration::from_secs(5));
/// assert_eq!(config.unique_key(), "DLOCK_ORDER_4711");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct DLockConfig {
    /// The length of the lock type in bytes; it follows the prefix in the key.
    type_length: usize,
    /// Shared with the key of that name, because a program may have very many of them.
    pub(crate) unique_key: Arc<str>,
    /// `None`: the lease that the generator has for this type.
    pub(crate) lease: Option<Duration>,
    /// `None`: as late as the store allows.
    pub(crate) renew_at: Option<f64>,
    pub(crate) probe: bool,
    pub(crate) local_passes: u32,
    pub(crate) reentry: bool,
    pub(crate) linger: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) hold_warning: Option<Duration>,
    pub(crate) lock_delay: Duration,
    pub(crate) poller_gap: Option<Duration>,
    pub(crate) reason: Option<String>,
    pub(crate) holder_name: Option<String>,
}

/// Settings with their defaults for the lock with this type and target.
impl<T: Into<String>, U: AsRef<str>> From<(T, U)> for DLockConfig {
    fn from((lock_type, lock_target): (T, U)) -> Self {
        Self::new(lock_type, lock_target)
    }
}

impl DLockConfig {
    /// Creates settings for the lock with this type and target; all other settings have their defaults.
    ///
    /// The type groups targets of one kind (`ORDER`, `USER`) and is used as it is; it must not be empty. Leading and trailing
    /// characters up to U+0020 are stripped from the target, as Java's `String.trim` does, so that both sides name the same
    /// key. The target may be empty.
    pub fn new(lock_type: impl Into<String>, lock_target: impl AsRef<str>) -> Self {
        let lock_type = lock_type.into();
        let target = lock_target.as_ref().trim_matches(|c| c <= '\u{20}');
        Self {
            unique_key: format!("{PREFIX}{lock_type}_{target}").into(),
            type_length: lock_type.len(),
            lease: None,
            renew_at: None,
            probe: true,
            local_passes: DEFAULT_LOCAL_PASSES,
            reentry: true,
            linger: Duration::ZERO,
            max_hold: None,
            hold_warning: None,
            lock_delay: Duration::ZERO,
            poller_gap: None,
            reason: None,
            holder_name: None,
        }
    }

    /// Sets how long the store keeps the lock without an extension: how long others must wait when this process dies.
    ///
    /// From 20 ms to 24 days, in whole milliseconds; fractions are truncated. Without this setting, the lock has the lease that
    /// its generator has for the type ([`lease_of`](crate::DLockGenerator::lease_of)): the one in the properties file, or else
    /// the default lease, 30 s unless [set](crate::GeneratorBuilder::default_lease). A live holder's lease is extended for as
    /// long as it holds the lock.
    #[doc(alias("ttl", "expire", "lockAtMostFor"))]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets the fraction of the lease after which it is extended, from 0.1 to 0.85. Defaults to 0.75, as in JVM DLock. If the store may be away
    /// for a while during a failover ([`StoreLimits::outage`](crate::port::StoreLimits::outage)), the default is smaller, but at least a
    /// third, so that the rest of the lease outlives the failover. On a store that is asked about many locks together
    /// ([`StoreLimits::asks_together`](crate::port::StoreLimits::asks_together)), the lease is extended up to a sixth of it earlier.
    pub fn with_renew_at(mut self, part: f64) -> Self {
        self.renew_at = Some(part);
        self
    }

    /// Sets whether a held key is checked every lease/6, so that its deletion, overwriting or loss in a failover is noticed
    /// before the next extension. Defaults to `true`.
    pub fn with_probe(mut self, probe: bool) -> Self {
        self.probe = probe;
        self
    }

    /// Sets how many more times the threads of this process may pass the lock on among themselves once they know that other
    /// processes wait. Defaults to 16. More passes give more throughput; fewer give the other processes shorter waits.
    ///
    /// While no other process waits, the threads pass the lock on without limit and without asking the store. Once others wait, the lock goes
    /// to them after 10 ms in any case. The client begins to receive messages some milliseconds after a thread first waits. Until then it
    /// cannot hear of other processes, so it assumes that some wait. With [`GeneratorBuilder::listener`](crate::GeneratorBuilder::listener)
    /// off, this setting has no effect: the lock is given back after every hold.
    pub fn with_local_passes(mut self, passes: u32) -> Self {
        self.local_passes = passes;
        self
    }

    /// Sets whether the thread that holds the lock may lock it again. Defaults to `true`: the lock is reentrant.
    ///
    /// With `false`, every call that would give the holding thread a second hold fails with
    /// [`Error::AlreadyHeld`](crate::Error::AlreadyHeld), the `try_…` forms included. Use it on the threads of a pool that runs one job
    /// inside another: see [Tasks and thread pools](crate::manual::tasks_and_pools). The setting is that of the handle through which the
    /// hold began.
    ///
    /// ```
    /// # use redis_dlock::{DLockConfig, DLockGenerator, Error, MemoryLockProcessor};
    /// # let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
    /// let lock = generator.generate_with(DLockConfig::new("ORDER", "4711").with_reentry(false))?;
    /// let guard = lock.lock()?;
    /// assert!(matches!(lock.try_lock(), Err(Error::AlreadyHeld { .. })));
    /// guard.unlock()?;
    /// assert!(lock.try_lock()?.is_some());
    /// # Ok::<_, Error>(())
    /// ```
    pub fn with_reentry(mut self, on: bool) -> Self {
        self.reentry = on;
        self
    }

    /// Sets for how long this process keeps the lock after its last hold, in case one of its threads wants it again. That
    /// thread then gets it without asking the store. Defaults to zero: the lock is given back at once.
    ///
    /// Use it for work that comes in bursts to the same process (lock caching with revocation, as in distributed file systems). A message from
    /// any process that waits for the lock ends the lingering at once. A [`try_lock`](crate::DistributedReentrantLock::try_lock) in another
    /// process also ends it, and waits for the lock for up to 5 ms, or five round trips if they take longer.
    ///
    /// While the lock lingers, it counts as [locked](crate::DistributedReentrantLock::is_locked) and its lease is renewed. If the process dies,
    /// the others wait until the lease ends although nobody was inside. JVM processes, which can only poll, may starve beside a process that
    /// takes the lock again and again. [`close`](crate::DLockGenerator::close) gives the lock back. Lingering needs the
    /// [listener](crate::GeneratorBuilder::listener): until the client receives messages, and while its subscription is broken, nothing
    /// lingers. The first `lock()` that may linger begins to subscribe, which takes some milliseconds, and longer on a slow network. A lock
    /// whose hold ends before that is given back at once.
    pub fn with_linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Sets for how long one thread, or one [`Hold`](crate::Hold), may hold the lock, reentries included. Defaults to no limit.
    ///
    /// When that time is over, the holder is told that its lease is lost, with the cause
    /// [`HeldTooLong`](crate::LossCause::HeldTooLong), and the lease is no longer extended. The store still keeps the key for
    /// the remainder of the lease (a quarter with the default [`with_renew_at`](Self::with_renew_at), less after extensions
    /// that failed). The holder must stop within that time, before anybody else is inside. The other threads of its process wait until it has
    /// unlocked.
    ///
    /// Like all settings of a tenure, the limit is that of the handle that asked the store for the lock, even for threads of
    /// this process to which the lock is passed on.
    #[doc(alias = "leaseTime")]
    pub fn with_max_hold(mut self, limit: Duration) -> Self {
        self.max_hold = Some(limit);
        self
    }

    /// Sets the time after which a hold is reported in the log, once, with a WARN that names its holder, its token and its
    /// [reason](Self::with_reason). Nothing else happens to the hold. Defaults to never.
    ///
    /// Use it to find a [`Hold`](crate::Hold) that is kept by mistake. It does not end with a thread, so its lease is renewed for as long as
    /// the process lives.
    ///
    /// Like all settings of a tenure, the time and the reason are those of the handle that asked the store for the lock, even for holds of this
    /// process to which the lock is passed on.
    pub fn with_hold_warning(mut self, after: Duration) -> Self {
        self.hold_warning = Some(after);
        self
    }

    /// Sets for how long the lock stays taken after its holder's lease has ended, so that work that a dead holder has started (a
    /// request to another server, say) ends before the next holder begins. Defaults to zero. Consul calls it `lock-delay`.
    ///
    /// From 0 to 60 s, in whole milliseconds; fractions are rounded up. The store keeps the lock for the lease and this time from each
    /// extension on, and the holder counts on the lease alone. So a holder that dies, is cut off or hangs keeps others out for so much longer.
    /// A holder that unlocks gives the lock away at once, even after it has lost its lease, because its work has ended. (On Consul a late
    /// `unlock` does not end a delay that has begun.)
    ///
    /// The holder's setting counts, so set the same time in all processes. JVM processes see a longer time to live, and wait for it.
    pub fn with_lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// Lets processes that only poll, such as those of JVM DLock, get the lock between processes that hand it over. At most
    /// once per `every`, counted over all processes together, a release leaves the lock free for about a sixth of its lease,
    /// the time after which a poller asks again. No process of this crate takes the lock in that time. Defaults to never: then pollers
    /// may starve.
    ///
    /// From the lease to 24 days, in whole milliseconds; fractions are truncated. If no poller uses a gap, nobody is inside during it, and
    /// `try_lock` finds the lock taken. With a gap after every lease, the lock may be free for up to a sixth of the time. Pollers are expected
    /// to have the same lease as this lock.
    ///
    /// Set this in all processes. The process that made the last gap determines the time until the next gap. For that
    /// time, the server keeps a small key for each lock name that had a gap.
    pub fn with_poller_gap(mut self, every: Duration) -> Self {
        self.poller_gap = Some(every);
        self
    }

    /// Sets a text that says what the lock is for. The WARN of a lost lease and that of a [long hold](Self::with_hold_warning) include the text,
    /// `describe` shows it, and each request for the lock passes it to the store ([`Note::why`](crate::port::Note::why)). The stores of this crate
    /// keep it only for a [delayed release](crate::DelayedRelease). Characters that cannot be printed are escaped, and what is longer than 1,024
    /// characters is cut. Defaults to none.
    pub fn with_reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(note(reason.into()));
        self
    }

    /// Sets the name of a [`Hold`](crate::Hold) of this lock, and of a call that waits for one. People see it in
    /// [descriptions](crate::DLockGenerator::describe), in the report of a [long hold](Self::with_hold_warning), and in a store that keeps
    /// [notes](crate::port::Note::thread). Without this setting, they see the name of the thread that called. Characters that cannot be
    /// printed are escaped, and what is longer than 1,024 characters is cut. A guard is always shown with the name of its thread.
    pub fn with_holder_name(mut self, name: impl Into<String>) -> Self {
        self.holder_name = Some(note(name.into()));
        self
    }

    /// Returns the lock's key in the store: `DLOCK_{lock_type}_{lock_target}`. A lock can be made only with a key of at most 16 KiB.
    #[must_use]
    pub fn unique_key(&self) -> &str {
        &self.unique_key
    }

    /// Returns the lease that [`with_lease`](Self::with_lease) or [`DLockGenerator::config`](crate::DLockGenerator::config) has
    /// set, or else [`DEFAULT_LEASE`]. A config without a lease gets that of its generator when the lock is made.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease.unwrap_or(DEFAULT_LEASE)
    }

    /// Returns the lock's type.
    #[must_use]
    pub fn lock_type(&self) -> &str {
        &self.unique_key[PREFIX.len()..][..self.type_length]
    }

    /// Returns the lock's target, without the white space around it.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.unique_key[PREFIX.len() + self.type_length + 1..]
    }

    /// Returns the time after which the lease is extended: the fraction that [`with_renew_at`](Self::with_renew_at) has set, or
    /// 0.75, of the [lease](Self::lease). The config of a [lock](crate::DistributedReentrantLock::config) has the fraction that
    /// its store needs.
    #[must_use]
    pub fn renew_after(&self) -> Duration {
        let part = self.renew_at.filter(|part| RENEW_AT_RANGE.contains(part));
        self.lease().mul_f64(part.unwrap_or(timing::RENEW_AT))
    }

    /// Returns how many more times the threads of this process may pass the lock on once others wait:
    /// [`with_local_passes`](Self::with_local_passes).
    #[must_use]
    pub fn local_passes(&self) -> u32 {
        self.local_passes
    }

    /// Returns whether the thread that holds the lock may lock it again: [`with_reentry`](Self::with_reentry).
    #[must_use]
    pub fn reentry(&self) -> bool {
        self.reentry
    }

    /// Returns for how long one thread or [`Hold`](crate::Hold) may hold the lock: [`with_max_hold`](Self::with_max_hold). `None` means no
    /// limit.
    #[must_use]
    pub fn max_hold(&self) -> Option<Duration> {
        self.max_hold
    }

    /// Returns the time after which a hold is reported in the log: [`with_hold_warning`](Self::with_hold_warning). `None` means never.
    #[must_use]
    pub fn hold_warning(&self) -> Option<Duration> {
        self.hold_warning
    }

    /// Returns for how long the lock stays taken after its holder's lease has ended: [`with_lock_delay`](Self::with_lock_delay).
    #[must_use]
    pub fn lock_delay(&self) -> Duration {
        self.lock_delay
    }

    /// Returns for how long the store keeps the lock without an extension: for the lease, and the lock-delay after it. Every request for a
    /// tenure contains this time. The holder counts only on the [lease](Self::lease).
    pub(crate) fn store_time(&self) -> Duration {
        self.lease() + self.lock_delay
    }

    /// Returns for how long the lock may linger: [`with_linger`](Self::with_linger).
    #[must_use]
    pub fn linger(&self) -> Duration {
        self.linger
    }

    /// Returns the time from one gap for pollers to the next: [`with_poller_gap`](Self::with_poller_gap). `None` means no gaps.
    #[must_use]
    pub fn poller_gap(&self) -> Option<Duration> {
        self.poller_gap
    }

    /// Returns whether a held key is checked every lease/6: [`with_probe`](Self::with_probe).
    #[must_use]
    pub fn probe(&self) -> bool {
        self.probe
    }

    /// Returns what the lock is for: [`with_reason`](Self::with_reason), with characters that cannot be printed escaped, so that
    /// it is one line and safe to log.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Returns the name under which a [`Hold`](crate::Hold) is shown: [`with_holder_name`](Self::with_holder_name), with characters that cannot
    /// be printed escaped.
    #[must_use]
    pub fn holder_name(&self) -> Option<&str> {
        self.holder_name.as_deref()
    }

    /// Checks all settings. Truncates the lease and the time between gaps to whole milliseconds, and rounds the lock-delay up to them. Fails
    /// with [`Error::InvalidConfig`], which names the first setting that cannot be used.
    pub(crate) fn checked(mut self) -> Result<Self, Error> {
        check_name(&self)?;
        let lease = self.lease();
        check_lease(lease)?;
        if let Some(part) = self.renew_at
            && !RENEW_AT_RANGE.contains(&part)
        {
            return Err(Error::invalid_config(
                "renew_at",
                part.to_string(),
                "give a fraction of the lease from 0.1 to 0.85, so that a failed extension can be tried again in time",
            ));
        }
        if self.max_hold.is_some_and(|limit| limit.is_zero()) {
            return Err(Error::invalid_config(
                "max_hold",
                "0ns",
                "give a time greater than zero, or leave it out for no limit",
            ));
        }
        if self.hold_warning.is_some_and(|after| after.is_zero()) {
            return Err(Error::invalid_config(
                "hold_warning",
                "0ns",
                "give a time greater than zero, or leave it out for no warning",
            ));
        }
        if self.lock_delay > LONGEST_LOCK_DELAY {
            let hint = "give a time from zero to 60 s";
            return Err(Error::invalid_config("lock_delay", format!("{:?}", self.lock_delay), hint));
        }
        if let Some(every) = self.poller_gap
            && !(lease..=MAX_LEASE).contains(&every)
        {
            return Err(Error::invalid_config(
                "poller_gap",
                format!("{every:?}"),
                "give a time from the lease to 2147483647 ms (24 days): a gap takes a sixth of the lease",
            ));
        }
        self.lease = Some(whole_milliseconds(lease));
        self.lock_delay = whole_milliseconds(self.lock_delay + Duration::from_nanos(999_999));
        self.poller_gap = self.poller_gap.map(whole_milliseconds);
        Ok(self)
    }
}

/// Returns a text for people on one line. If it is cut, it ends with `…`.
fn note(text: String) -> String {
    let mut text = OneLine(text).to_string();
    if let Some((at, _)) = text.char_indices().nth(LONGEST_NOTE) {
        text.truncate(at);
        text.push('…');
    }
    text
}

#[cfg(test)]
#[path = "../tests/white_box/config.rs"]
mod tests;
