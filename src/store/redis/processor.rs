//! [`RedisLockProcessor`]: turns requests into script calls, and replies into outcomes.
//!
//! An acquire of a key that is likely to be free is first tried in plain commands: see `plain`.

use super::net::address::Address;
use super::net::classify::{classify, is_no_master, is_noscript};
use super::net::endpoint::Endpoint;
use super::net::identity::Servers;
use super::net::resp::Packed;
use super::plain::{Attempt, Contention, FenceTrust, GivenUp};
use super::script::acks::{self, ReplicaAcks};
use super::script::keys::queue_key;
use super::script::reply::{self, mismatch};
use super::script::request::{self, Texts};
use super::script::scripts::{Call, KEEP, SLACK};
use super::sentinel::Outage;
use super::transport::{Confirming, KeyHash, Replied, Reply, Transport};
use crate::clock::{Clock, Moment, SystemClock};
use crate::error::Error;
use crate::store::processor::{
    AcquireOutcome, Claim, ExtendOutcome, Inspection, LockProcessor, Numbers, Outcome, PollOutcome, Posting,
    ProbeOutcome, ReleaseOutcome, Request, Status, StoreLimits, WaitQueue,
};
use ::redis::Value;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Keeps locks on one Redis server, 7.0 or newer, or on the master of a service that Sentinels watch.
///
/// All threads share up to four connections. Commands that gather while a connection is busy go out in one write, while replies to
/// earlier commands come in. Renewals of leases use a separate connection. A connection is opened when it is first needed, and again
/// after it was lost.
pub struct RedisLockProcessor {
    pub(super) transport: Transport,
    /// Knows which words must be hidden when an error of the server is shown.
    pub(super) address: Arc<Address>,
    pub(super) io_timeout: Duration,
    outage: Outage,
    /// How many replicas must acknowledge, if some must.
    acks: Option<ReplicaAcks>,
    /// Whether the server knows the release script, as far as the last replies tell.
    // ORDERING: Relaxed: a guess that nothing is read through. After a wrong `true` the transport sends the script's text once more;
    // after a wrong `false` the release is not posted.
    pub(super) knows_release: Arc<AtomicBool>,
    /// The number of the server whose answers `knows_release` and the trust in its fence are from.
    // ORDERING: Relaxed: the number alone matters. A thread that sees an outdated one makes the same change once more.
    server: AtomicU64,
    /// Whether the reply to a posted release said that the server is no master.
    // ORDERING: Relaxed: nothing is read through it. `Mux::take_in` has marked the connection deposed before the callback stores `true`; the
    // next plain attempt that sees it ends the trust in the other connections.
    pub(super) is_demoted: Arc<AtomicBool>,
    trust: FenceTrust,
    pub(super) contention: Arc<Contention>,
    given_up: GivenUp,
}

impl RedisLockProcessor {
    pub(super) fn new(endpoint: Endpoint, io_timeout: Duration, outage: Outage, acks: Option<ReplicaAcks>) -> Self {
        // Builds the table of hash tags now: it takes milliseconds (many in an unoptimised build), which the first lock should not pay.
        let _ = queue_key("");
        let knows_release = Arc::new(AtomicBool::new(false));
        let confirming = acks.map(|acks| Confirming { command: acks.command(), takes: acks.timeout });
        Self {
            address: Arc::new(endpoint.address.clone()),
            transport: Transport::new(endpoint, io_timeout, SLACK, confirming),
            io_timeout,
            outage,
            acks,
            knows_release,
            server: AtomicU64::new(0),
            is_demoted: Arc::new(AtomicBool::new(false)),
            trust: FenceTrust::new(),
            contention: Arc::new(Contention::new()),
            given_up: GivenUp::default(),
        }
    }

