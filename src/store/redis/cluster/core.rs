//! The core of a Cluster store: the map by which calls find their nodes, the thread that keeps the map new, and the open inboxes.

use super::inbox::listeners::Listeners;
use super::map::Map;
use super::nodes::Reach;
use super::refresh::Refresher;
use crate::error::{BackendFailure, Error};
use crate::store::redis::net::address::{Address, Place};
use crate::store::redis::net::hosts::AddressMap;
use crate::store::redis::net::identity;
use crate::store::redis::node::Node;
use crate::store::redis::script::keys::{SLOTS, Slot};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// What a Cluster is made from.
pub(crate) struct ClusterSettings {
    /// The configured nodes, with the login for all.
    pub(crate) seeds: Vec<Address>,
    pub(crate) reach: Reach,
    pub(crate) address_map: Option<AddressMap>,
}

pub(crate) struct Cluster {
    // For callbacks of posted calls. They must not have the last pointer to a Cluster, because its end would then run on a thread that
    // reads replies.
    pub(super) this: Weak<Self>,
    pub(super) map: Arc<Map>,
    pub(super) refresher: Arc<Refresher>,
    pub(crate) listeners: Arc<Listeners>,
    /// The process that made the Cluster.
    pid: u32,
}

/// Nodes that own slots, each with its slots.
pub(crate) type Masters = Vec<(Arc<Node>, Vec<Slot>)>;

impl Cluster {
    /// Makes a Cluster that connects with its first call.
    pub(crate) fn new(settings: ClusterSettings) -> Arc<Self> {
        let ClusterSettings { seeds, reach, address_map } = settings;
        let seeds = seeds.into_iter().map(|seed| seed.place).collect();
        // The map tells the listening threads of changes, so it has them; the refresher asks for maps, so it has the map. Nothing below
        // knows the Cluster itself, and no circle of pointers keeps it alive.
        let listeners = Arc::<Listeners>::default();
        let map = Arc::new(Map::new(reach, address_map, Arc::clone(&listeners)));
        let refresher = Refresher::new(seeds, Arc::clone(&map));
        let pid = std::process::id();
        Arc::new_cyclic(|this| Self { this: Weak::clone(this), map, refresher, listeners, pid })
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
        if self.pid != std::process::id() {
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
}
