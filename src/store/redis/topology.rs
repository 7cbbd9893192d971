//! Which servers keep the locks: one server, or the nodes of a Cluster. The code that makes a call does not know which of the two it is.
//!
//! There are two kinds of topology and no others, so each question has one `match`, in which both answers stand side by side. If
//! one of them is missing, the crate does not compile.

use super::cluster::{Cluster, ClusterInbox, RoutedBatch};
use super::inbox::RedisInbox;
use super::net::classify::is_no_master;
use super::net::identity::OnNewServer;
use super::node::{CallOptions, Node};
use super::plain::{Attempt, Contention, Exchange, FenceWatermarks};
use super::script::keys::{inbox_channel, slot_inbox_channel, slot_of};
use super::script::reply::mismatch;
use super::script::scripts::{Call, Form};
use super::transport::{AtLimit, Callback, KeyHash, PostTime, Replied, Replies, Reply};
use crate::clock::Moment;
use crate::error::Error;
use crate::port::{Inbox, Outcome, ReleaseOutcome, Request};
use ::redis::Value;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The servers of a store.
#[derive(Clone)]
pub(super) enum Topology {
    One(Arc<OneServer>),
    Cluster(Arc<Cluster>),
}

impl Topology {
    /// Returns `true` if the one server was refused because it is a node of a Cluster.
    pub(super) fn has_met_cluster(&self) -> bool {
        match self {
            Self::One(one) => one.node.servers().is_cluster(),
            Self::Cluster(_) => false,
        }
    }

    /// Returns the form of the scripts that it runs.
    pub(super) fn form(&self) -> Form {
        match self {
            Self::One(_) => Form::Server,
            Self::Cluster(_) => Form::Cluster,
        }
    }

    /// Connects, and waits until a server has accepted the login.
    pub(super) fn connect(&self, limit: Duration) -> Result<(), Error> {
        match self {
            Self::One(one) => one.node.transport.connect(limit),
            // `HELLO` is the only command that no access rule can forbid.
            Self::Cluster(cluster) => cluster.say(&["HELLO"], limit).map(drop),
        }
    }

    /// Sends one command to any one server.
    pub(super) fn say(&self, words: &[&str], limit: Duration) -> Result<Value, Error> {
        match self {
            Self::One(one) => one.node.say(words, limit),
            Self::Cluster(cluster) => cluster.say(words, limit),
        }
    }

