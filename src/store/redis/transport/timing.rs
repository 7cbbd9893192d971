//! The times of the transport.

use std::time::Duration;

/// A write after a longer pause than this begins a new epoch. While the pauses are shorter, a server that stops being a master refuses one
/// of the commands. During a longer pause it may have been no master for a while without anybody noticing.
pub(super) const QUIET: Duration = Duration::from_millis(100);

/// How often the reader checks whether it is promoted to writer, which happens when no other caller is there to write.
pub(super) const ROLE_CHECK: Duration = Duration::from_millis(100);

/// A connection that was silent for this long is checked before it is written to: the server may have closed it. So is one when another
/// server has answered another connection.
pub(super) const IDLE: Duration = Duration::from_secs(1);

/// No further connection is tried for so long after an attempt to open one more has failed: one is enough.
pub(super) const NO_MORE: Duration = Duration::from_secs(1);

/// How much time late yields may cost before that is no accident. Of the time between two of them, one part in `FORGIVEN_PART` is
/// forgiven.
pub(super) const MOST_LOST: Duration = Duration::from_millis(16);

/// How late a yield may return: `LATE`, plus `LATER_EACH` for each caller of the connection, because every other connection may have as
/// many. `LATEST` caps it below the 3 ms or so for which a thread that computes keeps the core.
pub(super) const LATE: Duration = Duration::from_micros(1500);
pub(super) const LATER_EACH: Duration = Duration::from_micros(60);
pub(super) const LATEST: Duration = Duration::from_micros(2500);

/// How long nobody yields after that: long compared with the time that was lost.
pub(super) const NO_YIELD: Duration = Duration::from_millis(500);
