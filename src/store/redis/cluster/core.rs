//! The core of a Cluster store: the map by which calls find their nodes, the thread that keeps the map new, and the open inboxes. This file also has
//! posted calls, whose replies no caller waits for, and commands that concern no lock.

use super::inbox::listeners::Listeners;
use super::map::Map;
use super::nodes::Reach;
use super::redirect::{RedirectReply, redirect_reply, words};
use super::refresh::Refresher;
use super::timing::COOLDOWN;
use crate::error::{BackendFailure, Error};
use crate::process::Process;
use crate::store::redis::net::address::{Address, Place};
use crate::store::redis::net::hosts::AddressMap;
use crate::store::redis::net::identity;
use crate::store::redis::node::Node;
use crate::store::redis::script::keys::{SLOTS, Slot, slot_of};
use crate::store::redis::script::scripts::Call;
use crate::store::redis::transport::{CallReplies, Callback, KeyHash};
use crate::timing::end_of;
use ::redis::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct Cluster {
    pub(super) map: Arc<Map>,
    pub(super) refresher: Arc<Refresher>,
    pub(crate) listeners: Arc<Listeners>,
    /// The process that made the Cluster.
    process: Process,
}

/// Nodes that own slots, each with its slots.
pub(crate) type Masters = Vec<(Arc<Node>, Vec<Slot>)>;

impl Cluster {
    /// Makes a Cluster of these configured nodes, which connects with its first call.
    pub(crate) fn new(seeds: Vec<Address>, reach: Reach, address_map: Option<AddressMap>) -> Arc<Self> {
        let seeds = seeds.into_iter().map(|seed| seed.place).collect();
        // The map tells the listening threads of changes, so it has them; the refresher asks for maps, so it has the map. Nothing below
        // knows the Cluster itself, and no circle of pointers keeps it alive.
        let listeners = Arc::<Listeners>::default();
        let map = Arc::new(Map::new(reach, address_map, Arc::clone(&listeners)));
        let refresher = Arc::new(Refresher::new(seeds, Arc::clone(&map)));
        Arc::new(Self { map, refresher, listeners, process: Process::this() })
    }

    /// Returns the address of the first configured node, with the login for all.
    pub(crate) fn address(&self) -> &Address {
        &self.map.nodes.reach.endpoint.address
    }

    /// Notes that a node has redirected a call of a slot to an address, which the node tells as `host` and `port`. Returns the node to which such
    /// calls go now; `None` if the address cannot be read, or if the node named itself and was made again for that a moment ago.
    pub(super) fn redirect(&self, slot: Slot, by: &Arc<Node>, host: &str, port: u16) -> Option<Arc<Node>> {
        let Some(place) = self.map.place(by, host, port) else {
            self.refresher.want();
            return None;
        };
        self.follow_to(&place, slot, by)
    }

    /// Notes that a node has redirected a call of a slot to this place. Returns the node to which such calls go now; `None` if the node named itself
    /// and was made again for that a moment ago.
    pub(super) fn follow_to(&self, place: &Place, slot: Slot, old: &Arc<Node>) -> Option<Arc<Node>> {
        // A node may send its caller to its own address. The caller has then reached another server at that address, as behind a load balancer, or
        // after a failover that moved the address. Only a new connection can lead to the right server: on the same connection the call would be
        // redirected for ever.
        let is_itself = *place == old.transport.endpoint().address.place;
        let next = if is_itself {
            self.map.renew(old)
        } else {
            // The node that is named knows of the move. Any other may not have heard of it, and its map would send the next call back.
            self.refresher.ask_first(place);
            Some(self.map.moved(slot, place))
        };
        self.refresher.want();
        next
    }