    /// Returns how to take keys in plain commands. `None` for a Cluster, where each slot has a fence of its own.
    pub(super) fn attempt(&self, at_limit: AtLimit) -> Option<Attempt<'_>> {
        let Self::One(one) = self else { return None };
        let OneServer { node, watermarks, contention, .. } = &**one;
        Some(Attempt { transport: &node.transport, watermarks, contention, acks: node.acks, at_limit })
    }

    /// Makes calls together. Returns a reply for each.
    pub(super) fn call<'a>(&self, calls: impl ExactSizeIterator<Item = Call<'a>>, options: CallOptions) -> Replies {
        match self {
            Self::One(one) => one.node.call(calls, options),
            Self::Cluster(cluster) => RoutedBatch::run(cluster, calls, &options),
        }
    }

    /// Makes one call.
    pub(super) fn call_one(&self, call: Call<'_>, options: CallOptions) -> Reply {
        self.call(std::iter::once(call), options).pop().unwrap_or_else(|| Err(mismatch()))
    }

    /// Sends one call about a key with this hash, and returns without its reply, which `done` receives.
    pub(super) fn post(&self, call: Call<'_>, hash: KeyHash, limit: Duration, done: Callback) {
        match self {
            Self::One(one) => one.node.post(&call, hash, limit, done),
            Self::Cluster(cluster) => cluster.post(&call, hash, limit, done),
        }
    }

    /// Sends calls, and returns without their replies, which `done` receives, one for each. One server gets them in one write, when `time` says; the
    /// nodes of a Cluster get one for each call, now.
    pub(super) fn post_all(&self, requests: &[Request<'_>], limit: Duration, done: Vec<Callback>, time: PostTime) {
        let calls = requests.iter().map(Call::of);
        match self {
            Self::One(one) => one.node.post_all(calls, limit, done, time),
            Self::Cluster(cluster) => {
                for (call, done) in calls.zip(done) {
                    cluster.post(&call, KeyHash::of(call.key), limit, done);
                }
            }
        }
    }

    /// Takes in the answers that have come to posted calls. Returns `true` if some answers are still missing.
    pub(super) fn collect(&self) -> bool {
        match self {
            Self::One(one) => one.node.transport.collect(),
            Self::Cluster(cluster) => cluster.collect(),
        }
    }

    /// Notes what a reply says about its server, and the outcome about its key. The request was sent at `sent_at`.
    pub(super) fn note(&self, exchange: &Exchange<'_>, replied: &Replied, outcome: Option<&Outcome>, sent_at: Moment) {
        match self {
            Self::One(one) => one.note(exchange, replied, outcome, sent_at),
            Self::Cluster(cluster) => {
                if let Some(claim) = exchange.sent.claim() {
                    cluster.listeners.note_need(claim.client, claim.key, claim.lease);
                }
            }
        }
    }

    /// Notes the reply to a posted release, if there is one, and the outcome.
    pub(super) fn note_release(&self, key: KeyHash, reply: Option<&Value>, outcome: Option<&ReleaseOutcome>) {
        match self {
            Self::One(one) => one.note_release(key, reply, outcome),
            Self::Cluster(_) => {}
        }
    }

    /// Returns `true` if a common batch should not wait for the server of this key.
    pub(super) fn keeps_waiting(&self, key: &str) -> bool {
        match self {
            Self::One(_) => false,
            Self::Cluster(cluster) => cluster.keeps_waiting(key),
        }
    }

    /// Returns `true` if a server has ever answered.
    pub(super) fn has_answered(&self) -> bool {
        match self {
            Self::One(one) => one.node.transport.has_answered(),
            Self::Cluster(cluster) => cluster.has_answered(),
        }
    }

    /// Adds a function that is called when another server than before answers.
    pub(super) fn tell(&self, on_new_server: Box<OnNewServer>) {
        match self {
            Self::One(one) => one.node.servers().tell(on_new_server),
            Self::Cluster(cluster) => cluster.tell(on_new_server),
        }
    }

    /// Opens the inbox of a client. On one server an inbox is one channel for all keys. In a Cluster it is one channel in each slot.
    pub(super) fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error> {
        match self {
            Self::One(one) => {
                let transport = &one.node.transport;
                if transport.is_closed() {
                    return Err(Error::ShutDown);
                }
                Ok(Box::new(RedisInbox::open(transport.endpoint(), client, limit, one.io_timeout)?))
            }
            Self::Cluster(cluster) if cluster.is_closed() => Err(Error::ShutDown),
            Self::Cluster(cluster) => Ok(Box::new(ClusterInbox::open(cluster, client)?)),
        }
    }

    /// Publishes a text on the channel on which a client hears of this key. Returns the channel, and the server's reply.
    pub(super) fn publish(&self, client: &str, key: &str, text: &str, limit: Duration) -> (String, Reply) {
        match self {
            Self::One(_) => {
                let channel = inbox_channel(client);
                let reply = self.call_one(Call::words(key, &["PUBLISH", &channel, text]), CallOptions::within(limit));
                (channel, reply)
            }
            Self::Cluster(cluster) => {
                let channel = slot_inbox_channel(slot_of(key.as_bytes()), client);
                let reply = RoutedBatch::publish(cluster, Call::words(key, &["SPUBLISH", &channel, text]), limit);
                (channel, reply)
            }
        }
    }

    /// Returns `true` if a client with an open inbox hears of grants of this key.
    pub(super) fn hears(&self, client: &str, key: &str) -> bool {
        match self {
            Self::One(_) => true,
            Self::Cluster(cluster) => cluster.listeners.hears(client, key),
        }
    }

    /// Waits until a client hears of grants of this key.
    pub(super) fn get_ready_to_hear(&self, client: &str, key: &str, limit: Duration) -> Result<(), Error> {
        match self {
            Self::One(_) => Ok(()),
            Self::Cluster(cluster) => cluster.listeners.get_ready_to_hear(client, key, limit),
        }
    }

    pub(super) fn close(&self) {
        match self {
            Self::One(one) => one.node.transport.close(),
            Self::Cluster(cluster) => cluster.close(),
        }
    }
}

/// One server, and what is known about its keys and fence numbers.
pub(super) struct OneServer {
    pub(super) node: Node,
    watermarks: FenceWatermarks,
    contention: Contention,
    io_timeout: Duration,
}

impl OneServer {
    /// Creates the store's view of one server. When another server answers, the watermarks end before the connection to that server is
    /// used, because the function that is given to `tell` is called before that.
    pub(super) fn new(node: Node, io_timeout: Duration) -> Arc<Self> {
        let one = Self { node, watermarks: FenceWatermarks::new(), contention: Contention::new(), io_timeout };
        let one = Arc::new(one);
        let weak: Weak<Self> = Arc::downgrade(&one);
        one.node.servers().tell(Box::new(move |_| {
            if let Some(one) = weak.upgrade() {
                one.watermarks.end_all(&one.node.transport);
            }
        }));
        one
    }

    /// Notes what a reply says about its server, and the outcome about its key. The request was sent at `sent_at`.
    fn note(&self, exchange: &Exchange<'_>, replied: &Replied, outcome: Option<&Outcome>, sent_at: Moment) {
        let transport = &self.node.transport;
        match outcome {
            Some(outcome) => {
                self.watermarks.note(transport, replied.epoch, outcome, sent_at);
                self.contention.note(exchange.hash, outcome);
            }
            // A refusal has no outcome.
            None if is_no_master(&replied.value) => self.watermarks.end_all(transport),
            None => {}
        }
    }

    fn note_release(&self, key: KeyHash, reply: Option<&Value>, outcome: Option<&ReleaseOutcome>) {
        match outcome {
            Some(outcome) => self.contention.note_release(key, outcome),
            None if reply.is_some_and(is_no_master) => self.watermarks.end_all(&self.node.transport),
            None => {}
        }
    }
}
