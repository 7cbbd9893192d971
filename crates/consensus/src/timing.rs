//! Every length of time of this crate, with its reason, and the number of immediate tries.

use std::time::Duration;

/// How often a step is repeated because the key has changed meanwhile, or because a server does not know a session yet. Each time another process has
/// made progress, or the server has applied more of its log.
pub(crate) const TRIES: u32 = 16;

/// How soon the first waiter asks again for a key in its lock-delay. The store does not tell how long that lasts.
pub(crate) const DELAYED: Duration = Duration::from_secs(1);

/// How long an optional request may take, at most: a waiter's message to the holder, or the release of a key before its session ends.
pub(crate) const TELLING: Duration = Duration::from_millis(500);

/// How long each request that moves holds onto a shared session may take, at most. The lease thread waits for these requests, so the client's limit
/// for all of them is nearly always shorter. This limit is for very distant servers.
pub(crate) const MOVING: Duration = PATIENCE;

/// How long the inbox takes to confirm offers to its client, at most. It tells no messages meanwhile. The client polls for offers that are not
/// confirmed. The close of a client waits for the inbox.
pub(crate) const CONFIRMING: Duration = PATIENCE;

/// How long an unconfirmed offer may stand after another waiter has seen it. Waiters ask every sixth of the lease. So while the store answers, a dead
/// waiter keeps the others out for at most half a lease. A living waiter that has missed the message has asked by then, unless its request was lost,
/// too.
pub(crate) fn patience(lease: Duration) -> Duration {
    lease * 3 / 10
}

/// How long after a look the next one comes, at most, for both to count as one wait: a quarter of the lease, which is a poll and a half.
pub(crate) fn between_looks(patience: Duration) -> Duration {
    patience * 5 / 6
}

/// How long the order that broke a hold is kept, at least. The holder asks for it soon after the message, and so does the operator's process if the
/// reply is lost.
pub(crate) const TOLD: Duration = Duration::from_secs(60);

/// How long a session for words lives: as long as the record of a client, so that one session serves both.
pub(crate) const VOICE: Duration = Duration::from_secs(90);

/// How much of that life must be left when the session is used: more than a request takes.
pub(crate) const SAYING: Duration = Duration::from_secs(5);

/// How long a store takes, at most, to end the sessions that nobody uses when it is closed.
pub(crate) const CLOSING: Duration = Duration::from_secs(1);

/// How long a request waits for a server, at most, if there are others to try, so that a renewal reaches a healthy server in time.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1500);

/// How long the look-up of an address may take, and how long a connect. Neither can be interrupted.
pub(crate) const CONNECTING: Duration = Duration::from_secs(2);

/// How long the addresses of a name are used without another look-up. A name that leads to another server is noticed after that time.
pub(crate) const NAMES: Duration = Duration::from_secs(1);

/// How long a request without a limit may take.
pub(crate) const UNLIMITED: Duration = Duration::from_secs(3600);

/// How long a command may take if the caller sets no other limit: a majority of the servers must write it to disk.
pub(crate) const COMMAND: Duration = Duration::from_secs(3);

/// How long an inbox, or its next stream, may take to open: two commands, because a connection is opened and then a request is answered. The close of a
/// client waits for it.
pub(crate) const OPENING: Duration = Duration::from_secs(6);

/// How long the servers may need to elect another leader.
pub(crate) const ELECTION: Duration = Duration::from_secs(3);

/// The longest delay of a release on a store that has leases of any length.
pub(crate) const A_YEAR: Duration = Duration::from_secs(366 * 24 * 3600);

#[cfg(feature = "etcd")]
pub(crate) mod etcd {
    use super::Duration;

    /// The shortest lease that etcd, with its usual election time-out of a second, does not lengthen.
    pub(crate) const SHORTEST: Duration = Duration::from_secs(2);

    /// The unit in which etcd counts leases.
    pub(crate) const TICK: Duration = Duration::from_secs(1);

    /// How long a stream of changes lasts. A connection that has died silently is noticed at its end.
    pub(crate) const LIFE: Duration = Duration::from_secs(20);
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

    /// How long a query waits for a change. A connection that has died silently is noticed at its end.
    pub(crate) const WAIT: Duration = Duration::from_secs(30);

    /// How much later than that an answer may come.
    pub(crate) const LATE: Duration = Duration::from_secs(2);

    /// A query that has no news, and is answered sooner, did not wait: a proxy has answered it, or it was not understood.
    pub(crate) const EARLY: Duration = Duration::from_secs(1);

    /// How long after a complete sweep the next one comes.
    pub(crate) const SWEEPS: Duration = Duration::from_secs(600);

    /// How long a sweep may take. The client reads no message meanwhile.
    pub(crate) const SWEEPING: Duration = Duration::from_secs(1);
}
