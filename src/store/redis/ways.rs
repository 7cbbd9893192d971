//! The way from requests to servers: one server, or the nodes of a Cluster. What a request is, neither knows.

use super::cluster::Cluster;
use super::inbox::RedisInbox;
use super::net::classify::is_no_master;
use super::net::identity::OnNewServer;
use super::node::{CallOptions, Node};
use super::plain::{Contention, FenceWatermarks};
use super::script::keys::{inbox_channel, slot_inbox_channel};
use super::script::reply::{mismatch, number_of};
use super::script::scripts::{Call, Form};
use super::script::slot::slot_of;
use super::transport::{Callback, KeyHash, Replied, Replies, Reply};
use crate::clock::Moment;
use crate::error::Error;
use crate::port::{Inbox, Outcome, ReleaseOutcome, Request};
use ::redis::Value;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Where calls of scripts go.
pub(super) trait Ways: Messages + fmt::Debug + Send + Sync {
    /// Returns the form in which scripts are sent.
    fn form(&self) -> Form;

    /// Connects, and waits until a server has accepted the login.
    fn connect(&self, limit: Duration) -> Result<(), Error>;

    /// Sends one command to a server, whichever it is.
    fn say(&self, words: &[&str], limit: Duration) -> Result<Value, Error>;

    /// Runs calls together. Returns a reply for each.
    fn run(&self, calls: &[Call<'_>], options: CallOptions) -> Replies;

    /// Sends one call and returns without its reply, which `done` receives.
    fn post(&self, call: &Call<'_>, limit: Duration, done: Callback);

    /// Takes in the answers that have come for posted calls. Returns `true` if some are still missing.
    fn collect(&self) -> bool;

    /// Notes what a reply says about its server, and the outcome about its key. The request was sent at `sent_at`.
    fn note(&self, request: &Request<'_>, replied: &Replied, outcome: Option<&Outcome>, sent_at: Moment);

    /// Returns `true` if a batch should not wait for the server of this key beside others.
    fn keeps_waiting(&self, key: &str) -> bool;

    /// Returns `true` if a server has ever answered.
    fn has_answered(&self) -> bool;

    /// Takes a function to call when another server answers than before.
    fn tell(&self, on_new_server: Box<OnNewServer>);

    fn is_closed(&self) -> bool;

    fn close(&self);

    /// Runs one call, within `limit`.
    fn call(&self, call: &Call<'_>, limit: Duration) -> Reply {
        self.run(std::slice::from_ref(call), CallOptions::within(limit)).pop().unwrap_or_else(|| Err(mismatch()))
    }
}

/// What servers tell clients.
pub(super) trait Messages {
    fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error>;

    /// Publishes a text in the inbox of a client, where it hears of this key. Returns the channel, and the server's reply.
    fn publish(&self, client: &str, key: &str, text: &str, limit: Duration) -> Result<(String, Value), Error>;

    /// Returns `true` if a client with an open inbox hears of grants of this key.
    fn hears(&self, client: &str, key: &str) -> bool;

    /// Waits until a client hears of grants of this key.
    fn get_ready_to_hear(&self, client: &str, key: &str, limit: Duration) -> Result<(), Error>;
}

/// Which servers there are.
#[derive(Clone, Debug)]
pub(super) enum Topology {
    One(Arc<OneServer>),
    Cluster(Arc<Cluster>),
}

impl Topology {
    pub(super) fn ways(&self) -> &dyn Ways {
        match self {
            Self::One(one) => &**one,
            Self::Cluster(cluster) => &**cluster,
        }
    }

    /// Returns the one server, if there is only one.
    pub(super) fn one(&self) -> Option<&OneServer> {
        match self {
            Self::One(one) => Some(one),
            Self::Cluster(_) => None,
        }
    }
}

/// One server, and what is known of its keys and numbers.
pub(super) struct OneServer {
    pub(super) node: Node,
    pub(super) watermarks: FenceWatermarks,
    pub(super) contention: Contention,
    io_timeout: Duration,
}

impl OneServer {
    /// The watermarks end when another server answers: before the connection to that server is used, because it is told then.
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

    /// Notes the answer to a posted release.
    pub(super) fn note_release(&self, key: KeyHash, reply: Option<&Value>, outcome: Option<&ReleaseOutcome>) {
        if reply.is_some_and(is_no_master) {
            self.watermarks.end_all(&self.node.transport);
        }
        if let Some(outcome) = outcome {
            self.contention.note_release(key, outcome);
        }
    }
}

impl fmt::Debug for OneServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("One").field(&self.node).finish()
    }
}

impl Ways for OneServer {
    fn form(&self) -> Form {
        Form::Server
    }

    fn connect(&self, limit: Duration) -> Result<(), Error> {
        self.node.connect(limit)
    }

    fn say(&self, words: &[&str], limit: Duration) -> Result<Value, Error> {
        self.node.say(words, limit)
    }

    fn run(&self, calls: &[Call<'_>], options: CallOptions) -> Replies {
        self.node.run(calls, options)
    }

    fn post(&self, call: &Call<'_>, limit: Duration, done: Callback) {
        self.node.post(call, limit, done);
    }

    fn collect(&self) -> bool {
        self.node.transport.collect()
    }

    fn note(&self, request: &Request<'_>, replied: &Replied, outcome: Option<&Outcome>, sent_at: Moment) {
        if is_no_master(&replied.value) {
            self.watermarks.end_all(&self.node.transport);
        }
        let Some(outcome) = outcome else { return };
        if let Some(number) = number_of(outcome) {
            self.watermarks.note(&self.node.transport, replied.epoch, number, sent_at);
        }
        self.contention.note(KeyHash::of(request.key()), outcome);
    }

    fn keeps_waiting(&self, _: &str) -> bool {
        false
    }

    fn has_answered(&self) -> bool {
        self.node.transport.has_answered()
    }

    fn tell(&self, on_new_server: Box<OnNewServer>) {
        self.node.servers().tell(on_new_server);
    }

    fn is_closed(&self) -> bool {
        self.node.transport.is_closed()
    }

    fn close(&self) {
        self.node.transport.close();
    }
}

/// A client hears of all keys in one channel.
impl Messages for OneServer {
    fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error> {
        Ok(Box::new(RedisInbox::open(self.node.transport.endpoint(), client, limit, self.io_timeout)?))
    }

    fn publish(&self, client: &str, _: &str, text: &str, limit: Duration) -> Result<(String, Value), Error> {
        let channel = inbox_channel(client);
        let reply = self.node.say(&["PUBLISH", &channel, text], limit)?;
        Ok((channel, reply))
    }

    fn hears(&self, _: &str, _: &str) -> bool {
        true
    }

    fn get_ready_to_hear(&self, _: &str, _: &str, _: Duration) -> Result<(), Error> {
        Ok(())
    }
}

impl Ways for Cluster {
    fn form(&self) -> Form {
        Form::Cluster
    }

    fn connect(&self, limit: Duration) -> Result<(), Error> {
        // `HELLO` is the only command that no access rule can forbid.
        self.say(&["HELLO"], limit).map(drop)
    }

    fn say(&self, words: &[&str], limit: Duration) -> Result<Value, Error> {
        Self::say(self, words, limit)
    }

    fn run(&self, calls: &[Call<'_>], options: CallOptions) -> Replies {
        Self::run(self, calls, &options)
    }

    fn post(&self, call: &Call<'_>, limit: Duration, done: Callback) {
        Self::post(self, call, limit, done);
    }

    fn collect(&self) -> bool {
        Self::collect(self)
    }

    fn note(&self, request: &Request<'_>, _: &Replied, _: Option<&Outcome>, _: Moment) {
        if let Some(claim) = request.claim() {
            self.listeners.note_need(claim.client, claim.key, claim.lease);
        }
    }

    fn keeps_waiting(&self, key: &str) -> bool {
        Self::keeps_waiting(self, key)
    }

    fn has_answered(&self) -> bool {
        Self::has_answered(self)
    }

    fn tell(&self, on_new_server: Box<OnNewServer>) {
        Self::tell(self, on_new_server);
    }

    fn is_closed(&self) -> bool {
        Self::is_closed(self)
    }

    fn close(&self) {
        Self::close(self);
    }
}

/// A client hears of the keys of each slot in a channel of its own.
impl Messages for Cluster {
    fn open_inbox(&self, client: &str, _: Duration) -> Result<Box<dyn Inbox>, Error> {
        Ok(Box::new(Self::open_inbox(self, client)?))
    }

    fn publish(&self, client: &str, key: &str, text: &str, limit: Duration) -> Result<(String, Value), Error> {
        let slot = slot_of(key.as_bytes());
        let channel = slot_inbox_channel(slot, client);
        let reply = Self::publish(self, slot, &channel, text, limit)?;
        Ok((channel, reply))
    }

    fn hears(&self, client: &str, key: &str) -> bool {
        self.listeners.hears(client, key)
    }

    fn get_ready_to_hear(&self, client: &str, key: &str, limit: Duration) -> Result<(), Error> {
        self.listeners.get_ready_to_hear(client, key, limit)
    }
}
