//! All durations of the command, with their reasons.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// How long the command's process group has to end, by default.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// How long replicas have to acknowledge, by default. The library advises this time if a reply may take a second.
pub(crate) const ACKNOWLEDGED_WITHIN: Duration = Duration::from_millis(100);

/// The pauses between two attempts to connect to a server that is away.
pub(crate) const CONNECT_PAUSES: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(1);

/// How long a store other than Redis has to answer the first question.
pub(crate) const ANSWERS_WITHIN: Duration = Duration::from_secs(3);

/// How often a `dlock run --once-every` that waits looks whether the command has been run meanwhile.
pub(crate) const DONE_LOOK: Duration = Duration::from_secs(1);

/// A client that is younger than this has not written its record yet.
pub(crate) const RECORDED: Duration = Duration::from_millis(50);

/// How often to look for processes whose end is not reported: children of a process that has left the group.
pub(crate) const LOOK: Duration = Duration::from_millis(5);

/// How often to look for them while the command has ended and its daemons still run.
pub(crate) const IDLE_LOOK: Duration = Duration::from_millis(100);

/// How long to wait, after SIGKILL, for dead processes whose parent does not reap them.
pub(crate) const UNSEEN: Duration = Duration::from_secs(1);

/// If a lease ends within this time of the end of `--max-hold`, it has ended because of `--max-hold`.
pub(crate) const MAX_HOLD_NEAR: Duration = Duration::from_millis(100);

/// How long a scraper of `dlock exporter` has to send its request, and how long it has to take the answer.
pub(crate) const SCRAPER_WITHIN: Duration = Duration::from_secs(5);

/// How long a store has to tell `dlock exporter` of its locks: half of what Prometheus waits for a page.
pub(crate) const LISTED_WITHIN: Duration = Duration::from_secs(5);

/// How long the store has to tell who waits for the locks.
pub(crate) const WAITING_WITHIN: Duration = Duration::from_secs(2);

/// The pause after the operating system has refused a connection.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long the holder of a lock has to answer, once `dlock run` waits no longer. The store alone answers sooner. The library gives a holder up after
/// a second.
pub(crate) const HOLDER_TELLS_WITHIN: Duration = Duration::from_millis(1500);

/// How long `dlock run` tries to end its client if the store does not answer.
pub(crate) const CLOSES_WITHIN: Duration = Duration::from_secs(1);

/// How long a `dlock run` without a command waits for the store after a signal.
pub(crate) const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// How long `dlock run` waits for the release after the command: at least this time, and at most if the command has got a signal. Docker kills ten
/// seconds after its signal.
pub(crate) const RELEASES_WITHIN: Duration = Duration::from_secs(2);

/// The pauses between two looks of `dlock wait`.
pub(crate) const FREE_LOOKS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_millis(500);

/// If a look of `dlock wait` takes longer than this, the server does not answer. `dlock wait` also asks the holder this long before the end of
/// `--timeout`.
pub(crate) const LOOK_LATE: Duration = Duration::from_secs(1);

/// How long the end of `dlock run` waits for its last messages, if nobody reads them.
pub(crate) const LOGGED_WITHIN: Duration = Duration::from_millis(500);

/// How long `dlock run --verbose` waits before it names the holder.
pub(crate) const WAIT_TOLD: Duration = Duration::from_secs(1);

/// How often it names the holder again.
pub(crate) const WAIT_TOLD_AGAIN: Duration = Duration::from_secs(30);

/// Stands for a time that the clock cannot represent.
pub(crate) const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The moment after this time. A time that the clock cannot represent counts as no limit.
pub(crate) fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or_else(|| now + A_YEAR)
}

/// How often the guard checks whether the process group is gone.
pub(crate) const GUARD_LOOK: Duration = Duration::from_millis(10);

/// How long the guard goes on checking after SIGKILL.
pub(crate) const GUARD_LOOKS_FOR: Duration = Duration::from_secs(10);

/// `dlock doctor` reports a clock that differs by more than this.
pub(crate) const CLOCK_FAR: Duration = Duration::from_secs(1);

/// The pause before each measured write, so that a disk that is slow now and then is noticed.
pub(crate) const BETWEEN_WRITES: Duration = Duration::from_millis(50);

/// The lease of the lock that the doctor takes: it ends by itself if the examination is interrupted.
pub(crate) const EXAMINED_FOR: Duration = Duration::from_secs(10);

/// `dlock doctor` reports servers of Consul that wait longer than this for their leader. Renewals allow for an outage of two and a half times that.
pub(crate) const ELECTION_SHORT: Duration = Duration::from_secs(1);

/// `dlock doctor` reports a round trip that takes longer than this.
pub(crate) const ROUND_TRIP_LONG: Duration = Duration::from_millis(100);
