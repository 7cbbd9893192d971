//! The way from requests to servers: one server, or the nodes of a Cluster.

use super::cluster::Cluster;
use super::node::Node;
use super::script::scripts::{Call, Form};
use super::transport::{Answer, Reply};
use crate::error::Error;
use ::redis::Value;
use std::sync::Arc;
use std::time::Duration;

/// See the module.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a store has one of it; a box would cost each call a look")]
pub(super) enum Ways {
    One(Node),
    Cluster(Arc<Cluster>),
}

impl Ways {
    /// Returns the form in which scripts are sent.
    pub(super) fn form(&self) -> Form {
        match self {
            Self::One(_) => Form::Server,
            Self::Cluster(_) => Form::Cluster,
        }
    }

    /// Returns the one server, if there is only one.
    pub(super) fn one(&self) -> Option<&Node> {
        match self {
            Self::One(node) => Some(node),
            Self::Cluster(_) => None,
        }
    }

    /// Connects, and waits until a server has accepted the login.
    pub(super) fn connect(&self, limit: Duration) -> Result<(), Error> {
        match self {
            Self::One(node) => node.connect(limit),
            // `HELLO` is the only command that no access rule can forbid.
            Self::Cluster(cluster) => cluster.say(&["HELLO"], limit).map(drop),
        }
    }

    /// Sends one command to a server, whichever it is.
    pub(super) fn say(&self, words: &[&str], limit: Duration) -> Result<Value, Error> {
        match self {
            Self::One(node) => node.say(words, limit),
            Self::Cluster(cluster) => cluster.say(words, limit),
        }
    }

    /// Runs one call, within `limit`.
    pub(super) fn call(&self, call: &Call<'_>, limit: Duration) -> Reply {
        match self {
            Self::One(node) => node.call(call, limit),
            Self::Cluster(cluster) => cluster.call(call, limit),
        }
    }

    /// Runs calls together. With `or_break`, a limit that ends before an answer breaks the connection of that answer.
    pub(super) fn run(&self, calls: &[Call<'_>], limit: Duration, or_break: bool, urgent: bool) -> Vec<Reply> {
        match self {
            Self::One(node) => node.run(calls, limit, or_break, urgent),
            Self::Cluster(cluster) => cluster.run(calls, limit, or_break, urgent),
        }
    }

    /// Returns `true` if a batch should not wait for the server of this key beside others.
    pub(super) fn keeps_waiting(&self, key: &str) -> bool {
        match self {
            Self::One(_) => false,
            Self::Cluster(cluster) => cluster.keeps_waiting(key),
        }
    }

    /// Returns `true` if a release of this key can be posted.
    pub(super) fn may_post(&self, key: &str) -> bool {
        match self {
            Self::One(node) => node.knows_release(),
            Self::Cluster(cluster) => cluster.may_post(key),
        }
    }

    /// Sends one call and returns without its reply, which `done` receives.
    pub(super) fn post(&self, call: &Call<'_>, limit: Duration, done: impl FnOnce(Answer) + Send + 'static) {
        match self {
            Self::One(node) => node.post(call, limit, done),
            Self::Cluster(cluster) => cluster.post(call, limit, done),
        }
    }

    /// Takes in the answers that have come for posted calls. Returns `true` if some are still missing.
    pub(super) fn collect(&self) -> bool {
        match self {
            Self::One(node) => node.transport.collect(),
            Self::Cluster(cluster) => cluster.collect(),
        }
    }

    /// Returns `true` if a server has ever answered.
    pub(super) fn has_answered(&self) -> bool {
        match self {
            Self::One(node) => node.transport.has_answered(),
            Self::Cluster(cluster) => cluster.has_answered(),
        }
    }

    /// Takes a function to call whenever another server answers than before.
    pub(super) fn tell(&self, told: Box<dyn Fn(u64) + Send + Sync>) {
        match self {
            Self::One(node) => node.servers().tell(told),
            Self::Cluster(cluster) => cluster.tell(told),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::One(node) => node.transport.is_closed(),
            Self::Cluster(cluster) => cluster.is_closed(),
        }
    }

    pub(super) fn close(&self) {
        match self {
            Self::One(node) => node.transport.close(),
            Self::Cluster(cluster) => cluster.close(),
        }
    }
}
