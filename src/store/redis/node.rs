//! One server: calls of scripts on its connections.

use crate::error::Error;
use crate::store::redis::net::classify::is_redirection;
use crate::store::redis::net::identity::Servers;
use crate::store::redis::net::resp::Packed;
use crate::store::redis::script::acks::ReplicaAcks;
use crate::store::redis::script::reply::mismatch;
use crate::store::redis::script::scripts::{Call, Form};
use crate::store::redis::transport::{
    AtLimit, Begun, Callback, Confirming, KeyHash, PostTime, Replies, Reply, Transport, WaitOrder,
};
use crate::sync::now;
use ::redis::Value;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub(crate) struct Node {
    pub(crate) transport: Transport,
    /// The form in which the node gets scripts.
    form: Form,
    /// Whether a batch, or a question about the Cluster, had no answer at all, and nothing was answered since.
    // ORDERING: Relaxed: a hint by which batches are put together.
    is_silent: AtomicBool,
    /// How many replicas must acknowledge, if any must.
    pub(crate) acks: Option<ReplicaAcks>,
    /// The number of the server, plus one, if enough of its replicas have acknowledged the last call. Zero if too few have.
    // ORDERING: Relaxed: a hint, as `is_silent`.
    acknowledged: AtomicU64,
}

/// How calls are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallOptions {
    pub(crate) limit: Duration,
    /// How much longer a call may take that is sent again with the script's text: its caller may wait for other servers first.
    pub(crate) spare: Duration,
    /// What becomes of a connection from which an answer does not come within the limit.
    pub(crate) at_limit: AtLimit,
    /// Whether the calls go on the connection for urgent calls: they need no order among others for their keys.
    pub(crate) urgent: bool,
}

impl CallOptions {
    /// Calls that a caller waits for.
    pub(crate) fn within(limit: Duration) -> Self {
        Self { limit, spare: Duration::ZERO, at_limit: AtLimit::KeepConnection, urgent: false }
    }
}

/// Calls that were sent, and whose replies are to be waited for.
pub(crate) struct Sent {
    begun: Begun,
    /// For each call, whether an `ASKING` goes before it.
    asking: SmallVec<[bool; 8]>,
}

impl Node {
    pub(crate) fn new(transport: Transport, form: Form, acks: Option<ReplicaAcks>) -> Self {
        Self { transport, form, is_silent: AtomicBool::new(false), acks, acknowledged: AtomicU64::new(0) }
    }

