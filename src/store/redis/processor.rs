//! [`RedisLockProcessor`]: turns requests into script calls, and replies into outcomes.
//!
//! An acquire of a key that is likely to be free is first tried in plain commands: see `plain`.

mod builder;
mod directory;
mod server;

pub use builder::RedisBuilder;
pub use server::Server;

use super::cluster::{ClusterInbox, RoutedBatch};
use super::inbox::RedisInbox;
use super::net::classify::classify;
use super::node::{CallOptions, Node};
use super::plain::{Answered, Attempt, Exchange, GivenUp, Tried, with_place};
use super::script::acks::{self, ReplicaAcks};
use super::script::keys::{Slot, inbox_channel, slot_inbox_channel, slot_of};
use super::script::reply::{self, mismatch};
use super::script::scripts::Call;
use super::script::timing::KEEP;
use super::timing::CLUSTER_OUTAGE;
use super::topology::{OneServer, Topology};
use super::transport::{AtLimit, CallReplies, Callback, KeyHash, PostTime, Reply};
use crate::clock::{Clock, Moment, SystemClock};
use crate::error::Error;
use crate::port::{
    Claim, Directory, Inbox, Limit, LockProcessor, Operations, Outcome, Posting, ReleaseDone, Request, StoreLimits,
    WaitQueue, one_by_one,
};
use crate::timing::{LONGEST_RELEASE_DELAY, end_of};
use ::redis::Value;
use smallvec::SmallVec;
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
    io_timeout: Duration,
    /// How long the store may be away, if the program has set that.
    outage: Option<Duration>,
    /// How many replicas must acknowledge, if some must.
    acks: Option<ReplicaAcks>,
    given_up: GivenUp,
}

/// Requests on their way: usually one.
type Exchanges<'a> = SmallVec<[Exchange<'a>; 1]>;

impl RedisLockProcessor {
    /// Makes a store at `url`, which it connects to with the first request. For [`connect`](Self::connect) with a server that may be down
    /// when the program starts. Does not block, but to read the platform's root certificates for a `rediss` URL. A node of a Cluster is not
    /// recognised as such: write `redis+cluster://`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for a URL that cannot be used.
    ///
    /// # Examples
    ///
    /// ```
    /// use redis_dlock::{DLockGenerator, RedisLockProcessor};
    ///
    /// let generator = DLockGenerator::new(RedisLockProcessor::new("redis://127.0.0.1:6379/0")?)?;
    /// assert!(RedisLockProcessor::new("http://127.0.0.1").is_err());
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn new(url: &str) -> Result<Self, Error> {
        RedisBuilder::new(url)?.build()
    }

    /// Connects to `redis://[user][:password@]host[:port][/db]` (also `rediss://` with the feature `tls`, and `unix:///path`), to the
    /// master of a service: `redis+sentinel://host[:port][,host…]/service` (see [Failover](crate::manual::failover)), or to a Redis Cluster:
    /// `redis+cluster://host[:port][,host…]` (see [Cluster](crate::manual::cluster)). A server behind `redis://` that says that it is a node
    /// of a Cluster is taken for the first of its nodes. Blocks for at most three seconds.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for a URL or database that cannot be used, [`Error::Backend`] when the server cannot be reached,
    /// [`Error::Denied`] when it refuses the login, [`Error::Unsupported`] when it is older than 7.0 or a Sentinel.
    pub fn connect(url: &str) -> Result<Self, Error> {
        RedisBuilder::new(url)?.connect()
    }

    /// Returns the settings for a connection to the server at `url`. Does not connect yet.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for a URL that cannot be used.
    pub fn builder(url: &str) -> Result<RedisBuilder, Error> {
        RedisBuilder::new(url)
    }

    /// Connects, and waits until the server has accepted the login. If replicas must acknowledge, checks the right to wait for them.
    pub(super) fn greet(&self, limit: Duration) -> Result<(), Error> {
        let begun = Instant::now();
        match &self.topology {
            Topology::One(one) => one.node.transport.connect(limit)?,
            // `HELLO` is the only command that no access rule can forbid.
            Topology::Cluster(cluster) => drop(cluster.say(&["HELLO"], limit)?),
        }
        if self.acks.is_some()
            && let Value::ServerError(e) =
                self.topology.say(&["WAIT", "0", "0"], limit.saturating_sub(begun.elapsed()))?
        {
            return Err(self.topology.address().hide(classify(&e, "")));
        }
        Ok(())
    }