    /// Returns the nodes that own slots, each with its slots. Waits for a map until `deadline`.
    pub(crate) fn masters(&self, deadline: Instant) -> Result<Masters, Error> {
        // This waits only for the first map: an older map is as good here, because its nodes redirect.
        self.refresher.wait_for_first(deadline)?;
        let view = self.map.view();
        let mut slots = BTreeMap::<usize, Vec<Slot>>::new();
        // The slots tell the masters, and not the list of nodes: after a `MOVED` the list may still have a node that has lost its last slot.
        for slot in 0..SLOTS as Slot {
            if let Some(at) = view.slots.owner(slot) {
                slots.entry(at).or_default().push(slot);
            }
        }
        // The indices are those of the same view. A view is never changed, only exchanged, so nodes and slots always fit.
        let masters = slots.into_iter().filter_map(|(at, slots)| Some((Arc::clone(view.nodes.get(at)?), slots)));
        Ok(masters.collect())
    }

    // Only a node that has told a map counts. A server that answers something else may be no node of a Cluster, and the caller is to learn of a wrong
    // address at once.
    pub(crate) fn has_answered(&self) -> bool {
        self.map.is_known()
    }

    /// Takes a function to call after each rise of a number. The number rises when a server may have lost what it knew: another server answers at a
    /// node's place, or a node has left the map.
    pub(crate) fn tell(&self, on_new_server: Box<identity::OnNewServer>) {
        self.map.changes.tell(on_new_server);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.map.nodes.is_closed()
    }

    /// Closes the connections. Calls that wait fail, and so does every later one.
    pub(crate) fn close(&self) {
        if self.process.is_forked() {
            // A child process shares its parent's sockets. A shutdown here would break the parent's connections, and could cost it a lock.
            return;
        }
        // The nodes are closed first: a thread that the other two wake must find the nodes closed, or it would wait once more.
        self.map.nodes.close();
        self.refresher.close();
        self.listeners.note_map();
    }

    /// The error of a call whose slot has no owner.
    pub(super) fn unowned(&self, slot: Slot) -> Error {
        // If no node has ever told a map, the reason for that says more than the slot does: a wrong password, or no node at the address.
        let unanswered = || self.refresher.failure().filter(|_| !self.has_answered());
        unanswered().unwrap_or_else(|| {
            let message = format!("no node of the Cluster at {} owns the slot {slot}", self.refresher);
            Error::backend(BackendFailure::NotExecuted, message)
        })
    }

