//! One server: calls of scripts on its connections, whichever scripts it knows.
//!
//! A call is sent in its short form, `EVALSHA`. A server that does not know the script has not executed it; the call is then repeated with
//! the script's full text.

use crate::error::Error;
use crate::store::redis::net::classify::{is_noscript, is_redirection};
use crate::store::redis::net::identity::Servers;
use crate::store::redis::net::resp::Packed;
use crate::store::redis::script::acks::ReplicaAcks;
use crate::store::redis::script::reply::mismatch;
use crate::store::redis::script::scripts::{Call, Form};
use crate::store::redis::script::sight::{self, Sight};
use crate::store::redis::transport::{Answer, Batch, Begun, Confirming, KeyHash, Reply, Transport};
use ::redis::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// See the module.
pub(crate) struct Node {
    pub(crate) transport: Transport,
    /// Whether the server knows the release script, as far as the last replies tell.
    // ORDERING: Relaxed: a guess that nothing is read through. After a wrong `true` the transport sends the script's text once more;
    // after a wrong `false` the release is not posted.
    knows_release: Arc<AtomicBool>,
    /// Whether a batch, or a question about the Cluster, had no answer at all, and nothing was answered since.
    // ORDERING: Relaxed: a hint by which batches are put together.
    is_silent: AtomicBool,
    /// How many replicas must acknowledge, if any must.
    acks: Option<ReplicaAcks>,
    /// Whether so many have acknowledged the last call that they had to.
    // ORDERING: Relaxed: a hint, as `is_silent`.
    is_acknowledged: AtomicBool,
    /// The number of the server whose answers `knows_release` is from.
    // ORDERING: Relaxed: the number alone matters. A thread that sees an outdated one makes the same change once more.
    server: AtomicU64,
}

/// A call, and how it is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending<'c, 'a> {
    pub(crate) call: &'c Call<'a>,
    /// Whether with the script's full text.
    pub(crate) full_text: bool,
    /// Whether behind an `ASKING`: the server takes the key's slot over and has not got it yet.
    pub(crate) asking: bool,
}

impl<'c, 'a> Sending<'c, 'a> {
    /// A call as it is sent first.
    pub(crate) fn first(call: &'c Call<'a>) -> Self {
        Self { call, full_text: false, asking: false }
    }
}

/// Calls that were sent, and whose replies are to be waited for.
pub(crate) struct Sent {
    begun: Begun,
    /// For each call, whether an `ASKING` goes before it.
    asking: Vec<bool>,
}

impl Node {
    pub(crate) fn new(transport: Transport, acks: Option<ReplicaAcks>) -> Self {
        Self {
            transport,
            knows_release: Arc::new(AtomicBool::new(false)),
            is_silent: AtomicBool::new(false),
            acks,
            is_acknowledged: AtomicBool::new(false),
            server: AtomicU64::new(0),
        }
    }

