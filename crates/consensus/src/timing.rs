//! Every length of time of this crate, with its reason, and how often what fails is tried at once.

use std::time::Duration;

/// How often a key that changes under our hands is looked at again, and how often a server is asked that does not know a session yet. Each time
/// another process has got on, or a server has applied more of its log.
pub(crate) const TRIES: u32 = 16;

/// How soon the first waiter asks again for a key in its lock-delay. The store does not tell how long that lasts.
pub(crate) const DELAYED: Duration = Duration::from_secs(1);

/// How long a request may take, at most, on which nobody depends: a waiter's message to the holder, or letting go of a key before the session
/// ends.
pub(crate) const TELLING: Duration = Duration::from_millis(500);

/// How long each of the requests may take, at most, by which holds come to share a session. The lease thread waits for them, so the client's limit for
/// all of them is nearly always shorter; this one is for servers so far away that it is not.
pub(crate) const MOVING: Duration = PATIENCE;

/// How long the inbox takes to confirm what its client is offered, at most. It tells nothing meanwhile, and what it has not confirmed is polled for.
/// The close of a client waits for it.
pub(crate) const CONFIRMING: Duration = PATIENCE;

/// For how long an offer may stand that its waiter does not confirm, from when another waiter has seen it. Waiters ask every sixth of the lease, so
/// a dead one keeps the others out for half a lease at most while the store answers, and a live one that has missed the message has asked for itself by
/// then, unless a request of its own was lost, too.
pub(crate) fn patience(lease: Duration) -> Duration {
    lease * 3 / 10
}

/// How long after a look the next one comes, at most, for both to count as one wait: a quarter of the lease, which is a poll and a half.
pub(crate) fn between_looks(patience: Duration) -> Duration {
    patience * 5 / 6
}

/// How long it is kept by whom a hold was broken, at least: the holder asks soon after it was told, and whoever gave the order if the reply is
/// lost.
pub(crate) const TOLD: Duration = Duration::from_secs(60);

/// How long a session lives that says something to others: as long as the record of a client, so that one session does both.
pub(crate) const VOICE: Duration = Duration::from_secs(90);

/// How much of its life is left at least when it says something: more than a request takes.
pub(crate) const SAYING: Duration = Duration::from_secs(5);

/// How long a store takes, at most, to end the sessions that nobody uses when it is closed.
pub(crate) const CLOSING: Duration = Duration::from_secs(1);

/// How long a request waits for a server, at most, if there are others to try. A renewal reaches a healthy server in time then.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1500);

/// How long it may take to find an address, and how long to connect to it. Nobody can interrupt either.
pub(crate) const CONNECTING: Duration = Duration::from_secs(2);

/// How long the address that a name led to is used without another look-up. A name that leads to another server is noticed after that.
pub(crate) const NAMES: Duration = Duration::from_secs(1);

/// How long a request without a limit may take.
pub(crate) const UNLIMITED: Duration = Duration::from_secs(3600);

/// How long a command may take if the caller sets no other limit: a disk of a majority writes it.
pub(crate) const COMMAND: Duration = Duration::from_secs(3);

/// How long the servers may need to elect another leader.
pub(crate) const ELECTION: Duration = Duration::from_secs(3);

/// The longest delay of a release that a store with leases of any length takes.
pub(crate) const A_YEAR: Duration = Duration::from_secs(366 * 24 * 3600);

#[cfg(feature = "etcd")]
pub(crate) mod etcd {
    use super::Duration;

    /// The shortest lease of which etcd, with its usual election time-out of a second, does not make a longer one.
    pub(crate) const SHORTEST: Duration = Duration::from_secs(2);

    /// The unit in which etcd counts leases.
    pub(crate) const TICK: Duration = Duration::from_secs(1);

    /// How long a stream of changes lasts. A connection that has died silently is noticed then.
    pub(crate) const LIFE: Duration = Duration::from_secs(20);

    /// How long it may take to open the next stream.
    pub(crate) const OPENING: Duration = Duration::from_secs(3);
}

#[cfg(feature = "consul")]
pub(crate) mod consul {
    use super::Duration;

    /// The shortest time to live of a session that Consul accepts by default: its setting `session_ttl_min`.
    pub(crate) const SHORTEST: Duration = Duration::from_secs(10);

    /// The longest time to live of a session.
    pub(crate) const LONGEST_LIFE: Duration = Duration::from_secs(24 * 3600);

    /// The longest lease: a session lives a quarter longer than the lease.
    pub(crate) const LONGEST: Duration = Duration::from_secs(LONGEST_LIFE.as_secs() * 4 / 5);

    /// The longest lock-delay that Consul takes.
    pub(crate) const LONGEST_LOCK_DELAY: Duration = Duration::from_secs(60);

    /// How long a query waits for a change. A connection that has died silently is noticed then.
    pub(crate) const WAIT: Duration = Duration::from_secs(30);

    /// How much longer than that an answer may take.
    pub(crate) const LATE: Duration = Duration::from_secs(2);

    /// How long after a sweep that left nothing the next one comes.
    pub(crate) const SWEEPS: Duration = Duration::from_secs(600);

    /// How long a sweep may take. The client reads no message meanwhile.
    pub(crate) const SWEEPING: Duration = Duration::from_secs(1);
}