    /// Connects, and waits for one reply. `HELLO` is the only command that no access rule can forbid. If replicas must acknowledge, checks
    /// the right to wait for them.
    pub(super) fn greet(&self, limit: Duration) -> Result<(), Error> {
        self.say(&["HELLO"], limit)?;
        if self.acks.is_some()
            && let Value::ServerError(e) = self.say(&["WAIT", "0", "0"], limit)?
        {
            return Err(self.address.hide(classify(&e, "")));
        }
        Ok(())
    }

    /// Sends one command that concerns no key.
    pub(super) fn say(&self, words: &[&str], limit: Duration) -> Result<Value, Error> {
        let mut batch = self.transport.batch(limit);
        batch.push_any(|packed| packed.words(words));
        let reply = self.transport.run(batch, limit, false).pop().unwrap_or_else(|| Err(mismatch()));
        reply.map(|replied| replied.value)
    }

    /// Runs calls in one batch. The calls whose script the server does not know were not executed; they are repeated with the script's
    /// full text.
    fn run(&self, calls: &[Call<'_>], limit: Duration, or_break: bool, urgent: bool) -> Vec<Reply> {
        let start = Instant::now();
        let mut replies = self.send(calls.iter(), false, limit, or_break, urgent);
        let unknown = |reply: &Reply| matches!(reply, Ok(replied) if is_noscript(&replied.value));
        if !replies.iter().any(unknown) {
            return replies;
        }
        // This is another server, or its scripts were flushed: it knows none of them.
        // ORDERING: Relaxed: a guess.
        self.knows_release.store(false, Ordering::Relaxed);
        let again: Vec<usize> = (0..replies.len()).filter(|i| unknown(&replies[*i])).collect();
        let left = limit.saturating_sub(start.elapsed());
        let repeated = self.send(again.iter().map(|i| &calls[*i]), true, left, or_break, urgent);
        for (i, reply) in again.into_iter().zip(repeated) {
            replies[i] = reply;
        }
        replies
    }

    fn send<'c, 'a: 'c>(
        &self,
        calls: impl Iterator<Item = &'c Call<'a>>,
        full_text: bool,
        limit: Duration,
        or_break: bool,
        urgent: bool,
    ) -> Vec<Reply> {
        let mut batch = if urgent { self.transport.urgent_batch(limit) } else { self.transport.batch(limit) };
        for call in calls {
            batch.push(KeyHash::of(call.keys[0]), |packed| {
                call.pack(packed, full_text);
                packed.is_confirmed |= call.is_confirmed;
            });
        }
        self.transport.run(batch, limit, or_break)
    }

    fn servers(&self) -> &Servers {
        &self.transport.endpoint().servers
    }

    /// Forgets what is known of the server if another one has answered since.
    pub(super) fn forget_earlier_server(&self) {
        let number = self.servers().number();
        // ORDERING: Relaxed, here and below: see the fields.
        if self.server.load(Ordering::Relaxed) != number {
            self.server.store(number, Ordering::Relaxed);
            self.knows_release.store(false, Ordering::Relaxed);
            self.trust.end_all(&self.transport);
        }
    }

