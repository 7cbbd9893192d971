//! [`RedisLockProcessor`]: turns requests into script calls, and replies into outcomes.
//!
//! An acquire of a key that is likely to be free is first tried in plain commands: see `plain`.

mod builder;
mod directory;
mod server;

pub use builder::RedisBuilder;
pub use server::Server;

use super::net::address::Address;
use super::net::classify::{classify, is_no_master};
use super::node::CallOptions;
use super::plain::{Attempt, GivenUp, TakingBack, Tried};
use super::script::acks::{self, ReplicaAcks};
use super::script::reply::{self, mismatch};
use super::script::scripts::Call;
use super::script::scripts::Texts;
use super::script::timing::KEEP;
use super::sentinel::Outage;
use super::topology::Topology;
use super::transport::{AtLimit, CallReplies, KeyHash, Reply};
use crate::clock::{Clock, Moment, SystemClock};
use crate::error::Error;
use crate::port::{
    Claim, Directory, Inbox, Limit, LockProcessor, Outcome, Posting, ReleaseDone, ReleaseOutcome, Request, StoreLimits,
    WaitQueue, one_by_one,
};
use ::redis::Value;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Keeps locks on one Redis server, 7.0 or newer, on the master of a service that Sentinels watch, or on the masters of a Redis Cluster.
///
/// All threads share up to four connections to a server. Commands that gather while a connection is busy go out in one write, while
/// replies to earlier commands come in. Renewals of leases use a separate connection (in a Cluster, one of the four). A connection is
/// opened when it is first needed, and again after it was lost.
///
/// # Examples
///
/// ```
/// use redis_dlock::{DLockGenerator, RedisLockProcessor};
/// use std::time::Duration;
///
/// // It connects with the first request, so the server may be down when the program starts.
/// let store = RedisLockProcessor::builder("redis://127.0.0.1")?.io_timeout(Duration::from_millis(300)).build()?;
/// let generator = DLockGenerator::new(store)?;
/// # Ok::<_, redis_dlock::Error>(())
/// ```
pub struct RedisLockProcessor {
    pub(super) topology: Topology,
    /// Knows which words must be hidden when an error of the server is shown.
    pub(super) address: Arc<Address>,
    pub(super) io_timeout: Duration,
    outage: Outage,
    /// How many replicas must acknowledge, if some must.
    acks: Option<ReplicaAcks>,
    given_up: GivenUp,
}

impl RedisLockProcessor {
    pub(super) fn over(
        topology: Topology,
        address: Address,
        io_timeout: Duration,
        outage: Outage,
        acks: Option<ReplicaAcks>,
    ) -> Self {
        Self { topology, address: Arc::new(address), io_timeout, outage, acks, given_up: GivenUp::default() }
    }

    /// Connects, and waits until the server has accepted the login. If replicas must acknowledge, checks the right to wait for them.
    pub(super) fn greet(&self, limit: Duration) -> Result<(), Error> {
        self.topology.connect(limit)?;
        if self.acks.is_some()
            && let Value::ServerError(e) = self.topology.say(&["WAIT", "0", "0"], limit)?
        {
            return Err(self.address.hide(classify(&e, "")));
        }
        Ok(())
    }

    /// Returns `true` if the server was refused because it is a node of a Cluster.
    pub(super) fn has_met_cluster(&self) -> bool {
        self.topology.one().is_some_and(|one| one.node.servers().is_cluster())
    }

