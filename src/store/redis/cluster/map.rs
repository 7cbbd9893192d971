//! Which node owns each slot, as far as the nodes have said.
//!
//! The map and the nodes of its places are one value, the [`MapView`], which is replaced as a whole. A call takes a pointer to it, and
//! keeps the nodes that it needs while it is under way. So a node that leaves the map closes its connections when its last call is over.
//! The lock of the view is held only to copy the pointer or to replace it, never while a node is asked.
//!
//! News arrives in two ways, and either may be late:
//!
//! * *A whole map*, as the answer to a question (`refresh.rs`): [`install`](Map::install). It is combined with the present map. A slot to
//!   which the new map gives no owner keeps its present owner. So does a slot for which a node has said `MOVED` after the question was
//!   sent, because the answer may be older than that.
//! * *The owner of one slot*, as a `MOVED`: [`moved`](Map::moved). It counts at once, and a whole map is asked for.
//!
//! If another map was installed meanwhile, `install` begins again with that one, so that none is lost.

use super::inbox::listeners::Listeners;
use super::nodes::{Nodes, Reach};
use super::slots::{MapSource, SlotMap};
use super::timing::OLD_MAP;
use crate::log;
use crate::store::redis::net::address::Place;
use crate::store::redis::net::hosts::AddressMap;
use crate::store::redis::net::identity::Servers;
use crate::store::redis::node::Node;
use crate::store::redis::script::keys::Slot;
use crate::sync::catch_panic;
use crate::sync::unseen::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

pub(super) struct Map {
    pub(super) nodes: Nodes,
    pub(super) address_map: Option<AddressMap>,
    present: RwLock<Present>,
    /// Counts how often a server of the Cluster may have lost what it knew, and has the functions to call then. No connections are compared
    /// here: each node has its own `Servers` for that, and these raise this number.
    pub(super) changes: Arc<Servers>,
    listeners: Arc<Listeners>,
}

/// The present map. A call reads it once, and takes no other lock of the Cluster, so the age of the map is stored with it.
struct Present {
    /// Swapped whole.
    view: Arc<MapView>,
    /// When it becomes old. `None` before the first question for one.
    old_at: Option<Instant>,
}

/// The map at one moment, and the nodes in the order of its places.
pub(super) struct MapView {
    pub(super) slots: SlotMap,
    pub(super) nodes: Vec<Arc<Node>>,
    /// The slots of which a node has said `MOVED` since the question for the last map was sent, and when.
    moved: HashMap<Slot, Instant>,
}

impl MapView {
    /// Returns `true` if a node has told it.
    pub(super) fn is_known(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Returns the owner of a slot, as far as is known.
    pub(super) fn owner(&self, slot: Slot) -> Option<&Arc<Node>> {
        self.nodes.get(self.slots.owner(slot)?)
    }

    /// Makes a view of a map that differs from this one by at most one place, that of this node.
    fn with(&self, slots: SlotMap, node: &Arc<Node>) -> Self {
        let own = &node.transport.endpoint().address.place;
        // The places are in their earlier order, perhaps with one more at the end, so that each node stays at its index.
        let of_place = |(at, place): (usize, &Place)| match self.nodes.get(at) {
            Some(other) if place != own => Arc::clone(other),
            _ => Arc::clone(node),
        };
        let nodes = slots.places().iter().enumerate().map(of_place).collect();
        Self { slots, nodes, moved: self.moved.clone() }
    }
}

impl Map {
    /// Makes a map in which no slot has an owner.
    pub(super) fn new(reach: Reach, address_map: Option<AddressMap>, listeners: Arc<Listeners>) -> Self {
        let changes = Arc::<Servers>::default();
        let counted = Arc::clone(&changes);
        Self {
            nodes: Nodes::new(reach, Arc::new(move || counted.rise())),
            address_map,
            present: RwLock::new(Present {
                view: Arc::new(MapView { slots: SlotMap::empty(), nodes: Vec::new(), moved: HashMap::new() }),
                old_at: None,
            }),
            changes,
            listeners,
        }
    }

    pub(super) fn view(&self) -> Arc<MapView> {
        Arc::clone(&self.present.read().view)
    }

    /// Returns the map, and whether it is old. Only one caller is told that the map is old. For the others it counts as new for [`OLD_MAP`] more, so
    /// one of many threads asks for a new map.
    pub(super) fn view_and_age(&self, now: Instant) -> (Arc<MapView>, bool) {
        // The map is read first. The lock is taken for writing once a minute, by the one caller that finds the map old.
        let is_old = |present: &Present| present.old_at.is_none_or(|at| at <= now);
        let present = self.present.read();
        if !is_old(&present) {
            return (Arc::clone(&present.view), false);
        }
        drop(present);
        let mut present = self.present.write();
        let is_first = is_old(&present);
        if is_first {
            present.old_at = Some(now + OLD_MAP);
        }
        (Arc::clone(&present.view), is_first)
    }

