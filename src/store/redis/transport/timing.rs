//! The times of the transport.

use std::time::Duration;

/// A write after a longer pause than this begins a new epoch. While the pauses are shorter, a server that stops being a master refuses one
/// of the commands, so the client learns of it. During a longer pause the server may stop being a master and become one again, and the
/// client learns nothing.
pub(super) const QUIET: Duration = Duration::from_millis(100);

/// How often the reader checks whether it was promoted to writer. That happens only when no other caller can write.
pub(super) const ROLE_CHECK: Duration = Duration::from_millis(100);

/// A connection that was silent for this long is checked before it is written to, because the server may have closed it. A connection is
/// also checked when another server than before has answered on another connection.
pub(super) const IDLE: Duration = Duration::from_secs(1);

/// How long no further connection is tried after an attempt to open one has failed. Callers then share the connections that are open.
pub(super) const NO_MORE: Duration = Duration::from_secs(1);

/// How long a caller that is alone polls for its answer before it sleeps, unless the program has set another bound. A server on the
/// same machine answers within 25 µs, and 40 µs later to a caller that sleeps. Polling for longer than this costs more processor time than
/// the wake-up that it saves.
pub(super) const POLLS_FOR: Duration = Duration::from_micros(100);

/// How much time late yields may cost before no caller yields for a while: if a caller is alone, and if several share the connection. Several
/// gain more by yielding. The time between two late yields, divided by one of the `FORGIVEN_PARTS`, is subtracted from the cost.
pub(super) const MOST_LOST: [Duration; 2] = [Duration::from_millis(16), Duration::from_millis(48)];

/// How long a yield may take before it counts as late: `LATE`, plus `LATER_EACH` for each caller of the connection, because every other
/// connection may have as many callers. `LATEST` is the upper limit. It lies below the 3 ms or so for which a thread that computes keeps
/// the core.
pub(super) const LATE: Duration = Duration::from_micros(1500);
pub(super) const LATER_EACH: Duration = Duration::from_micros(60);
pub(super) const LATEST: Duration = Duration::from_micros(2500);

/// How long no caller yields after late yields have cost `MOST_LOST`. This is long compared with the time that was lost.
pub(super) const NO_YIELD: Duration = Duration::from_millis(500);