    /// Returns `true` if a batch, or a question about the Cluster, had no answer at all, and nothing was answered since.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed) // ORDERING: Relaxed: a hint.
    }

    /// Notes that a batch, or a question about the Cluster, was not answered at all.
    pub(crate) fn note_silence(&self) {
        self.is_silent.store(true, Ordering::Relaxed); // ORDERING: Relaxed: a hint.
    }

    /// Returns `true` if a common batch should not wait for this node: it is silent, or its replicas have not shown yet that they
    /// acknowledge calls. A new master has no replicas at first, and keeps each call for as long as it may wait for them.
    pub(crate) fn keeps_waiting(&self) -> bool {
        // ORDERING: Relaxed: a hint.
        let is_acknowledged = || self.acknowledged.load(Ordering::Relaxed) == self.servers().number() + 1;
        self.is_silent() || (self.acks.is_some() && !is_acknowledged())
    }

    /// Notes what a reply says about the node.
    fn note(&self, reply: &Reply) {
        let Ok(replied) = reply else { return };
        // This writes only if the value changes, because other threads read this memory.
        if self.is_silent() {
            self.is_silent.store(false, Ordering::Relaxed); // ORDERING: Relaxed: a hint.
        }
        if let (Some(acks), Some(confirmation)) = (&self.acks, &replied.confirmation) {
            let number = if acks.count(Some(confirmation)).is_ok() { self.servers().number() + 1 } else { 0 };
            self.acknowledged.store(number, Ordering::Relaxed); // ORDERING: Relaxed: a hint.
        }
    }

    /// Returns which servers have answered at this address.
    pub(crate) fn servers(&self) -> &Arc<Servers> {
        &self.transport.endpoint().servers
    }

    /// Sends one command that concerns no key.
    pub(crate) fn say(&self, words: &[&str], limit: Duration) -> Result<Value, Error> {
        let mut batch = self.transport.batch(limit);
        batch.push(None, |packed| packed.words(words));
        let replies = self.transport.round_trip(batch, limit, AtLimit::KeepConnection).pop();
        replies.unwrap_or_else(|| Err(mismatch())).map(|replied| replied.value)
    }

    /// Runs calls in one batch.
    pub(crate) fn call<'a>(&self, calls: impl Iterator<Item = Call<'a>>, options: CallOptions) -> Replies {
        self.end(self.begin(calls, options, WaitOrder::AtOnce))
    }

    /// Sends calls in one batch; [`end`](Self::end) must follow, and `waits` says when.
    pub(crate) fn begin<'a>(
        &self,
        calls: impl Iterator<Item = Call<'a>>,
        options: CallOptions,
        waits: WaitOrder,
    ) -> Sent {
        let CallOptions { limit, spare, at_limit, urgent } = options;
        let at = now();
        let mut batch = if urgent { self.transport.urgent_batch(limit) } else { self.transport.batch(limit) };
        let mut askings = SmallVec::new();
        for call in calls {
            askings.push(call.asking);
            if call.asking {
                // Both commands take the connection of the key, one behind the other. `ASKING` applies only to the next command. So the call has its
                // full form: a short form that the server does not know would be repeated without `ASKING`.
                batch.push(Some(call.key), |packed| packed.words(&["ASKING"]));
                batch.push(Some(call.key), |packed| call.pack_in_full(self.form, packed));
            } else {
                batch.push(Some(call.key), |packed| call.pack(self.form, packed));
            }
        }
        let mut begun = self.transport.begin(batch, at, limit, waits);
        (begun.until.spare, begun.until.at_limit) = (spare, at_limit);
        Sent { begun, asking: askings }
    }

    /// Waits for the replies to calls that were sent. If an `ASKING` fails, its call is redirected, and the error of the `ASKING` becomes
    /// the reply. If the call was executed nevertheless, because the server has become the owner of the slot meanwhile, its own reply
    /// counts.
    pub(crate) fn end(&self, sent: Sent) -> Replies {
        let Sent { begun, asking } = sent;
        let mut replies = self.transport.end(begun);
        if asking.contains(&true) {
            replies = without_askings(replies, &asking);
        }
        for reply in &replies {
            self.note(reply);
        }
        replies
    }

    /// Sends one call about a key with this hash, and returns without its reply, which `done` receives.
    pub(crate) fn post(&self, call: &Call<'_>, hash: KeyHash, limit: Duration, done: Callback) {
        let mut packed = Packed::for_one();
        call.pack(self.form, &mut packed);
        self.transport.post(hash, packed, limit, done);
    }

    /// Sends calls together, when `time` says, and returns without their replies, which `done` receives, one for each.
    pub(crate) fn post_all<'a>(
        &self,
        calls: impl Iterator<Item = Call<'a>>,
        limit: Duration,
        done: Vec<Callback>,
        time: PostTime,
    ) {
        // A call that need not go out at once opens no further connection.
        let to_connect = if matches!(time, PostTime::WithNext) { Duration::ZERO } else { limit };
        let mut batch = self.transport.batch(to_connect);
        calls.for_each(|call| batch.push(Some(call.key), |packed| call.pack(self.form, packed)));
        self.transport.post_all(batch, limit, done, time);
    }
}

/// Returns the replies to the calls, of which some went behind an `ASKING`.
fn without_askings(replies: Replies, asking: &[bool]) -> Replies {
    let mut replies = replies.into_iter();
    let mut next = || replies.next().unwrap_or_else(|| Err(mismatch()));
    let of_call = |asking: &bool| {
        let asked = asking.then(&mut next);
        let reply = next();
        let is_redirected = matches!(&reply, Ok(replied) if is_redirection(&replied.value));
        match asked {
            Some(Ok(asked)) if is_redirected && matches!(asked.value, Value::ServerError(_)) => Ok(asked),
            _ => reply,
        }
    };
    asking.iter().map(of_call).collect()
}

/// Returns how calls are confirmed that replicas must acknowledge.
pub(crate) fn confirming(acks: Option<&ReplicaAcks>) -> Option<Confirming> {
    acks.map(|acks| Confirming { command: acks.command(), takes: acks.timeout })
}

impl Drop for Node {
    fn drop(&mut self) {
        self.transport.close();
    }
}
