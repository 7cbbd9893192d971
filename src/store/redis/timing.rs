//! The times of the store.

use std::time::Duration;

/// After this long without a byte from the server the inbox sends a PING: a half-open connection would stay silent for ever.
pub(super) const SILENCE: Duration = Duration::from_secs(5);

/// How long a Cluster may be without a master of a slot, unless something else is set: its default node time-out, and the election.
pub(super) const CLUSTER_OUTAGE: Duration = Duration::from_secs(20);

/// The shortest and the longest time for which a caller can be told to poll. After a longer wait, the time of a wake-up does not matter.
pub(super) const SHORTEST_POLLING: Duration = Duration::from_micros(1);
pub(super) const LONGEST_POLLING: Duration = Duration::from_millis(10);
