//! The limits of a store.

use crate::config::{MAX_LEASE, MIN_LEASE};
use crate::error::Error;
use crate::timing::LONGEST_TIMEOUT;
use std::time::Duration;

/// The limits of a store: [`LockProcessor::limits`](super::LockProcessor::limits). They do not change during its life, except `outage`.
///
/// Begin with [`StoreLimits::default`] and set what differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreLimits {
    /// The shortest lease that the store keeps. A lock with a shorter one is refused. The default is 20 ms.
    pub shortest_lease: Duration,
    /// The longest lease that the store keeps. A lock with a longer one is refused. The default is 24 days.
    pub longest_lease: Duration,
    /// The unit in which the store counts. Leases are truncated to whole units, and a key may stay for one unit longer than
    /// [`Busy::remaining`](super::Busy::remaining) says. The default is 1 ms.
    pub tick: Duration,
    /// How long a single command may take if the caller sets no other limit. More than a day counts as a day. The default is one second.
    pub command: Duration,
    /// The longest outage that the store survives with its locks: the time that it may need to elect another leader, for example. If a lock
    /// does not set when its lease is extended, the lease is extended early enough for the rest to outlive this. If the lease is too short
    /// for that, the log has a warning. More than a day counts as a day. The default is zero.
    pub outage: Duration,
    /// How many leases a key stays taken, at most, after its holder died, if no other server begins to lead in that time. This is for people:
    /// the client does not use it. The default is 1.
    pub dead_holder_leases: u32,
    /// When the store passes over a waiter whose process died. The default is [`DeadWaiters::AtOnce`].
    pub dead_waiters: DeadWaiters,
    /// How long a waiter that the store has passed over as dead keeps its place. If its client opens an inbox within this time, the waiter is
    /// served in its order, so a client that loses its connection for a moment keeps its places. Later hand-overs drop the waiter. The default
    /// is zero: a waiter is dropped when it is passed over.
    pub keeps_unheard: Duration,
    /// Whether the client extends a lease that it knows only from a message ([`Message::Granted`](super::Message::Granted)) before it lets a
    /// thread begin its hold. This is for a store whose replicas confirm an extension, but not a message: Redis with
    /// `RedisBuilder::replica_acks`. The default is `false`.
    pub extends_heard_grants: bool,
    /// Whether the store knows [`Busy::remaining`](super::Busy::remaining). The default is `true`.
    pub remaining_known: bool,
    /// Whether the store can leave a key free for clients that only poll: [`Claim::poller_gap`](super::Claim::poller_gap). The default is
    /// `false`.
    pub poller_gaps: bool,
    /// Whether the store can issue ranges of numbers: [`Request::ExtendWithNumbers`](super::Request::ExtendWithNumbers). The default is
    /// `false`: a tenure is given back after 1,024 holds.
    pub numbers: bool,
    /// Whether the store can certainly end a locker whose last request had no reply: [`Request::Settle`](super::Request::Settle). The
    /// default is `false`: the client repeats the release of such a locker for a lease, because the lost request may still be executed.
    pub settles: bool,
    /// Whether the store can take a key from its holder by force: [`Request::Break`](super::Request::Break) and
    /// [`Request::Broken`](super::Request::Broken). The default is `false`:
    /// [`DLockGenerator::break_lock`](crate::DLockGenerator::break_lock) fails as unsupported.
    pub breaks: bool,
    /// Whether extensions and probes of many tenures cost the store little more than those of one if the client sends them together. The client
    /// then asks about all tenures with the same lease at the same moments, up to a sixth of the lease earlier than each would need. The default
    /// is `false`.
    pub asks_together: bool,
    /// For how long the store can keep a key from everybody after a hold has ended: [`Request::DelayRelease`](super::Request::DelayRelease).
    /// The default is zero: the store cannot. [`DLockGuard::unlock_after`](crate::DLockGuard::unlock_after) then fails as unsupported.
    pub longest_release_delay: Duration,
    /// The shortest time for which the store keeps a key after a hold, even if a shorter one is asked for. This is for people: the client does
    /// not use it. The default is zero.
    pub shortest_release_delay: Duration,
}

impl StoreLimits {
    /// Returns these limits with times that can be added to every moment.
    pub(crate) fn in_range(self) -> Self {
        Self { command: self.command.min(LONGEST_TIMEOUT), outage: self.outage.min(LONGEST_TIMEOUT), ..self }
    }

    /// Checks the time of [`DLockGuard::unlock_after`](crate::DLockGuard::unlock_after).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the store cannot delay a release; [`Error::InvalidConfig`] if the time is longer than
    /// [`longest_release_delay`](Self::longest_release_delay).
    pub fn check_release_delay(&self, at_least: Duration) -> Result<(), Error> {
        let longest = self.longest_release_delay;
        if longest.is_zero() {
            return Err(Error::unsupported("the store cannot keep a lock from others after its hold has ended"));
        }
        if at_least > longest {
            let hint = format!(
                "the store keeps a lock from others for at most {longest:?} after the end of a hold: give less"
            );
            return Err(Error::invalid_config("time for which a lock is kept", format!("{at_least:?}"), hint));
        }
        Ok(())
    }
}

/// When a store passes over a waiter whose process died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadWaiters {
    /// When the waiter's turn comes, without a delay.
    AtOnce,
    /// At most this many of the waiter's leases after its death. Until then the store may give it the key.
    AfterLeases(u32),
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            shortest_lease: MIN_LEASE,
            longest_lease: MAX_LEASE,
            tick: Duration::from_millis(1),
            command: Duration::from_secs(1),
            outage: Duration::ZERO,
            dead_holder_leases: 1,
            dead_waiters: DeadWaiters::AtOnce,
            keeps_unheard: Duration::ZERO,
            extends_heard_grants: false,
            remaining_known: true,
            poller_gaps: false,
            numbers: false,
            settles: false,
            breaks: false,
            asks_together: false,
            longest_release_delay: Duration::ZERO,
            shortest_release_delay: Duration::ZERO,
        }
    }
}
