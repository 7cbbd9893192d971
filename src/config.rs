//! Settings of one lock.

use crate::error::Error;
use crate::one_line::OneLine;
use std::sync::Arc;
use std::time::Duration;

/// The lease of a lock for which none was set, neither by its config nor by its generator: thirty seconds, as long as Redisson's watchdog gives.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// The shortest lease. Below it, the safety margin of the deadline (2 ms) leaves hardly time to extend it.
pub const MIN_LEASE: Duration = Duration::from_millis(20);

/// The longest lease: 2,147,483,647 ms (24 days), the JVM DLock's `int` of milliseconds.
pub const MAX_LEASE: Duration = Duration::from_millis(i32::MAX as u64);

/// What the keys of all locks begin with.
const PREFIX: &str = "DLOCK_";

const DEFAULT_RENEW_AT: f64 = 0.75;
const DEFAULT_LOCAL_PASSES: u32 = 16;
const RENEW_AT_RANGE: std::ops::RangeInclusive<f64> = 0.1..=0.85;

/// Settings of one lock: its name, its lease, and how the lease is kept. JVM: `DLockConfig`.
///
/// Making one cannot fail; [`DLockGenerator::generate_with`](crate::DLockGenerator::generate_with) checks it.
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
    /// How many bytes of the key, after its prefix, are the lock type.
    type_length: usize,
    /// Shared with the key of that name: a program may hold very many.
    unique_key: Arc<str>,
    /// `None`: the generator's for this type.
    lease: Option<Duration>,
    renew_at: f64,
    probe: bool,
    local_passes: u32,
    linger: Duration,
    max_hold: Option<Duration>,
    poller_gap: Option<Duration>,
    reason: Option<String>,
}

impl DLockConfig {
    /// Settings for the lock of `lock_target` among those of `lock_type`, all others at their defaults.
    ///
    /// The type groups targets of one kind (`ORDER`, `USER`) and is taken as it is; it must not be empty. From the target,
    /// leading and trailing characters up to U+0020 are stripped (what Java's `String.trim` strips, so both sides
    /// name the same key); it may be empty.
    pub fn new(lock_type: impl Into<String>, lock_target: impl AsRef<str>) -> Self {
        let lock_type = lock_type.into();
        let target = lock_target.as_ref().trim_matches(|c| c <= '\u{20}');
        Self {
            unique_key: format!("{PREFIX}{lock_type}_{target}").into(),
            type_length: lock_type.len(),
            lease: None,
            renew_at: DEFAULT_RENEW_AT,
            probe: true,
            local_passes: DEFAULT_LOCAL_PASSES,
            linger: Duration::ZERO,
            max_hold: None,
            poller_gap: None,
            reason: None,
        }
    }

    /// Sets how long Redis keeps the lock without an extension: what others wait when this process dies.
    ///
    /// From 20 ms to 24 days, in whole milliseconds; fractions are truncated. Without it, the lock has the lease that its generator has for the
    /// type ([`lease_of`](crate::DLockGenerator::lease_of)): that in the properties file, else the default lease, 30 s unless
    /// [set](crate::GeneratorBuilder::default_lease). A live holder's lease is extended for as long as it holds.
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets at which part of the lease it is extended, 0.1 to 0.85. Defaults to 0.75, as in JVM DLock.
    pub fn with_renew_at(mut self, part: f64) -> Self {
        self.renew_at = part;
        self
    }

    /// Sets whether a held key is looked at every lease/6, so that its deletion, overwriting or loss in a failover is
    /// noticed before the next extension. Defaults to `true`.
    pub fn with_probe(mut self, probe: bool) -> Self {
        self.probe = probe;
        self
    }

    /// Sets how many more times threads of this process may pass the lock on among themselves once it is known that
    /// other processes wait. Defaults to 16; more gives throughput, fewer gives the others shorter waits.
    ///
    /// While nobody else waits they pass it on without end, and without the store. When others wait, it goes to them after 10 ms of
    /// passing in any case. Not with [`GeneratorBuilder::listener`](crate::GeneratorBuilder::listener) off: then the lock is given
    /// back after every hold.
    pub fn with_local_passes(mut self, passes: u32) -> Self {
        self.local_passes = passes;
        self
    }