    /// Returns what releases a locker by its script.
    fn taking_back(&self) -> TakingBack<'_, impl Fn(Request<'_>, Duration) -> Result<Outcome, Error>> {
        TakingBack {
            address: &self.address,
            given_up: &self.given_up,
            by_script: |request: Request<'_>, limit: Duration| self.run_script(request, CallOptions::within(limit)),
        }
    }

    /// Runs one request on behalf of a caller.
    fn run_alone(&self, request: Request<'_>, limit: Duration) -> Result<Outcome, Error> {
        match request {
            Request::Acquire(_) | Request::Join(_) => self.take(request, limit),
            Request::Settle(_) => Err(request.unsupported()),
            other => self.run_script(other, CallOptions::within(limit)),
        }
    }

    /// Takes a free key, or joins the queue of a busy one if the request is to join.
    fn take(&self, request: Request<'_>, limit: Duration) -> Result<Outcome, Error> {
        let (start, mut way) = (Instant::now(), None);
        if let Some(one) = self.topology.one() {
            let attempt = Attempt {
                transport: &one.node.transport,
                watermarks: &one.watermarks,
                contention: &one.contention,
                acks: self.acks,
                taking_back: self.taking_back(),
            };
            match attempt.run(&request, start, limit)? {
                Tried::Done(outcome) => return Ok(Outcome::Acquire(outcome)),
                Tried::Ask(chosen) => way = chosen,
            }
        }
        self.run_script(request, CallOptions { way, ..CallOptions::within(limit.saturating_sub(start.elapsed())) })
    }

    fn run_script(&self, request: Request<'_>, options: CallOptions) -> Result<Outcome, Error> {
        if self.given_up.any() {
            let sent = self.given_up.replacement(&request);
            let outcome = self.send_script(&sent, options)?;
            return Ok(self.given_up.outcome_of(&request, &sent, outcome));
        }
        self.send_script(&request, options)
    }

    fn send_script(&self, request: &Request<'_>, options: CallOptions) -> Result<Outcome, Error> {
        let (sent_at, limit) = (SystemClock.now(), options.limit);
        let texts = Texts::of(request, self.topology.form());
        let reply = self.topology.call(&texts.call(request), options);
        self.read(request, reply, sent_at, || limit.saturating_sub(SystemClock.now().since(sent_at)))
    }

    /// Runs requests together.
    fn run_scripts(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        if !self.given_up.any() {
            return self.send_scripts(requests, limit);
        }
        let sent: Vec<_> = requests.iter().map(|request| self.given_up.replacement(request)).collect();
        let outcomes = self.send_scripts(&sent, limit);
        let both = requests.iter().zip(&sent).zip(outcomes);
        both.map(|((request, sent), outcome)| Ok(self.given_up.outcome_of(request, sent, outcome?))).collect()
    }

    fn send_scripts(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        let form = self.topology.form();
        let texts: Vec<Texts> = requests.iter().map(|request| Texts::of(request, form)).collect();
        let calls: Vec<Call<'_>> = texts.iter().zip(requests).map(|(texts, request)| texts.call(request)).collect();
        let (sent_at, start) = (SystemClock.now(), Instant::now());
        let is_attempt = matches!(limit, Limit::Attempt(_));
        let at_limit = if is_attempt { AtLimit::BreakConnection } else { AtLimit::KeepConnection };
        // Renewals need no order among other commands for their keys: a late one finds another locker, or none, and changes nothing. An
        // extension that a caller asks for does not use their connection.
        let is_renewal = |request: &Request<'_>| matches!(request, Request::Extend(_) | Request::Probe(_));
        let urgent = is_attempt && requests.iter().all(is_renewal);
        let replies = self.topology.run(&calls, CallOptions { at_limit, urgent, ..CallOptions::within(limit.time()) });
        let read = |(request, reply)| self.read(request, reply, sent_at, || limit.left_since(start).time());
        requests.iter().zip(replies).map(read).collect()
    }

    /// Reads the reply to a request that was sent at `sent_at`, and notes what it says about its connection and its key. If too few replicas
    /// have acknowledged that the request got the key, releases it, within what is `left` of the limit.
    fn read(
        &self,
        request: &Request<'_>,
        reply: Reply,
        sent_at: Moment,
        left: impl Fn() -> Duration,
    ) -> Result<Outcome, Error> {
        let replied = reply?;
        let outcome = reply::outcome(request, &replied.value).map_err(|e| self.address.hide(e));
        self.topology.note(request, &replied, outcome.as_ref().ok(), sent_at);
        let (outcome, confirmation) = (outcome?, replied.confirmation.as_deref());
        let Some(Err(error)) = self.acks.map(|acks| acks.check(request, &outcome, confirmation)) else {
            return Ok(outcome);
        };
        Err(match request.claim() {
            Some(claim) if acks::takes(request) => self.taking_back().undo(claim, error, left()),
            _ => self.address.hide(error),
        })
    }

    /// Publishes a text on the channel on which a client hears of this key. Returns the server's reply: the number of receivers.
    pub(super) fn publish(&self, client: &str, key: &str, text: &str, limit: Duration) -> Result<Value, Error> {
        let (channel, reply) = self.topology.publish(client, key, text, limit)?;
        match reply {
            Value::ServerError(e) => Err(self.address.hide(classify(&e, &channel))),
            value => Ok(value),
        }
    }
}