    /// Returns a plain attempt whose further requests go by script.
    fn attempt(&self) -> Attempt<'_, impl Fn(Request<'_>, Duration) -> Result<Outcome, Error>> {
        Attempt {
            transport: &self.transport,
            address: &self.address,
            is_demoted: &self.is_demoted,
            trust: &self.trust,
            contention: &self.contention,
            given_up: &self.given_up,
            acks: self.acks,
            by_script: move |request: Request<'_>, limit: Duration| match request {
                Request::Release(release) => self.release(&release, limit).map(Outcome::Release),
                other => self.run_one(other, limit),
            },
        }
    }

    fn run_requests(&self, requests: &[Request<'_>], limit: Duration, or_break: bool) -> Vec<Result<Outcome, Error>> {
        if requests.is_empty() {
            return Vec::new();
        }
        if self.given_up.any() {
            return self.run_requests_about_given_up(requests, limit, or_break);
        }
        self.run_scripts(requests, limit, or_break)
    }

    /// Does as [`run_requests`](Self::run_requests), but sends a release in place of some requests of lockers that were given up.
    fn run_requests_about_given_up(
        &self,
        requests: &[Request<'_>],
        limit: Duration,
        or_break: bool,
    ) -> Vec<Result<Outcome, Error>> {
        let sent = self.given_up.replace(requests);
        let outcomes = self.run_scripts(&sent, limit, or_break);
        let both = requests.iter().zip(&sent).zip(outcomes);
        both.map(|((request, sent), outcome)| Ok(self.given_up.outcome_of(request, sent, outcome?))).collect()
    }

    fn run_scripts(&self, requests: &[Request<'_>], limit: Duration, or_break: bool) -> Vec<Result<Outcome, Error>> {
        let texts: Vec<Texts> = requests.iter().map(Texts::of).collect();
        let calls: Vec<Call<'_>> = texts.iter().zip(requests).map(|(texts, request)| texts.call(request)).collect();
        let (sent_at, start) = (SystemClock.now(), Instant::now());
        // Renewals need no order among other commands for their keys: a late one finds another locker, or none, and changes nothing. An
        // extension that a caller asks for does not use their connection.
        let is_renewal = |request: &Request<'_>| matches!(request, Request::Extend(_) | Request::Probe(_));
        let urgent = or_break && requests.iter().all(is_renewal);
        let replies = self.run(&calls, limit, or_break, urgent);
        let read = |(request, reply)| self.read(request, reply, sent_at, || limit.saturating_sub(start.elapsed()));
        requests.iter().zip(replies).map(read).collect()
    }

    fn run_one(&self, request: Request<'_>, limit: Duration) -> Result<Outcome, Error> {
        if self.given_up.any() {
            let mut outcomes = self.run_requests(&[request], limit, false);
            return outcomes.pop().unwrap_or_else(|| Err(mismatch()));
        }
        let sent_at = SystemClock.now();
        let texts = Texts::of(&request);
        let call = texts.call(&request);
        let hash = KeyHash::of(call.keys[0]);
        let send = |full_text: bool, limit: Duration| {
            let mut packed = Packed::for_one();
            call.pack(&mut packed, full_text);
            packed.is_confirmed = call.is_confirmed;
            self.transport.call(hash, packed, limit)
        };
        let left = || limit.saturating_sub(SystemClock.now().since(sent_at));
        let mut reply = send(false, limit);
        if matches!(&reply, Ok(replied) if is_noscript(&replied.value)) {
            self.knows_release.store(false, Ordering::Relaxed); // ORDERING: Relaxed: a guess.
            reply = send(true, left());
        }
        self.read(&request, reply, sent_at, left)
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
        let Replied { value, epoch, confirmation } = reply?;
        if is_no_master(&value) {
            self.trust.end_all(&self.transport);
        }
        let outcome = reply::outcome(request, &value).map_err(|e| self.address.hide(e))?;
        if let Some(number) = reply::number_of(&outcome) {
            self.trust.note(&self.transport, epoch, number, sent_at);
        }
        self.contention.note(KeyHash::of(request.claim().key), &outcome);
        match self.acks.map(|acks| acks.check(request, &outcome, confirmation.as_ref())) {
            Some(Err(error)) if acks::takes(request) => Err(self.attempt().undo(request.claim(), error, left())),
            Some(Err(error)) => Err(self.address.hide(error)),
            Some(Ok(())) | None => Ok(outcome),
        }
    }
}

/// The outcome of a request of this kind.
macro_rules! outcome_of {
    ($kind:ident, $outcome:expr) => {
        match $outcome? {
            Outcome::$kind(outcome) => Ok(outcome),
            _ => Err(mismatch()),
        }
    };
}

impl RedisLockProcessor {
    /// Takes a free key; with `wait`, joins the queue of a busy one.
    pub(super) fn take(&self, claim: &Claim<'_>, wait: bool, limit: Duration) -> Result<AcquireOutcome, Error> {
        let start = Instant::now();
        self.forget_earlier_server();
        if let Some(outcome) = self.attempt().run(claim, wait, start, limit)? {
            return Ok(outcome);
        }
        let request = if wait { Request::Join(*claim) } else { Request::Acquire(*claim) };
        outcome_of!(Acquire, self.run_one(request, limit.saturating_sub(start.elapsed())))
    }

    /// Extends a lease; with `numbers`, asks for a range of numbers, too.
    pub(super) fn renew(&self, claim: &Claim<'_>, numbers: bool, limit: Duration) -> Result<ExtendOutcome, Error> {
        let request = if numbers { Request::ExtendWithNumbers(*claim) } else { Request::Extend(*claim) };
        outcome_of!(Extend, self.run_one(request, limit))
    }

    /// Ends a tenure by a release or a hand-over.
    pub(super) fn end(&self, request: Request<'_>, limit: Duration) -> Result<ReleaseOutcome, Error> {
        let outcome = outcome_of!(Release, self.run_one(request, limit))?;
        self.knows_release.store(true, Ordering::Relaxed); // ORDERING: Relaxed: a guess.
        Ok(outcome)
    }
}

impl LockProcessor for RedisLockProcessor {
    fn acquire(&self, claim: &Claim<'_>, limit: Duration) -> Result<AcquireOutcome, Error> {
        self.take(claim, false, limit)
    }

    fn extend(&self, claim: &Claim<'_>, limit: Duration) -> Result<ExtendOutcome, Error> {
        self.renew(claim, false, limit)
    }

    fn release(&self, claim: &Claim<'_>, limit: Duration) -> Result<ReleaseOutcome, Error> {
        self.end(Request::Release(*claim), limit)
    }

    fn inspect(&self, key: &str, limit: Duration) -> Result<Inspection, Error> {
        let queue = queue_key(key);
        let mut replies = self.run(&[request::inspect(key, &queue)], limit, false, false);
        let replied = replies.pop().unwrap_or_else(|| Err(mismatch()))?;
        reply::inspection(key, &replied.value).map_err(|e| self.address.hide(e))
    }

    fn poll(&self, claim: &Claim<'_>, limit: Duration) -> Result<PollOutcome, Error> {
        outcome_of!(Poll, self.run_one(Request::Poll(*claim), limit))
    }

    fn probe(&self, claim: &Claim<'_>, limit: Duration) -> Result<ProbeOutcome, Error> {
        outcome_of!(Probe, self.run_one(Request::Probe(*claim), limit))
    }

    fn batch(&self, requests: &[Request<'_>], limit: Duration) -> Vec<Result<Outcome, Error>> {
        self.run_requests(requests, limit, true)
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits {
            command: self.io_timeout + self.acks.map_or(Duration::ZERO, |acks| acks.longest()),
            outage: self.outage.get(),
            keeps_unheard: KEEP,
            extends_heard_grants: self.acks.is_some(),
            poller_gaps: true,
            ..StoreLimits::default()
        }
    }

    fn status(&self) -> Status {
        Status::answering().with_has_answered(self.transport.has_answered()).with_server(self.servers().number())
    }

    fn on_new_server(&self, told: Box<dyn Fn() + Send + Sync>) {
        self.servers().tell(told);
    }

    fn queue(&self) -> Option<&dyn WaitQueue> {
        Some(self)
    }

    fn numbers(&self) -> Option<&dyn Numbers> {
        Some(self)
    }

    fn posting(&self) -> Option<&dyn Posting> {
        Some(self)
    }

    fn close(&self) {
        self.transport.close();
    }
}

impl Drop for RedisLockProcessor {
    fn drop(&mut self) {
        self.transport.close();
    }
}

impl fmt::Debug for RedisLockProcessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLockProcessor").field("transport", &self.transport).finish()
    }
}