    /// Sets for how long this process keeps the lock after its last hold, in case a thread of it wants it again: that
    /// thread then gets it without the store. Defaults to zero: the lock is given back at once.
    ///
    /// For work that comes in bursts to the same process (lock caching with revocation, as distributed file systems have it).
    /// Whoever waits for the lock elsewhere ends the lingering at once, by a message; so does [`try_lock`](crate::DistributedReentrantLock::try_lock)
    /// there, which waits for that up to 5 ms, or five round trips if they take longer.
    ///
    /// The price: meanwhile the lock counts as [locked](crate::DistributedReentrantLock::is_locked); if the process dies, the others
    /// wait for the rest of its lease although nobody was inside; and JVM processes, which can only ask, may starve beside a
    /// process that takes it again and again. The lease is renewed while it lingers, and [`close`](crate::DLockGenerator::close) gives the lock back.
    /// Lingering needs the [listener](crate::GeneratorBuilder::listener); while its subscription is broken, nothing lingers.
    pub fn with_linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Sets for how long one thread may hold the lock, reentries included. Defaults to without end.
    ///
    /// When that time is over, the holder is told as of a lost lease, with the cause [`HeldTooLong`](crate::LossCause::HeldTooLong), and the lease is
    /// extended no more. The store still keeps the key for what is left of the lease (a quarter with the default
    /// [`with_renew_at`](Self::with_renew_at), less after extensions that failed): so long the holder has to stop before anybody else is inside.
    ///
    /// As all settings of a tenure it is that of the handle that asked the store for the lock, also for threads to which the
    /// hold is passed on in this process.
    pub fn with_max_hold(mut self, limit: Duration) -> Self {
        self.max_hold = Some(limit);
        self
    }

    /// Lets processes that only poll, such as those of JVM DLock, in between those that hand the lock over: at most this
    /// often, for all processes together, a release leaves the lock free for a sixth of its lease, the time after which a
    /// poller asks again, and nobody of ours takes it meanwhile. Defaults to never; then pollers may starve.
    ///
    /// From the lease to 24 days, in whole milliseconds (a rest is dropped). In a gap that no poller uses nobody is inside, and
    /// `try_lock` finds the lock taken: with a gap after every lease, that is up to a sixth of the time. Pollers are expected to
    /// have the same lease as this lock. Give it to all processes; what the last gap was made with counts. The server keeps
    /// a small key for each lock name that had a gap, for as long.
    pub fn with_poller_gap(mut self, every: Duration) -> Self {
        self.poller_gap = Some(every);
        self
    }

    /// Says what the lock is for; the log's lines about it say so too. Never leaves the process. Defaults to nothing.
    pub fn with_reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// The lock's key in Redis: `DLOCK_{lock_type}_{lock_target}`.
    #[must_use]
    pub fn unique_key(&self) -> &str {
        &self.unique_key
    }

    /// The lease that [`with_lease`](Self::with_lease) or [`DLockGenerator::config`](crate::DLockGenerator::config) has set, else
    /// [`DEFAULT_LEASE`]. A config without a lease gets that of its generator when the lock is made.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease.unwrap_or(DEFAULT_LEASE)
    }

    pub(crate) fn has_lease(&self) -> bool {
        self.lease.is_some()
    }

    /// The lock's type.
    #[must_use]
    pub fn lock_type(&self) -> &str {
        &self.unique_key[PREFIX.len()..][..self.type_length]
    }

    /// The lock's target, without the white space around it.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.unique_key[PREFIX.len() + self.type_length + 1..]
    }

    pub(crate) fn renew_after(&self) -> Duration {
        self.lease().mul_f64(self.renew_at)
    }

    pub(crate) fn local_passes(&self) -> u32 {
        self.local_passes
    }

    pub(crate) fn max_hold(&self) -> Option<Duration> {
        self.max_hold
    }

    pub(crate) fn linger(&self) -> Duration {
        self.linger
    }

    /// How much time passes between two gaps, in whole milliseconds once checked; `None` for no gaps.
    pub(crate) fn poller_gap(&self) -> Option<Duration> {
        self.poller_gap
    }

    pub(crate) fn probe(&self) -> bool {
        self.probe
    }

    /// The reason, fit for the log whatever the caller put into it.
    pub(crate) fn reason(&self) -> Option<OneLine<&str>> {
        self.reason.as_deref().map(OneLine)
    }

    /// The lock's key, to be shared.
    pub(crate) fn shared_key(&self) -> &Arc<str> {
        &self.unique_key
    }

    /// Checks all settings and drops the lease's part of a millisecond.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] naming the first setting that cannot be used.
    pub(crate) fn checked(mut self) -> Result<Self, Error> {
        check_type(self.lock_type())?;
        let lease = self.lease();
        check_lease(lease)?;
        if !RENEW_AT_RANGE.contains(&self.renew_at) {
            return Err(Error::invalid_config(
                "renew_at",
                self.renew_at.to_string(),
                "give a part of the lease from 0.1 to 0.85, so that a failed extension can be tried again in time",
            ));
        }
        if self.max_hold.is_some_and(|limit| limit.is_zero()) {
            return Err(Error::invalid_config(
                "max_hold",
                "0ns",
                "give a time greater than zero, or leave it out for no limit",
            ));
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
        self.poller_gap = self.poller_gap.map(whole_milliseconds);
        Ok(self)
    }
}