    /// Returns `true` if a batch, or a question about the Cluster, had no answer at all, and nothing was answered since.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed) // ORDERING: Relaxed: a hint.
    }

    /// Notes that a batch, or a question about the Cluster, was not answered at all.
    pub(crate) fn note_silence(&self) {
        self.is_silent.store(true, Ordering::Relaxed); // ORDERING: Relaxed: a hint.
    }

    /// Returns `true` if a batch should not wait for this node beside others: it is silent, or its replicas have yet to show that they
    /// acknowledge calls. A new master has none at first, and keeps each call for as long as it may wait for them.
    pub(crate) fn keeps_waiting(&self) -> bool {
        // ORDERING: Relaxed: a hint.
        self.is_silent() || (self.acks.is_some() && !self.is_acknowledged.load(Ordering::Relaxed))
    }

    /// Notes what a reply tells of the node.
    fn note(&self, reply: &Reply) {
        let Ok(replied) = reply else { return };
        set(&self.is_silent, false);
        if let (Some(acks), Some(confirmation)) = (&self.acks, &replied.confirmation) {
            set(&self.is_acknowledged, acks.count(Some(confirmation)).is_ok());
        }
    }

    /// Returns which servers have answered at this address.
    pub(crate) fn servers(&self) -> &Arc<Servers> {
        &self.transport.endpoint().servers
    }

    /// Forgets what is known of the server if another one has answered since. Returns `true` then.
    pub(crate) fn forget_earlier_server(&self) -> bool {
        let number = self.servers().number();
        // ORDERING: Relaxed, here and below: see the fields.
        let is_other = self.server.load(Ordering::Relaxed) != number;
        if is_other {
            self.server.store(number, Ordering::Relaxed);
            self.knows_release.store(false, Ordering::Relaxed);
            self.is_acknowledged.store(false, Ordering::Relaxed);
        }
        is_other
    }

    /// Returns `true` if a release can be posted, as far as is known: the server knows its script.
    pub(crate) fn knows_release(&self) -> bool {
        self.knows_release.load(Ordering::Relaxed) // ORDERING: Relaxed: a guess.
    }

    /// Opens the first connection, before any call.
    pub(crate) fn connect(&self, limit: Duration) -> Result<(), Error> {
        self.transport.connect(limit)
    }

    /// Sends one command that concerns no key.
    pub(crate) fn say(&self, words: &[&str], limit: Duration) -> Result<Value, Error> {
        self.ask_one(limit, |batch| batch.push_any(|packed| packed.words(words)))
    }

    /// Sends one command, which `push` puts into a batch.
    fn ask_one(&self, limit: Duration, push: impl FnOnce(&mut Batch)) -> Result<Value, Error> {
        let mut batch = self.transport.batch(limit);
        push(&mut batch);
        let reply = self.transport.run(batch, limit, false).pop().unwrap_or_else(|| Err(mismatch()));
        reply.map(|replied| replied.value)
    }

    /// Asks a script, and a second one if the first has seen none, whether they see a subscriber of a channel. `is_over` says that the
    /// subscription may have ended meanwhile. Blocks for at most twice the limit and a pause.
    pub(crate) fn sees(&self, form: Form, channel: &str, limit: Duration, is_over: impl Fn() -> bool) -> Sight {
        let number = self.servers().number();
        let call = sight::call(form, channel);
        let look = || {
            // It is asked too rarely for the server to know the script.
            let reply = self.ask_one(limit, |batch| batch.push(KeyHash::of(channel), |packed| call.pack(packed, true)));
            reply.map_or(Sight::Unknown, sight::read)
        };
        let first = look();
        if first != Sight::Unseen {
            return first;
        }
        std::thread::sleep(sight::SECOND_LOOK);
        let second = look();
        // Another server answers: the subscription has ended, or will.
        if self.servers().number() != number || is_over() { Sight::Unknown } else { second }
    }

    /// Runs one call, within `limit`.
    pub(crate) fn call(&self, call: &Call<'_>, limit: Duration) -> Reply {
        let start = Instant::now();
        let hash = KeyHash::of(call.keys[0]);
        let send = |full_text: bool, limit: Duration| {
            let mut packed = Packed::for_one();
            call.pack(&mut packed, full_text);
            self.transport.call(hash, packed, limit)
        };
        let mut reply = send(false, limit);
        if self.lacks_script(&reply) {
            reply = send(true, limit.saturating_sub(start.elapsed()));
        }
        self.note(&reply);
        if call.is_release() && matches!(&reply, Ok(replied) if !matches!(replied.value, Value::ServerError(_))) {
            self.knows_release.store(true, Ordering::Relaxed); // ORDERING: Relaxed: a guess.
        }
        reply
    }

    /// Runs calls in one batch. The calls whose script the server does not know are repeated with the script's full text.
    pub(crate) fn run(&self, calls: &[Call<'_>], limit: Duration, or_break: bool, urgent: bool) -> Vec<Reply> {
        let start = Instant::now();
        let sendings: Vec<_> = calls.iter().map(Sending::first).collect();
        let mut replies = self.end(self.begin(&sendings, limit, urgent, true), limit, or_break);
        if !replies.iter().any(|reply| self.lacks_script(reply)) {
            return replies;
        }
        // This is another server, or its scripts were flushed: it knows none of them.
        let again: Vec<usize> = (0..replies.len()).filter(|i| self.lacks_script(&replies[*i])).collect();
        let sendings: Vec<_> = again.iter().map(|i| Sending { full_text: true, ..sendings[*i] }).collect();
        let left = limit.saturating_sub(start.elapsed());
        let repeated = self.end(self.begin(&sendings, left, urgent, true), left, or_break);
        for (i, reply) in again.into_iter().zip(repeated) {
            replies[i] = reply;
        }
        replies
    }

    /// Returns `true` if the server does not know the script of the call with this reply, and notes that.
    pub(crate) fn lacks_script(&self, reply: &Reply) -> bool {
        let lacks = matches!(reply, Ok(replied) if is_noscript(&replied.value));
        if lacks {
            self.knows_release.store(false, Ordering::Relaxed); // ORDERING: Relaxed: a guess.
        }
        lacks
    }

    /// Sends calls in one batch; [`end`](Self::end) must follow, at once if the caller begins no other batch (`is_alone`).
    pub(crate) fn begin(&self, calls: &[Sending<'_, '_>], limit: Duration, urgent: bool, is_alone: bool) -> Sent {
        let deadline = crate::timing::end_of(limit, Instant::now());
        let mut batch = if urgent { self.transport.urgent_batch(limit) } else { self.transport.batch(limit) };
        for Sending { call, full_text, asking } in calls {
            let hash = KeyHash::of(call.keys[0]);
            if *asking {
                // Both go on the connection of the key, one behind the other.
                batch.push(hash, |packed| packed.words(&["ASKING"]));
            }
            batch.push(hash, |packed| call.pack(packed, *full_text));
        }
        let is_alone = is_alone && batch.is_one();
        let asking = calls.iter().map(|sending| sending.asking).collect();
        Sent { begun: self.transport.begin(batch, deadline, is_alone), asking }
    }

    /// Waits for the replies to calls that were sent. With `or_break`, a limit that ends before an answer breaks the connection of that
    /// answer. Without its `ASKING` a call is redirected; then the error of that is the reply. A call that was executed all the same, because the
    /// server had got the slot meanwhile, has its own reply.
    pub(crate) fn end(&self, sent: Sent, limit: Duration, or_break: bool) -> Vec<Reply> {
        let Sent { begun, asking } = sent;
        let mut replies = self.transport.end(begun, limit, or_break).into_iter();
        let mut next = || replies.next().unwrap_or_else(|| Err(mismatch()));
        let of_call = |asking: bool| {
            let asked = asking.then(&mut next);
            let reply = next();
            let is_redirected = matches!(&reply, Ok(replied) if is_redirection(&replied.value));
            match asked {
                Some(Ok(asked)) if is_redirected && matches!(asked.value, Value::ServerError(_)) => Ok(asked),
                _ => reply,
            }
        };
        let replies: Vec<_> = asking.into_iter().map(of_call).collect();
        replies.iter().for_each(|reply| self.note(reply));
        replies
    }

    /// Sends one call and returns without its reply, which `done` receives.
    pub(crate) fn post(&self, call: &Call<'_>, limit: Duration, done: impl FnOnce(Answer) + Send + 'static) {
        let mut packed = Packed::for_one();
        call.pack(&mut packed, false);
        let knows_release = Arc::clone(&self.knows_release);
        let callback = move |answer: Answer| {
            if !matches!(answer.values.first(), Some(value) if !matches!(value, Value::ServerError(_))) {
                // The server may have lost the script, or be another server.
                knows_release.store(false, Ordering::Relaxed); // ORDERING: Relaxed: a guess.
            }
            done(answer);
        };
        self.transport.post(KeyHash::of(call.keys[0]), packed, limit, Box::new(callback));
    }
}

/// Returns how calls are confirmed that replicas must acknowledge.
pub(crate) fn confirming(acks: Option<&ReplicaAcks>) -> Option<Confirming> {
    acks.map(|acks| Confirming { command: acks.command(), takes: acks.timeout })
}

/// Sets a hint. Only a change costs a write to memory that other threads read.
fn set(hint: &AtomicBool, value: bool) {
    // ORDERING: Relaxed: a hint.
    if hint.load(Ordering::Relaxed) != value {
        hint.store(value, Ordering::Relaxed);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.transport.close();
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Node").field(&self.transport).finish()
    }
}