    /// Returns `true` if the one server was refused because it is a node of a Cluster.
    fn has_met_cluster(&self) -> bool {
        matches!(&self.topology, Topology::One(one) if one.node.servers().is_cluster())
    }

    /// Returns the servers that keep the locks now: the one server, the master that the Sentinels name, or each master of the Cluster. Blocks for
    /// at most `limit`, to ask Sentinels or the Cluster.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] when the Sentinels or the nodes of the Cluster cannot be reached, and what else a connect to them can fail with.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use redis_dlock::RedisLockProcessor;
    /// use std::time::Duration;
    ///
    /// let limit = Duration::from_secs(1);
    /// for mut server in RedisLockProcessor::new("redis+cluster://10.0.0.1")?.servers(limit)? {
    ///     println!("{}: {}", server.address(), server.ask(&["INFO", "replication"], limit)?.join(" "));
    /// }
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn servers(&self, limit: Duration) -> Result<Vec<Server>, Error> {
        let deadline = end_of(limit, Instant::now());
        match &self.topology {
            Topology::One(one) => {
                let endpoint = one.node.transport.endpoint();
                let found = endpoint.finder.as_ref().map(|finder| finder.find(deadline)).transpose()?;
                Ok(vec![Server::at(endpoint, found.unwrap_or_else(|| endpoint.address.clone()), Vec::new())])
            }
            Topology::Cluster(cluster) => {
                let masters = cluster.masters(deadline)?;
                let server = |(node, slots): (Arc<Node>, Vec<Slot>)| {
                    let endpoint = node.transport.endpoint();
                    Server::at(endpoint, endpoint.address.clone(), slots)
                };
                Ok(masters.into_iter().map(server).collect())
            }
        }
    }

    /// Runs requests together. Those that are likely to take a free key are tried in plain commands first.
    fn run_together(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        let (start, sent_at) = (Instant::now(), SystemClock.now());
        // An answer that does not come within the limit of an attempt shows that the connection is stuck.
        let (limit, at_limit) = match limit {
            Limit::Call(limit) => (limit, AtLimit::KeepConnection),
            Limit::Attempt(limit) => (limit, AtLimit::BreakConnection),
        };
        // In a Cluster each slot has a fence of its own, and no plain attempt is made.
        let Topology::One(one) = &self.topology else {
            return self.ask_all(requests, CallOptions { at_limit, ..CallOptions::within(limit) });
        };
        let OneServer { node, watermarks, contention } = &**one;
        let attempt = Attempt { transport: &node.transport, watermarks, contention, acks: node.acks, at_limit };
        let exchanges: Exchanges<'_> = requests.iter().map(|request| self.given_up.exchange(request)).collect();
        let answered = attempt.run(&exchanges, (start, limit));
        // The time that is left may be short, so an answer that does not come says nothing about the connection.
        let left = || limit.saturating_sub(start.elapsed());
        let (mut outcomes, mut again) = (Vec::with_capacity(requests.len()), SmallVec::<[_; 1]>::new());
        for (answered, exchange) in answered.into_iter().zip(&exchanges) {
            let (sent, place) = (&*exchange.sent, outcomes.len());
            // If the script must be called next for a request, the place of its outcome holds an error until then.
            let mut by_script = |busy| {
                again.push((place, busy));
                Err(mismatch())
            };
            outcomes.push(match answered {
                Answered::Called(reply) => self.end(exchange, reply, sent_at, limit),
                Answered::Tried(Ok(Tried::Done(outcome))) => Ok(Outcome::Acquire(outcome)),
                Answered::Tried(Ok(Tried::Unfinished(busy))) => by_script(busy),
                Answered::Tried(Ok(Tried::Doubtful)) => self.take_back(sent, left()).and_then(|()| by_script(None)),
                Answered::Tried(Ok(Tried::Unacknowledged(error))) => Err(self.undo(sent, error, left())),
                Answered::Tried(Err(error)) => Err(self.topology.address().hide(error)),
            });
        }
        if !again.is_empty() {
            let requests: SmallVec<[_; 1]> = again.iter().map(|(place, _)| requests[*place]).collect();
            let results: SmallVec<[_; 1]> = self.ask_all(&requests, CallOptions::within(left()));
            for ((place, busy), result) in again.into_iter().zip(results) {
                outcomes[place] = with_place(busy, result);
            }
        }
        outcomes
    }