fn whole_milliseconds(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Checks a lock type.
///
/// # Errors
///
/// [`Error::InvalidConfig`] when it is empty.
pub(crate) fn check_type(lock_type: &str) -> Result<(), Error> {
    if lock_type.is_empty() {
        return Err(Error::invalid_config("lock type", "", "give it at least one character"));
    }
    Ok(())
}

/// Checks a lease.
///
/// # Errors
///
/// [`Error::InvalidConfig`] when it is shorter or longer than a lease may be.
pub(crate) fn check_lease(lease: Duration) -> Result<(), Error> {
    if (MIN_LEASE..=MAX_LEASE).contains(&lease) {
        Ok(())
    } else {
        Err(Error::invalid_config("lease", format!("{lease:?}"), "give a lease from 20 ms to 2147483647 ms (24 days)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unique_keys_follow_the_jvm() {
        let key = |t, target| DLockConfig::new(t, target).unique_key().to_owned();
        assert_eq!(key("USER", "7"), "DLOCK_USER_7");
        assert_eq!(key("USER", "\u{1}\t 7\r\n"), "DLOCK_USER_7");
        assert_eq!(key(" USER ", ""), "DLOCK_ USER _");
        assert_eq!(key("USER", "\u{3000}7\u{a0}"), "DLOCK_USER_\u{3000}7\u{a0}");
    }

    #[test]
    fn bad_settings_are_named_with_their_value() {
        let message = |config: DLockConfig| config.checked().expect_err("must be refused").to_string();
        let ok = || DLockConfig::new("T", "x");
        assert!(message(DLockConfig::new("", "x")).contains("lock type"));
        for (lease, text) in [
            (Duration::ZERO, "0ns"),
            (Duration::from_micros(19_999), "19.999ms"),
            (Duration::MAX, "18446744073709551615"),
        ] {
            let message = message(ok().with_lease(lease));
            assert!(message.contains("lease") && message.contains(text), "{message}");
        }
        assert!(message(ok().with_max_hold(Duration::ZERO)).contains("max_hold"));
        for part in [f64::NAN, -1.0, 0.0, 1.0, f64::INFINITY] {
            let message = message(ok().with_renew_at(part));
            assert!(message.contains("renew_at") && message.contains(&part.to_string()), "{message}");
        }
    }

    #[test]
    fn gaps_for_pollers_are_no_more_frequent_than_leases() {
        let config =
            |every| DLockConfig::new("T", "x").with_lease(Duration::from_secs(5)).with_poller_gap(every).checked();
        for (every, text) in [
            (Duration::ZERO, "0ns"),
            (Duration::from_micros(4_999_999), "4.999999s"),
            (MAX_LEASE + Duration::from_millis(1), "2147483.648s"),
        ] {
            let message = config(every).expect_err("must be refused").to_string();
            assert!(message.contains("poller_gap") && message.contains(text), "{message}");
        }
        let kept = |every| config(every).expect("valid").poller_gap();
        assert_eq!(kept(Duration::from_micros(5_000_999)), Some(Duration::from_secs(5)));
        assert_eq!(kept(MAX_LEASE), Some(MAX_LEASE));
        assert_eq!(DLockConfig::new("T", "x").checked().expect("valid").poller_gap(), None);
    }

    #[test]
    fn leases_are_whole_milliseconds() {
        let config = DLockConfig::new("T", "x").with_lease(Duration::from_micros(20_999)).checked().expect("valid");
        assert_eq!(config.lease(), Duration::from_millis(20));
    }

    #[test]
    fn a_config_knows_its_type_and_whether_it_has_a_lease() {
        for lock_type in ["ORDER", "", "_", "é_\u{1}"] {
            let config = DLockConfig::new(lock_type, "_7");
            assert_eq!((config.lock_type(), config.has_lease(), config.lease()), (lock_type, false, DEFAULT_LEASE));
            assert!(config.with_lease(DEFAULT_LEASE).has_lease());
        }
    }
}