    /// Sends one call about a key with this hash, once, to the owner of its slot by the present map, and returns without its reply, which
    /// `done` receives. If the call is redirected, it fails as not executed: nobody waits for it, so it is not sent again. So does a call to a
    /// node that is silent, or to which no connection could be opened a moment ago: its caller would wait for that node until the call is
    /// written. If the node does not answer, the call fails with an unknown outcome. In these cases the client repeats the release by a call
    /// that it waits for. So no posted call is ever sent to a second node, and a posting thread never waits for a node that is known to be
    /// silent.
    pub(crate) fn post(self: &Arc<Self>, call: &Call<'_>, hash: KeyHash, limit: Duration, done: Callback) {
        let slot = slot_of(call.key.as_bytes());
        // This looks only at the present map. To wait for a map would block the thread that drops a guard.
        let Some(node) = self.refresher.fresh_view(Instant::now()).owner(slot).cloned() else {
            return done(CallReplies::failed(self.unowned(slot)));
        };
        // `done` runs on this thread then, and the release goes on the clean-up list, whose thread may wait.
        if is_not_tried(&node) {
            let message = format!("{}: not tried: it has not answered lately", node.transport.endpoint().address);
            return done(CallReplies::failed(Error::backend(BackendFailure::NotExecuted, message)));
        }
        // Both pointers are weak: a reply that never comes must not keep the Cluster, or a node that was replaced. The last pointer to a Cluster must
        // not be here either, because the end of the Cluster would then run on a thread that reads replies.
        let (this, weak_node) = (Arc::downgrade(self), Arc::downgrade(&node));
        let callback = move |mut answer: CallReplies| {
            // `done` is called in every case. The caller counts its releases that are under way, and the end of the main thread waits for
            // them.
            let Some(cluster) = this.upgrade() else { return done(answer) };
            match answer.first() {
                // The owner has answered. If the answer is an error, the owner has executed the script, or refused it.
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
                    // The end of a node is not the end of the store. If the client took it for that, it would give up a release that another node can
                    // still take.
                    if matches!(answer.failure, Some(Error::ShutDown)) && !cluster.is_closed() {
                        // The node was replaced, or has left the Cluster.
                        let message = "the connection to the node was closed";
                        answer.failure = Some(Error::backend(BackendFailure::Unknown, message));
                    }
                }
            }
            // This may be the last pointer. It is dropped before `done` runs, which may take any time.
            drop(cluster);
            done(answer);
        };
        node.post(call, hash, limit, Box::new(callback));
    }

    /// Takes in the answers that have come for posted calls. Returns `true` if some are still missing.
    pub(crate) fn collect(&self) -> bool {
        // This visits all nodes. `any` would stop at the first node whose answers are missing.
        self.map.nodes.all().iter().filter(|node| node.transport.collect()).count() > 0
    }

    /// Sends one command to the nodes, one after another, until one answers. Each node gets an equal share of the time that is left.
    ///
    /// # Errors
    ///
    /// That of the last node.
    pub(crate) fn say(&self, words: &[&str], limit: Duration) -> Result<Value, Error> {
        let deadline = end_of(limit, Instant::now());
        self.refresher.wait_for_first(deadline)?;
        // This is the error for a map without nodes. The error of a node replaces it.
        let mut failure = self.unowned(0);
        let nodes = &self.map.view().nodes;
        for (n, node) in nodes.iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            // A node that hangs uses up only its own share.
            match node.say(words, left.div_f64((nodes.len() - n) as f64)) {
                Ok(value) => return Ok(value),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Returns the first master whose address is this one or a later one, and the address of the next master. Masters are in the order of their
    /// addresses. So a change of the map between two calls repeats no master, and leaves out none that stays.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if no node tells a map in time.
    pub(crate) fn master_from(
        &self,
        address: &str,
        limit: Duration,
    ) -> Result<(Option<Master>, Option<String>), Error> {
        let masters = self.masters(end_of(limit, Instant::now()))?.into_iter();
        let named = masters.map(|(node, _)| (node.transport.endpoint().address.to_string(), node));
        let mut masters: Vec<_> = named.filter(|(known, _)| known.as_str() >= address).collect();
        masters.sort_by(|(a, _), (b, _)| a.cmp(b));
        // The program's address map may give two places one address. The caller would then be sent to that address for ever.
        masters.dedup_by(|(a, _), (b, _)| a == b);
        let mut masters = masters.into_iter();
        let first = masters.next().map(|(address, node)| (node, address));
        Ok((first, masters.next().map(|(address, _)| address)))
    }

    /// Sends a command to one of all masters. If the master does not answer, asks for a new map: another node may have its place by now.
    pub(crate) fn ask_master(&self, master: &Node, words: &[&str], limit: Duration) -> Result<Value, Error> {
        // This only has an old map renewed. The caller has chosen the masters, and its list may take minutes.
        drop(self.refresher.fresh_view(Instant::now()));
        let reply = master.say(words, limit);
        if reply.is_err() {
            self.refresher.want();
        }
        reply
    }

    /// Returns `true` if a batch should not wait for the node that owns the key's slot beside others.
    pub(crate) fn keeps_waiting(&self, key: &str) -> bool {
        self.map.owner(slot_of(key.as_bytes())).is_some_and(|node| node.keeps_waiting())
    }

    /// Yields for a task that has waited for an answer about the key since this moment. Returns whether it should be polled again at once.
    pub(crate) fn yield_for_task(&self, key: &str, since: Instant) -> bool {
        self.map.owner(slot_of(key.as_bytes())).is_some_and(|node| node.transport.yield_for_task(since))
    }
}

/// A master, and its address.
type Master = (Arc<Node>, String);

fn is_not_tried(node: &Node) -> bool {
    node.is_silent() || node.transport.is_cooling_down(COOLDOWN)
}