    /// Notes that the nodes were just asked for the map, whatever came of it.
    pub(super) fn note_asked(&self, now: Instant) {
        self.present.write().old_at = Some(now + OLD_MAP);
    }

    /// Returns the owner of a slot, as far as is known.
    pub(super) fn owner(&self, slot: Slot) -> Option<Arc<Node>> {
        self.present.read().view.owner(slot).cloned()
    }

    /// Returns `true` if a node has ever told a map: a slot that has an owner keeps one.
    pub(super) fn is_known(&self) -> bool {
        self.present.read().view.is_known()
    }

    /// Returns the place of an address that a node tells. `None` if it is no address.
    pub(super) fn place(&self, by: &Node, host: &str, port: u16) -> Option<Place> {
        let source = MapSource { by: &by.transport.endpoint().address.place, map: self.address_map.as_ref() };
        // `CLUSTER SLOTS`, `MOVED` and `ASK` name nodes as they know one another, which is by addresses of their own network.
        // The address map is the program's, and may panic. This may be the callback of a posted call, which must come to its end.
        catch_panic(|| source.place(host, port)).unwrap_or_else(|| {
            log::error!(TRANSPORT, "the address map of the Cluster panicked for {host}:{port}");
            None
        })
    }

    /// Takes in the map that a node has told when it was asked at that moment. Returns `true` if it is another map than before. The number
    /// rises if a node of the earlier map is in it no more: the one in its place may lack its last writes.
    pub(super) fn install(&self, reported: &SlotMap, asked_at: Instant) -> bool {
        let (before, view) = loop {
            // The map is exchanged only if it is still the one that was read: an answer must not undo a `MOVED` that came meanwhile.
            let before = self.view();
            // A `MOVED` from before the question is not kept. The answer contains it, or the node that answered has not heard of it, and the next
            // call is redirected again.
            let newer = before.moved.iter().filter(|(_, at)| **at >= asked_at);
            let moved: HashMap<_, _> = newer.map(|(slot, at)| (*slot, *at)).collect();
            let slots = reported.clone().follow(&before.slots, |slot| moved.contains_key(&slot));
            // The nodes are made without holding the map, which every call needs.
            let nodes: Vec<_> = slots.places().iter().map(|place| self.nodes.at(place)).collect();
            let view = Arc::new(MapView { slots, nodes, moved });
            let mut present = self.present.write();
            if Arc::ptr_eq(&present.view, &before) {
                present.view = Arc::clone(&view);
                break (before, view);
            }
        };
        // This comes after the exchange, so no call can find a node in the map that is forgotten here.
        self.nodes.keep(view.slots.places(), Instant::now());
        let is_new = before.slots != view.slots;
        // The listening threads compare the owners of their slots with a new map. The same map would wake them for nothing.
        if is_new {
            self.listeners.note_map();
        }
        // A replica may have taken the place of the node, and may lack its last writes. If the node has given its slots away instead, the client only
        // asks some questions more than it must.
        if before.slots.has_lost_a_node(&view.slots) {
            self.changes.rise();
        }
        is_new
    }

    /// Notes the new owner of a slot, and returns it.
    pub(super) fn moved(&self, slot: Slot, place: &Place) -> Arc<Node> {
        // The node is made before the map is locked, as in `install`, because the making takes another mutex.
        let node = self.nodes.at(place);
        self.exchange(|view| {
            // Many calls may be redirected at once. Only the first of them makes a new map, of 32 KiB.
            if view.owner(slot).is_some_and(|owner| Arc::ptr_eq(owner, &node)) {
                return None;
            }
            let mut new = view.with(view.slots.with(slot, place.clone()), &node);
            // An answer to a question that was sent before this moment does not count for the slot.
            new.moved.insert(slot, Instant::now());
            Some(new)
        });
        node
    }

    /// Puts a node that was made again in the place of an earlier one. Returns `None` if that was done a moment ago.
    pub(super) fn renew(&self, old: &Arc<Node>) -> Option<Arc<Node>> {
        let node = self.nodes.renew(old, Instant::now())?;
        // Listening connections to the earlier node end.
        self.exchange(|view| Some(view.with(view.slots.clone(), &node)));
        Some(node)
    }

    /// Puts a new view in the place of the present one, if there is one.
    fn exchange(&self, new: impl FnOnce(&MapView) -> Option<MapView>) {
        let mut present = self.present.write();
        let Some(new) = new(&present.view) else { return };
        // The earlier view is dropped after the lock is released, and with it nodes that have left.
        let _before = std::mem::replace(&mut present.view, Arc::new(new));
        drop(present);
        self.listeners.note_map();
    }
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/cluster/map.rs"]
mod tests;