    /// Takes back a key that a request has got and must not keep because of this error. Returns the error with which the request fails.
    fn undo(&self, request: &Request<'_>, error: Error, limit: Duration) -> Error {
        match self.take_back(request, limit) {
            Ok(()) => self.topology.address().hide(error),
            Err(Error::Backend { failure, message, source }) => {
                let message =
                    format!("{}; its release is not answered: {message}", self.topology.address().hide(error));
                Error::Backend { failure, message, source }
            }
            Err(other) => other,
        }
    }

    /// Removes whatever a request that takes a key may have left in the store.
    fn take_back(&self, request: &Request<'_>, limit: Duration) -> Result<(), Error> {
        let Some(claim) = request.claim() else { return Ok(()) };
        let start = Instant::now();
        let mut result = self.ask(&Request::Release(claim.with_poller_gap(None)), CallOptions::within(limit));
        if matches!(result, Err(Error::Conflict { .. })) {
            // The queue or the fence is of another type, so the release cannot hand over. A lease that ends at once frees the key.
            let ended = Claim::new(claim.key, claim.client, claim.locker, Duration::ZERO);
            let left = limit.saturating_sub(start.elapsed());
            result = self.ask(&Request::Extend(ended), CallOptions::within(left));
        }
        match result {
            Ok(_) => Ok(()),
            Err(Error::ShutDown) => Err(Error::ShutDown),
            // Whatever the error is, the locker may hold the key, and a release may still be executed late.
            Err(error) => {
                self.given_up.add(claim.locker);
                Err(error.into_unknown())
            }
        }
    }

    /// Runs one request by its script.
    fn ask(&self, request: &Request<'_>, options: CallOptions) -> Result<Outcome, Error> {
        let mut outcomes: SmallVec<[_; 1]> = self.ask_all(std::slice::from_ref(request), options);
        outcomes.pop().unwrap_or_else(|| Err(mismatch()))
    }

