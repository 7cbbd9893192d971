//! The core of a Cluster store: the map by which calls find their nodes, the thread that keeps the map new, and the open inboxes. Also posted
//! calls, whose replies no caller waits for, and commands that concern no lock.

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

    /// Takes in that a node has redirected a call of a slot to what it calls `host` and `port`. Returns the node to which such calls go now;
    /// `None` if that is no address, or if the node named itself, and was made again for that a moment ago.
    pub(super) fn redirect(&self, slot: Slot, by: &Arc<Node>, host: &str, port: u16) -> Option<Arc<Node>> {
        let Some(place) = self.map.place(by, host, port) else {
            self.refresher.want();
            return None;
        };
        self.follow_to(&place, slot, by)
    }

    /// Takes in that a node has redirected a call of a slot to this place. Returns the node to which such calls go now; `None` if the node
    /// named itself, and was made again for that a moment ago.
    pub(super) fn follow_to(&self, place: &Place, slot: Slot, old: &Arc<Node>) -> Option<Arc<Node>> {
        // A node that sends its caller to itself is not confused. The caller has reached another server under its name, as behind a load
        // balancer or after a failover that moved an address. Only a new connection can lead to the right one: to call the same connection
        // again would go on for ever.
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
        // No more than the first: an older map is as good here, since its nodes redirect.
        self.refresher.wait_for_first(deadline)?;
        let view = self.map.view();
        let mut slots = BTreeMap::<usize, Vec<Slot>>::new();
        // By slots and not by nodes: after a `MOVED` a node may stand in the map that has lost its last slot, and is no master of anything.
        for slot in 0..SLOTS as Slot {
            if let Some(at) = view.slots.owner(slot) {
                slots.entry(at).or_default().push(slot);
            }
        }
        // The indices are those of the same view. A view is never changed, only exchanged, so nodes and slots always fit.
        let masters = slots.into_iter().filter_map(|(at, slots)| Some((Arc::clone(view.nodes.get(at)?), slots)));
        Ok(masters.collect())
    }

    // Only a node that has told a map counts. One that answers something else may be no Cluster, and a wrong address is to be told at once.
    pub(crate) fn has_answered(&self) -> bool {
        self.map.is_known()
    }

    /// Takes a function to call after each rise of a number: when a server may have lost what it knew, because another one answers at a node's
    /// place, or a node has left the map.
    pub(crate) fn tell(&self, on_new_server: Box<identity::OnNewServer>) {
        self.map.changes.tell(on_new_server);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.map.nodes.is_closed()
    }

    /// Closes the connections. Calls that wait fail, and so does every later one.
    pub(crate) fn close(&self) {
        // The parent still locks on those sockets. To shut one down here would break it there, and a held lock with it.
        if self.process.is_forked() {
            // A child process shares its parent's sockets.
            return;
        }
        // Nodes first: who is woken by the other two must find them closed, or it would wait once more.
        self.map.nodes.close();
        self.refresher.close();
        self.listeners.note_map();
    }

    /// The error of a call whose slot has no owner.
    pub(super) fn unowned(&self, slot: Slot) -> Error {
        // If no node has ever told a map, why that is so says more than the slot: a wrong password, or no node at the address.
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
        // By the map alone. To wait for one would block the thread that drops a guard.
        let Some(node) = self.refresher.fresh_view(Instant::now()).owner(slot).cloned() else {
            return done(CallReplies::failed(self.unowned(slot)));
        };
        // `done` runs on this thread then, and the release goes on the clean-up list, whose thread may wait.
        if is_not_tried(&node) {
            let message = format!("{}: not tried: it has not answered lately", node.transport.endpoint().address);
            return done(CallReplies::failed(Error::backend(BackendFailure::NotExecuted, message)));
        }
        // Weak, both: a reply that never comes must keep neither the Cluster nor a node that was replaced. Nor may the last pointer to a
        // Cluster be here, because its end would then run on a thread that reads replies.
        let (this, weak_node) = (Arc::downgrade(self), Arc::downgrade(&node));
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

    /// Returns `true` if a batch should not wait for the node that owns the key's slot beside others.
    pub(crate) fn keeps_waiting(&self, key: &str) -> bool {
        self.map.owner(slot_of(key.as_bytes())).is_some_and(|node| node.keeps_waiting())
    }
}

/// A master, and its address.
type Master = (Arc<Node>, String);

fn is_not_tried(node: &Node) -> bool {
    node.is_silent() || node.transport.is_cooling_down(COOLDOWN)
}
