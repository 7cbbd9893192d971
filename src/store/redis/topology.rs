//! Which servers keep the locks: one server, or the nodes of a Cluster.
//!
//! There are two kinds of topology and no others, so each question of the store has one `match`, in which both answers stand side by side. If
//! one of them is missing, the crate does not compile. This file has the questions that have several callers, and what is known of one server.

use super::cluster::{Cluster, RoutedBatch};
use super::net::address::Address;
use super::net::classify::is_no_master;
use super::node::{CallOptions, Node};
use super::plain::{Contention, Exchange, FenceWatermarks};
use super::script::reply::{self, mismatch};
use super::script::scripts::{Call, Form};
use super::transport::{KeyHash, Replied, Replies, Reply};
use crate::clock::Moment;
use crate::error::Error;
use crate::port::{Outcome, ReleaseOutcome};
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
    /// Returns the address of the store, whose login no error may show.
    pub(super) fn address(&self) -> &Address {
        match self {
            Self::One(one) => &one.node.transport.endpoint().address,
            Self::Cluster(cluster) => cluster.address(),
        }
    }

    /// Returns the error of a script as people are to see it: with the name of the key, and without the login.
    pub(super) fn shown(&self, error: Error) -> Error {
        reply::with_name(self.address().hide(error), self.form())
    }

    /// Returns the form of the scripts that it runs.
    pub(super) fn form(&self) -> Form {
        match self {
            Self::One(_) => Form::Server,
            Self::Cluster(_) => Form::Cluster,
        }
    }

    /// Sends one command to any one server.
    pub(super) fn say(&self, words: &[&str], limit: Duration) -> Result<Value, Error> {
        match self {
            Self::One(one) => one.node.say(words, limit),
            Self::Cluster(cluster) => cluster.say(words, limit),
        }
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
    pub(super) watermarks: FenceWatermarks,
    pub(super) contention: Contention,
}

impl OneServer {
    /// Creates the store's view of one server. When another server answers, the watermarks end before the connection to that server is
    /// used, because the function that is given to `tell` is called before that.
    pub(super) fn new(node: Node) -> Arc<Self> {
        let one = Arc::new(Self { node, watermarks: FenceWatermarks::new(), contention: Contention::new() });
        let weak: Weak<Self> = Arc::downgrade(&one);
        one.node.servers().tell(Box::new(move |_| {
            if let Some(one) = weak.upgrade() {
                one.watermarks.end_all(&one.node.transport);
            }
        }));
        one
    }

    /// Notes what a reply says about its server, and the outcome about its key. The request was sent at `sent_at`.
    pub(super) fn note(&self, exchange: &Exchange<'_>, replied: &Replied, outcome: Option<&Outcome>, sent_at: Moment) {
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

    /// Notes the reply to a posted release, if there is one, and the outcome.
    pub(super) fn note_release(&self, key: KeyHash, reply: Option<&Value>, outcome: Option<&ReleaseOutcome>) {
        match outcome {
            Some(outcome) => self.contention.note_release(key, outcome),
            None if reply.is_some_and(is_no_master) => self.watermarks.end_all(&self.node.transport),
            None => {}
        }
    }
}
