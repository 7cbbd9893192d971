//! What a request to a store says of the tenure that it concerns.

use crate::config::LONGEST_LOCK_DELAY;
use std::time::Duration;

/// One tenure that a client has, or wants to have, of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claim<'a> {
    /// The lock's unique key.
    pub key: &'a str,
    /// The client that the tenure belongs to: whose inbox receives its messages.
    pub client: &'a str,
    /// The locker of the tenure. No two tenures have the same one, whatever their keys. It begins with the client's id and a `-`.
    pub locker: &'a str,
    /// How long the store keeps the key without an extension: the lease, and the [lock-delay](crate::DLockConfig::with_lock_delay) after it.
    /// Every request for one tenure has the same lease, except the release of a
    /// grant that nobody wants, which may have a shorter one.
    pub lease: Duration,
    /// If set, clients that only poll must be given a chance: the release leaves the key free for this gap, even though others wait,
    /// unless the key had one recently. Until the gap is over, nobody is given the key by a request. Only for stores with
    /// [`StoreLimits::poller_gaps`](super::StoreLimits::poller_gaps).
    pub poller_gap: Option<Gap>,
    /// Who asks, and why, for people who look into the store. A store may ignore it.
    pub note: Note<'a>,
}

/// What a store may keep beside a tenure for people to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Note<'a> {
    /// The reason that the program gave, with unprintable characters escaped, so that it is on one line: [`DLockConfig::with_reason`](crate::DLockConfig::with_reason).
    pub why: Option<&'a str>,
    /// The name of the thread that asks, as the program gave it.
    pub thread: Option<&'a str>,
    /// The name of the machine.
    pub host: Option<&'a str>,
}

impl<'a> Claim<'a> {
    /// Creates a claim without a note.
    #[must_use]
    pub const fn new(key: &'a str, client: &'a str, locker: &'a str, lease: Duration) -> Self {
        Self { key, client, locker, lease, poller_gap: None, note: Note { why: None, thread: None, host: None } }
    }

    /// Sets for how long, and how often, the key must be left free for clients that only poll.
    #[must_use]
    pub const fn with_poller_gap(mut self, gap: Option<Gap>) -> Self {
        self.poller_gap = gap;
        self
    }

    /// Sets what the store may keep for people to read.
    #[must_use]
    pub const fn with_note(mut self, note: Note<'a>) -> Self {
        self.note = note;
        self
    }

    /// Returns the [lock-delay](crate::DLockConfig::with_lock_delay), which is a part of [`lease`](Self::lease): the locker says it. For a store
    /// that has a lock-delay of its own. It is zero for a locker that is not of this crate.
    #[must_use]
    pub fn lock_delay(&self) -> Duration {
        marks(self.locker).map_or(Duration::ZERO, |(delay, _)| delay)
    }
}

/// A period in which a released key is free, but not for clients that use the queue. A poller, which only asks now and then
/// whether the key is free, as JVM DLock does, finds it free. Both fields are whole milliseconds, at least one.
///
/// Where waiters hand a key over to one another, the key is never free, and such a poller would starve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// How long the key stays free: a little longer than a poller's pause between two questions, so that one falls into the
    /// gap.
    pub length: Duration,
    /// The time from the beginning of this gap to the earliest beginning of the key's next one, whoever asks for that.
    pub every: Duration,
}

impl Gap {
    /// Creates a gap.
    #[must_use]
    pub const fn new(length: Duration, every: Duration) -> Self {
        Self { length, every }
    }
}

impl<'a> Note<'a> {
    /// Creates a note.
    #[must_use]
    pub const fn new(why: Option<&'a str>, thread: Option<&'a str>, host: Option<&'a str>) -> Self {
        Self { why, thread, host }
    }
}

/// Returns the lock-delay that a locker of this crate says, and whether its tenure may linger. `None` for any other text.
pub(crate) fn marks(locker: &str) -> Option<(Duration, bool)> {
    let (_, end) = locker.rsplit_once('-')?;
    let (end, may_linger) = end.strip_suffix('L').map_or((end, false), |end| (end, true));
    let (count, delay) = end.split_once('D').unwrap_or((end, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let delay = Duration::from_millis(delay.parse().ok().filter(|_| is_number(count) && is_number(delay))?);
    (delay <= LONGEST_LOCK_DELAY).then_some((delay, may_linger))
}
