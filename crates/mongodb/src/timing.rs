//! Every length of time of this crate, with its reason.

use std::time::Duration;

/// The shortest lease. A lease must outlive a few round trips to a majority.
pub(crate) const SHORTEST: Duration = Duration::from_millis(200);

/// How long a command may take if the caller sets no other limit.
pub(crate) const COMMAND: Duration = Duration::from_secs(5);

/// How long a replica set may need to elect another primary, with its usual `electionTimeoutMillis`.
pub(crate) const ELECTION: Duration = Duration::from_secs(12);

/// How long the driver looks for a primary. It is shorter than a command, so that the error says why there is none.
pub(crate) const SELECTION: Duration = Duration::from_secs(3);

/// How long it may take to connect to a server.
pub(crate) const CONNECTING: Duration = Duration::from_secs(2);

/// How long a server keeps a question for changes open. A client without messages asks this often.
pub(crate) const AWAITING: Duration = Duration::from_secs(1);

/// How much later than that an answer may come. A connection that has died silently is noticed then.
pub(crate) const LATE: Duration = Duration::from_secs(5);

/// How long it is kept by whom a hold was broken, at least: the holder asks soon after it was told.
pub(crate) const TOLD: Duration = Duration::from_secs(60);

/// How long a document stays that nobody uses. The next number is from the clock then, which is ahead of the old one for as long as no server's
/// clock is wrong by a day.
pub(crate) const FORGET: Duration = Duration::from_secs(24 * 3600);

/// How long what a process says about itself stays without a ping, as in the original.
pub(crate) const PINGS: Duration = Duration::from_secs(4 * 24 * 3600);

/// By how much a primary's clock may be behind that of the one before without a warning.
pub(crate) const SKEW: Duration = Duration::from_secs(1);

/// The longest time for which a key is kept from everybody after a hold: a year.
pub(crate) const LONGEST_DELAY: Duration = Duration::from_secs(366 * 24 * 3600);
