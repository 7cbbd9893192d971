//! The times of a Cluster.

use crate::backoff::Backoff;
use std::time::Duration;

/// How long an unused connection to a node is kept. Callers that call at the same time open several connections.
pub(super) const IDLE_CONNECTION: Duration = Duration::from_secs(300);

/// How long a node that owns no slot, and that no call was sent to, keeps its connections.
pub(super) const IDLE_NODE: Duration = Duration::from_secs(30);

/// The pause between two replacements of a node that redirects calls to itself.
pub(super) const RENEWAL: Backoff = Backoff::new(Duration::from_millis(150), Duration::from_millis(150));

/// A node to which no connection could be opened is not tried again for this long.
pub(super) const COOLDOWN: Duration = Duration::from_millis(100);

/// How long a batch waits for nodes that are not known to be silent; longer where connects take longer than half of this, or where replicas
/// confirm calls.
pub(super) const BATCH_PATIENCE: Duration = Duration::from_millis(100);

/// How much longer a batch waits for each of its calls: a server takes some microseconds for a call, and is not the only program of its machine.
pub(super) const EACH_CALL: Duration = Duration::from_micros(50);

/// How long a batch pauses in all.
pub(super) const BATCH_PAUSES: Duration = Duration::from_millis(75);

/// The pauses before the redirections of a call, from the second one on.
pub(super) const DETOUR: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(80)).exact();

/// The pauses before a call that no node could execute is sent again.
pub(super) const AGAIN: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(100)).exact();

/// The pauses between two questions for the map: after a failover, all clients ask at the same time. The pauses grow while the map stays the same.
/// They stay short, because waiters must be heard again within the second for which they keep their places.
pub(super) const MAP_AGAIN: Backoff = Backoff::new(Duration::from_millis(150), Duration::from_millis(300));

/// How old a map becomes before it is asked for without a cause.
pub(super) const OLD_MAP: Duration = Duration::from_secs(60);

/// How long one node may take while there are others, its connect included.
pub(super) const NODE_PATIENCE: Duration = Duration::from_millis(500);

/// How long a refresh may take before a caller that waits for it goes on without it.
pub(super) const MAP_WAIT: Duration = Duration::from_millis(500);

/// How long a message may take that nothing depends on.
pub(super) const PUBLISH_LIMIT: Duration = Duration::from_millis(100);

/// The pause between two questions for a map while a place is cooling down, and how long a place may keep the client waiting before the first
/// question. The slots of the place may have another owner by now.
pub(super) const ASK_FOR_MAP: Duration = Duration::from_millis(150);

/// The pauses before a slot is subscribed again that was refused, and before a place is tried again that took no connection.
pub(super) const SUBSCRIBE_AGAIN: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(1));

/// For how long slots that are lost, or heard again, are gathered into one message.
pub(super) const GATHER: Duration = Duration::from_millis(20);

/// A connection that breaks sooner than this after its opening counts as one that could not be opened.
pub(super) const SHORT_CONNECTION: Duration = Duration::from_secs(1);

/// How often the listening thread looks for slots that no tenure needs.
pub(super) const LOOK_FOR_IDLE: Duration = Duration::from_secs(5);

/// How long a slot is heard after it was needed last.
pub(super) const IDLE_SLOT: Duration = Duration::from_secs(60);

/// How long a slot is needed by a thread that has got ready. The thread joins a queue within this time, and then says for how long it needs the slot.
/// With thousands of threads this takes seconds.
pub(super) const READY: Duration = Duration::from_secs(30);

/// After this long without a byte from the server, the client sends a PING. A half-open connection would stay silent for ever, and waiters at a
/// server that hangs must find its successor soon.
pub(super) const SILENCE: Duration = Duration::from_secs(1);