impl LockProcessor for RedisLockProcessor {
    fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        match (requests, limit) {
            ([], _) => Vec::new(),
            ([request], Limit::Call(limit)) => vec![self.run_alone(*request, limit)],
            (requests, limit) if requests.iter().any(|request| matches!(request, Request::Settle(_))) => {
                one_by_one(requests, limit, |request, limit| self.run_alone(*request, limit.time()))
            }
            (requests, limit) => self.run_scripts(requests, limit),
        }
    }

    fn keeps_waiting(&self, key: &str) -> bool {
        self.topology.keeps_waiting(key)
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits {
            command: self.io_timeout + self.acks.map_or(Duration::ZERO, |acks| acks.longest()),
            outage: self.outage.get(),
            keeps_unheard: KEEP,
            extends_heard_grants: self.acks.is_some(),
            poller_gaps: true,
            numbers: true,
            breaks: true,
            ..StoreLimits::default()
        }
    }

    fn has_answered(&self) -> bool {
        self.topology.has_answered()
    }

    fn on_new_server(&self, told: Box<dyn Fn(u64) + Send + Sync>) {
        self.topology.tell(told);
    }

    fn queue(&self) -> Option<&dyn WaitQueue> {
        Some(self)
    }

    fn posting(&self) -> Option<&dyn Posting> {
        Some(self)
    }

    fn directory(&self) -> Option<&dyn Directory> {
        Some(self)
    }

    fn close(&self) {
        self.topology.close();
    }
}

impl WaitQueue for RedisLockProcessor {
    fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error> {
        self.topology.open_inbox(client, limit)
    }

    fn check_inbox(&self, client: &str, key: &str, limit: Duration) -> Result<(), Error> {
        // This word is a message in no version of the inbox.
        const WORD: &str = "hello";
        self.publish(client, key, WORD, limit).map(|_| ())
    }

    fn hears(&self, client: &str, key: &str) -> bool {
        self.topology.hears(client, key)
    }

    fn get_ready_to_hear(&self, client: &str, key: &str, limit: Duration) -> Result<(), Error> {
        self.topology.get_ready_to_hear(client, key, limit)
    }
}

impl Posting for RedisLockProcessor {
    fn post_release(&self, claim: &Claim<'_>, limit: Duration, done: ReleaseDone) -> bool {
        let hash = KeyHash::of(claim.key);
        let request = Request::Release(*claim);
        let texts = Texts::of(&request, self.topology.form());
        let (topology, address) = (self.topology.clone(), Arc::clone(&self.address));
        let callback = move |answer: CallReplies| {
            let is_refused = answer.first().is_some_and(is_no_master);
            let outcome = released(answer).map_err(|e| address.hide(e));
            if let Some(one) = topology.one() {
                one.note_release(hash, is_refused, outcome.as_ref().ok());
            }
            done(outcome);
        };
        self.topology.post(&texts.call(&request), limit, Box::new(callback));
        true
    }

    fn collect(&self) -> bool {
        self.topology.collect()
    }
}

impl Drop for RedisLockProcessor {
    fn drop(&mut self) {
        self.topology.close();
    }
}

impl fmt::Debug for RedisLockProcessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLockProcessor").field("topology", &self.topology).finish()
    }
}

/// Reads the answer to a posted release.
fn released(answer: CallReplies) -> Result<ReleaseOutcome, Error> {
    // How a reply is read depends only on the kind of request.
    let any = Claim::new("", "", "", Duration::ZERO);
    match answer.first() {
        Some(value) => reply::outcome(&Request::Release(any), value)?.try_into(),
        None => Err(answer.failure.unwrap_or_else(mismatch)),
    }
}
