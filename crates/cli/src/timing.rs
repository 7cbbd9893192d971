//! Every length of time of the command, with its reason.

use std::ops::RangeInclusive;
use std::time::Duration;

/// How long the command's group has to end, if nothing else is wanted.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// How long replicas have to acknowledge, if nothing else is set: the library's advice for a reply within a second.
pub(crate) const ACKNOWLEDGED_WITHIN: Duration = Duration::from_millis(100);

/// The pauses between two attempts to connect to a server that is away.
pub(crate) const CONNECT_PAUSES: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(1);

/// How long etcd and Consul have to answer the first question.
#[cfg(any(feature = "consul", feature = "etcd"))]
pub(crate) const ANSWERS_WITHIN: Duration = Duration::from_secs(3);

/// A client that is younger has not written its record.
pub(crate) const RECORDED: Duration = Duration::from_millis(50);

/// How often to look for processes that end without a word: children of a process that has left the group.
pub(crate) const LOOK: Duration = Duration::from_millis(5);

/// The same, while the command has ended and its daemons are waited for.
pub(crate) const IDLE_LOOK: Duration = Duration::from_millis(100);

/// How long after SIGKILL dead processes are waited for that belong to a parent that does not look at them.
pub(crate) const UNSEEN: Duration = Duration::from_secs(1);

/// How near the end of a lease and that of `--max-hold` are if the lease ends for the latter.
pub(crate) const MAX_HOLD_NEAR: Duration = Duration::from_millis(100);

/// In place of a time that no clock reaches.
pub(crate) const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// How often the guard looks whether the group is gone.
pub(crate) const GUARD_LOOK: Duration = Duration::from_millis(10);

/// How long the guard looks after SIGKILL.
pub(crate) const GUARD_LOOKS_FOR: Duration = Duration::from_secs(10);

/// A clock that differs by more is worth a notice.
pub(crate) const CLOCK_FAR: Duration = Duration::from_secs(1);

/// A round trip that takes longer is worth a notice.
pub(crate) const ROUND_TRIP_LONG: Duration = Duration::from_millis(100);