    /// Runs requests together, each by its script.
    fn ask_all<C>(&self, requests: &[Request<'_>], options: CallOptions) -> C
    where
        C: FromIterator<Result<Outcome, Error>>,
    {
        let exchanges: Exchanges<'_> = requests.iter().map(|request| self.given_up.exchange(request)).collect();
        let (sent_at, limit) = (SystemClock.now(), options.limit);
        let replies = self.topology.call(exchanges.iter().map(|exchange| Call::of(&exchange.sent)), options);
        exchanges.iter().zip(replies).map(|(exchange, reply)| self.end(exchange, reply, sent_at, limit)).collect()
    }

    /// Ends the exchange of a request that was sent at `sent_at`: reads the reply, and notes what it says about its connection and its key.
    /// If too few replicas have acknowledged that the request got the key, releases it, within what is left of the limit.
    fn end(&self, exchange: &Exchange<'_>, reply: Reply, sent_at: Moment, limit: Duration) -> Result<Outcome, Error> {
        let (sent, mut replied) = (&*exchange.sent, reply?);
        let left = || limit.saturating_sub(SystemClock.now().since(sent_at));
        if let Request::Break(order) = sent
            && let Some(bytes) = reply::holder_without_name(order, &replied.value)
        {
            replied = self.topology.call_one(Call::break_bytes(order.key, bytes), CallOptions::within(left()))?;
        }
        let outcome = reply::outcome(sent, &replied.value).map_err(|e| self.topology.shown(e));
        match &self.topology {
            Topology::One(one) => one.note(exchange, &replied, outcome.as_ref().ok(), sent_at),
            Topology::Cluster(cluster) => {
                if let Some(claim) = sent.claim() {
                    cluster.listeners.note_need(claim.client, claim.key, claim.lease);
                }
            }
        }
        let (outcome, confirmation) = (outcome?, replied.confirmation.as_deref());
        let Some(Err(error)) = self.acks.map(|acks| acks.check(sent, &outcome, confirmation)) else {
            return Ok(self.given_up.end(exchange, outcome));
        };
        Err(if acks::takes(sent) { self.undo(sent, error, left()) } else { self.topology.address().hide(error) })
    }

    fn post_all(&self, releases: Vec<(Claim<'_>, ReleaseDone)>, limit: Duration, time: PostTime) -> bool {
        let (requests, done): (Vec<_>, Vec<_>) =
            releases.into_iter().map(|(claim, done)| (Request::Release(claim), self.released(claim.key, done))).unzip();
        let calls = requests.iter().map(Call::of);
        match &self.topology {
            // In one write, when `time` says.
            Topology::One(one) => one.node.post_all(calls, limit, done, time),
            // One for each call, now.
            Topology::Cluster(cluster) => {
                for (call, done) in calls.zip(done) {
                    cluster.post(&call, KeyHash::of(call.key), limit, done);
                }
            }
        }
        true
    }

    /// Returns the callback of a posted release of a key.
    fn released(&self, key: &str, done: ReleaseDone) -> Callback {
        let (topology, key) = (self.topology.clone(), key.to_owned());
        Box::new(move |answer: CallReplies| {
            let reply = answer.first();
            let outcome = match (reply, &answer.failure) {
                (Some(reply), _) => reply::release(&key, reply).map_err(|e| topology.shown(e)),
                (None, failure) => Err(failure.clone().unwrap_or_else(mismatch)),
            };
            if let Topology::One(one) = &topology {
                one.note_release(KeyHash::of(&key), reply, outcome.as_ref().ok());
            }
            done(outcome);
        })
    }

    /// Publishes a text on the channel on which a client hears of this key. Returns the server's reply: the number of receivers.
    pub(super) fn publish(&self, client: &str, key: &str, text: &str, limit: Duration) -> Result<Value, Error> {
        let (channel, reply) = match &self.topology {
            Topology::One(_) => {
                let channel = inbox_channel(client);
                let words = ["PUBLISH", &channel, text];
                let reply = self.topology.call_one(Call::words(key, &words), CallOptions::within(limit));
                (channel, reply)
            }
            Topology::Cluster(cluster) => {
                let channel = slot_inbox_channel(slot_of(key.as_bytes()), client);
                let reply = RoutedBatch::publish(cluster, Call::words(key, &["SPUBLISH", &channel, text]), limit);
                (channel, reply)
            }
        };
        match reply?.value {
            Value::ServerError(e) => Err(self.topology.address().hide(classify(&e, &channel))),
            value => Ok(value),
        }
    }
}

/// Whether the request takes a key if it is free.
fn may_take(request: &Request<'_>) -> bool {
    matches!(request, Request::Acquire(_) | Request::Join(_))
}

impl LockProcessor for RedisLockProcessor {
    fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        match (requests, limit) {
            ([], _) => Vec::new(),
            ([request @ Request::Settle(_)], _) => vec![Err(request.unsupported())],
            _ if requests.iter().any(|request| matches!(request, Request::Settle(_))) => {
                one_by_one(requests, limit, |request, limit| self.run_one(*request, limit))
            }
            _ if requests.iter().any(may_take) => self.run_together(requests, limit),
            (_, Limit::Call(limit)) => self.ask_all(requests, CallOptions::within(limit)),
            (_, Limit::Attempt(limit)) => {
                // Renewals need no order among other commands for their keys: a late one finds another locker, or none, and changes nothing.
                // An extension that a caller asks for does not use their connection.
                let is_renewal = |request: &Request<'_>| matches!(request, Request::Extend(_) | Request::Probe(_));
                let urgent = requests.iter().all(is_renewal);
                let options = CallOptions { at_limit: AtLimit::BreakConnection, urgent, ..CallOptions::within(limit) };
                self.ask_all(requests, options)
            }
        }
    }

    fn keeps_waiting(&self, key: &str) -> bool {
        matches!(&self.topology, Topology::Cluster(cluster) if cluster.keeps_waiting(key))
    }

    fn is_expected_soon(&self, key: &str, since: Instant) -> bool {
        match &self.topology {
            Topology::One(one) => one.node.transport.yield_for_task(since),
            Topology::Cluster(cluster) => cluster.yield_for_task(key, since),
        }
    }

    fn limits(&self) -> StoreLimits {
        let outage = || match &self.topology {
            Topology::One(one) => {
                let finder = one.node.transport.endpoint().finder.as_ref();
                finder.map_or(Duration::ZERO, |finder| finder.outage())
            }
            Topology::Cluster(_) => CLUSTER_OUTAGE,
        };
        StoreLimits {
            command: self.io_timeout + self.acks.map_or(Duration::ZERO, |acks| acks.longest()),
            outage: self.outage.unwrap_or_else(outage),
            keeps_unheard: KEEP,
            extends_heard_grants: self.acks.is_some(),
            poller_gaps: true,
            numbers: true,
            breaks: true,
            longest_release_delay: LONGEST_RELEASE_DELAY,
            ..StoreLimits::default()
        }
    }

    fn has_answered(&self) -> bool {
        match &self.topology {
            Topology::One(one) => one.node.transport.has_answered(),
            Topology::Cluster(cluster) => cluster.has_answered(),
        }
    }

    fn on_new_server(&self, told: Box<dyn Fn(u64) + Send + Sync>) {
        match &self.topology {
            Topology::One(one) => one.node.servers().tell(told),
            Topology::Cluster(cluster) => cluster.tell(told),
        }
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
        match &self.topology {
            // One channel for all keys.
            Topology::One(one) => {
                let transport = &one.node.transport;
                if transport.is_closed() {
                    return Err(Error::ShutDown);
                }
                Ok(Box::new(RedisInbox::open(transport.endpoint(), client, limit, self.io_timeout)?))
            }
            // One channel in each slot.
            Topology::Cluster(cluster) if cluster.is_closed() => Err(Error::ShutDown),
            Topology::Cluster(cluster) => Ok(Box::new(ClusterInbox::open(cluster, client)?)),
        }
    }

    fn check_inbox(&self, client: &str, key: &str, limit: Duration) -> Result<(), Error> {
        // This word is a message in no version of the inbox.
        const WORD: &str = "hello";
        self.publish(client, key, WORD, limit).map(|_| ())
    }

    fn hears(&self, client: &str, key: &str) -> bool {
        match &self.topology {
            Topology::One(_) => true,
            Topology::Cluster(cluster) => cluster.listeners.hears(client, key),
        }
    }

    fn get_ready_to_hear(&self, client: &str, key: &str, limit: Duration) -> Result<(), Error> {
        match &self.topology {
            Topology::One(_) => Ok(()),
            Topology::Cluster(cluster) => cluster.listeners.get_ready_to_hear(client, key, limit),
        }
    }
}

impl Posting for RedisLockProcessor {
    fn post_release(&self, claim: &Claim<'_>, limit: Duration, done: ReleaseDone) -> bool {
        let (request, hash) = (Request::Release(*claim), KeyHash::of(claim.key));
        let (call, done) = (Call::of(&request), self.released(claim.key, done));
        match &self.topology {
            Topology::One(one) => one.node.post(&call, hash, limit, done),
            Topology::Cluster(cluster) => cluster.post(&call, hash, limit, done),
        }
        true
    }

    fn post_releases(&self, releases: Vec<(Claim<'_>, ReleaseDone)>, limit: Duration) -> bool {
        self.post_all(releases, limit, PostTime::Now)
    }

    fn post_releases_with_next(&self, releases: Vec<(Claim<'_>, ReleaseDone)>, limit: Duration) -> bool {
        self.post_all(releases, limit, PostTime::WithNext)
    }

    fn keeps_back(&self) -> bool {
        matches!(self.topology, Topology::One(_))
    }

    fn collect(&self) -> bool {
        match &self.topology {
            Topology::One(one) => one.node.transport.collect(),
            Topology::Cluster(cluster) => cluster.collect(),
        }
    }
}

impl Drop for RedisLockProcessor {
    fn drop(&mut self) {
        self.topology.close();
    }
}

impl fmt::Debug for RedisLockProcessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLockProcessor").field("address", self.topology.address()).finish_non_exhaustive()
    }
}
