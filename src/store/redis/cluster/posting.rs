//! Posted calls, whose replies no caller waits for, and commands that concern no lock.
//!
//! A posted release is sent once, to the owner of its slot by the present map. If it is redirected, it fails as not executed. If its node
//! does not answer, it fails with an unknown outcome. In both cases the client repeats the release by a call that it waits for. So no
//! posted call is ever sent to a second node, and a posting thread never waits for a node that is known to be silent.

use super::core::Cluster;
use super::redirect::{RedirectReply, redirect_reply, words};
use super::timing::{COOLDOWN, PUBLISH_LIMIT};
use crate::error::{BackendFailure, Error};
use crate::store::redis::node::{CallOptions, Node};
use crate::store::redis::script::keys::slot_of;
use crate::store::redis::script::reply::mismatch;
use crate::store::redis::script::scripts::Call;
use crate::store::redis::transport::{CallReplies, Callback, KeyHash, Reply};
use crate::timing::end_of;
use ::redis::Value;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

impl Cluster {
    /// Sends one call about a key with this hash, and returns without its reply, which `done` receives. A call that is redirected is not sent again, because nobody
    /// waits for it: it fails as not executed. So does one to a node that is silent, or to which no connection could be opened a moment ago:
    /// its caller would wait for that node until the call is written.
    pub(crate) fn post(&self, call: &Call<'_>, hash: KeyHash, limit: Duration, done: Callback) {
        let slot = slot_of(call.key().as_bytes());
        // By the map alone. To wait for one would block the thread that drops a guard.
        let Some(node) = self.refresher.fresh_view(Instant::now()).owner(slot).cloned() else {
            return done(CallReplies::failed(self.unowned(slot)));
        };
        // `done` runs on this thread then, and the release goes on the clean-up list, whose thread may wait.
        if is_not_tried(&node) {
            let message = format!("{}: not tried: it has not answered lately", node.transport.endpoint().address);
            return done(CallReplies::failed(Error::backend(BackendFailure::NotExecuted, message)));
        }
        let this = Weak::clone(&self.this);
        // Weak, both: a reply that never comes must keep neither the Cluster nor a node that was replaced.
        let weak_node = Arc::downgrade(&node);
        let callback = move |mut answer: CallReplies| {
            // `done` is called in every case. The caller counts its releases that are under way, and the end of the main thread waits for
            // them.
            let Some(cluster) = this.upgrade() else { return done(answer) };
            match answer.first() {
                // The owner has answered, also if the answer is an error: it has executed the script, or refused it.
                Some(value) if redirect_reply(value) == RedirectReply::Answer => {}
                Some(value) => {
                    if let RedirectReply::Moved { host, port } = redirect_reply(value)
                        && let Some(node) = weak_node.upgrade()
                    {
                        // The map takes the news in, so that the repetition goes to the right node at once.
                        cluster.redirect(slot, &node, host, port);
                    }
                    cluster.refresher.want();
                    let message = format!("the slot is at another node, or moving: {}", words(value));
                    answer = CallReplies::failed(Error::backend(BackendFailure::NotExecuted, message));
                }
                None => {
                    cluster.refresher.want();
                    // A node's end is not that of the store. Told as such, the client would give up a release that another node can still
                    // take.
                    if matches!(answer.failure, Some(Error::ShutDown)) && !cluster.is_closed() {
                        // The node was replaced, or has left the Cluster.
                        let message = "the connection to the node was closed";
                        answer.failure = Some(Error::backend(BackendFailure::Unknown, message));
                    }
                }
            }
            // Before `done`, which may run code of any length: this may be the last pointer.
            drop(cluster);
            done(answer);
        };
        node.post(call, hash, limit, Box::new(callback));
    }

    /// Takes in the answers that have come for posted calls. Returns `true` if some are still missing.
    pub(crate) fn collect(&self) -> bool {
        // Visits all nodes; `any` would stop at the first that misses an answer.
        self.map.nodes.all().iter().filter(|node| node.transport.collect()).count() > 0
    }

    /// Sends one command to the first node that answers. Each leaves the nodes behind it their shares of the time.
    ///
    /// # Errors
    ///
    /// That of the last node.
    pub(crate) fn say(&self, words: &[&str], limit: Duration) -> Result<Value, Error> {
        let deadline = end_of(limit, Instant::now());
        self.refresher.wait_for_first(deadline)?;
        // For a map without nodes. What follows replaces it with the words of a node.
        let mut failure = self.unowned(0);
        let nodes = &self.map.view().nodes;
        for (n, node) in nodes.iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            // A node that hangs uses up its own share alone.
            match node.say(words, left.div_f64((nodes.len() - n) as f64)) {
                Ok(value) => return Ok(value),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Makes a call on which nothing depends. Takes [`PUBLISH_LIMIT`] at most once the map is known: the call that the caller is about to make
    /// needs its limit.
    pub(crate) fn publish(&self, call: Call<'_>, limit: Duration) -> Reply {
        // The caller's own request needs the map as well, so the wait for it has the caller's limit.
        self.refresher.wait_for_first(end_of(limit, Instant::now()))?;
        let options = CallOptions::within(limit.min(PUBLISH_LIMIT));
        self.call(std::iter::once(call), &options).pop().unwrap_or_else(|| Err(mismatch()))
    }

    /// Returns the first of the masters whose address is not before this one, and the address of the master behind it. Masters are in the
    /// order of their addresses, so that a change of the map meanwhile repeats none and leaves out none that stays.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if no node tells a map in time.
    pub(crate) fn master_from(
        &self,
        address: &str,
        limit: Duration,
    ) -> Result<(Option<Master>, Option<String>), Error> {
        self.refresher.wait_for_first(end_of(limit, Instant::now()))?;
        let view = self.map.view();
        let of = |node: &Arc<Node>| (node.transport.endpoint().address.to_string(), Arc::clone(node));
        let mut masters: Vec<_> = view.nodes.iter().map(of).filter(|(known, _)| known.as_str() >= address).collect();
        masters.sort_by(|(a, _), (b, _)| a.cmp(b));
        // Two places can have one address by the program's map of addresses. The caller goes on behind an address, and would meet the
        // second one for ever.
        masters.dedup_by(|(a, _), (b, _)| a == b);
        let mut masters = masters.into_iter();
        let first = masters.next().map(|(address, node)| (node, address));
        Ok((first, masters.next().map(|(address, _)| address)))
    }

    /// Asks a master for what is asked of all. If it gives no answer, the map is asked for: another node may have its place by now.
    pub(crate) fn ask_master(&self, master: &Node, words: &[&str], limit: Duration) -> Result<Value, Error> {
        // Only to have an old map renewed: the masters were chosen by the caller, who may list for minutes.
        drop(self.refresher.fresh_view(Instant::now()));
        let reply = master.say(words, limit);
        if reply.is_err() {
            self.refresher.want();
        }
        reply
    }
}

/// A master, and its address.
type Master = (Arc<Node>, String);

fn is_not_tried(node: &Node) -> bool {
    node.is_silent() || node.transport.is_cooling_down(COOLDOWN)
}
