//! A Cluster: its nodes, and the map by which calls find them.
//!
//! The map and the nodes of its places are one value, the [`View`], which is swapped whole. A call takes a pointer to it, and keeps the nodes
//! that it needs while it is under way; a node that leaves the map closes its connections when its last call is over. The lock of the view is
//! held only to copy the pointer or to exchange it, never while a node is asked.
//!
//! A map arrives in two ways, and either may be late:
//!
//! * *Whole*, as the answer to a question (`refresh.rs`): [`install`](Cluster::install). It is taken in after the present one. A slot that it
//!   gives to nobody keeps its owner. So does a slot of which a node has said `MOVED` after the question was sent: the answer may have been
//!   made before.
//! * *By one slot*, as a `MOVED`: [`moved`](Cluster::moved). It counts at once, and a whole map is asked for.
//!
//! If another map was installed meanwhile, `install` begins again with that one, so that none is lost.

use super::inbox::listeners::Listeners;
use super::nodes::{Nodes, Reach};
use super::slots::{SlotMap, Told};
use crate::error::{BackendFailure, Error};
use crate::log;
use crate::store::redis::net::address::{Address, Place};
use crate::store::redis::net::hosts::AddressMap;
use crate::store::redis::net::identity;
use crate::store::redis::node::Node;
use crate::store::redis::script::slot::{SLOTS, Slot};
use crate::sync::catch_panic;
use crate::sync::unseen::{Condvar, Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// What a Cluster is made from.
pub(crate) struct Settings {
    /// The configured nodes, with the login for all.
    pub(crate) seeds: Vec<Address>,
    pub(crate) reach: Reach,
    pub(crate) address_map: Option<AddressMap>,
}

/// See the module.
pub(crate) struct Cluster {
    pub(super) this: Weak<Self>,
    pub(super) seeds: Vec<Place>,
    pub(super) nodes: Nodes,
    pub(super) address_map: Option<AddressMap>,
    /// Swapped whole.
    view: RwLock<Arc<View>>,
    pub(super) refreshing: Mutex<Refreshing>,
    pub(super) refreshed: Condvar,
    pub(super) begun: Instant,
    /// When the map becomes old, in milliseconds after `begun`.
    // ORDERING: Relaxed: a hint. Whoever sees an outdated value asks for a refresh, and the mutex of `refreshing` decides.
    pub(super) stale_at: AtomicU64,
    /// Whether a node has ever told a map.
    // ORDERING: Relaxed: the flag alone matters.
    pub(super) has_answered: AtomicBool,
    // ORDERING: Relaxed: the flag alone matters. `close` ends the connections after it, and each has a mutex of its own.
    pub(super) is_closed: AtomicBool,
    pub(super) changes: Arc<Changes>,
    pub(crate) listeners: Listeners,
    /// The process that made the Cluster.
    pid: u32,
}

/// The map, and the nodes in the order of its places.
pub(super) struct View {
    pub(super) slots: SlotMap,
    pub(super) nodes: Vec<Arc<Node>>,
    /// The slots of which a node has said `MOVED` since the question for the last map was sent, and when.
    moved: HashMap<Slot, Instant>,
}

/// What is known of refreshes.
#[derive(Debug, Default)]
pub(super) struct Refreshing {
    /// Whether a thread refreshes.
    pub(super) is_busy: bool,
    /// Whether the map must be asked for once more.
    pub(super) is_wanted: bool,
    /// How many refreshes have ended.
    pub(super) ended: u64,
    /// When the next one may begin.
    pub(super) not_before: Option<Instant>,
    /// How many in a row have changed nothing.
    pub(super) unchanged: u32,
    /// Why the last one has failed.
    pub(super) failure: Option<Error>,
    /// The index of the node that is asked first, if none is known to know more.
    pub(super) turn: usize,
    /// A node that knows of a change.
    pub(super) knows: Option<Place>,
}

/// How often a server may have lost what it knew, as a number, and who is told.
#[derive(Default)]
pub(super) struct Changes {
    // ORDERING: Relaxed: `rise` adds to it before it tells anybody; nothing is read through it.
    number: AtomicU64,
    told: Mutex<Vec<Arc<identity::Told>>>,
}

impl Changes {
    /// Counts a change, and tells of it.
    pub(super) fn rise(&self) {
        let number = self.number.fetch_add(1, Ordering::Relaxed) + 1; // ORDERING: Relaxed: see the field.
        let told = self.told.lock().clone();
        told.iter().for_each(|told| told(number));
    }
}

/// Nodes that own slots, each with its slots.
pub(crate) type Masters = Vec<(Arc<Node>, Vec<Slot>)>;

impl Cluster {
    /// Makes a Cluster that connects with its first call.
    pub(crate) fn new(settings: Settings) -> Arc<Self> {
        let Settings { seeds, reach, address_map } = settings;
        let changes = Arc::<Changes>::default();
        let told = Arc::clone(&changes);
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            seeds: seeds.into_iter().map(|seed| seed.place).collect(),
            nodes: Nodes::new(reach, Arc::new(move || told.rise())),
            address_map,
            view: RwLock::new(Arc::new(View { slots: SlotMap::empty(), nodes: Vec::new(), moved: HashMap::new() })),
            refreshing: Mutex::default(),
            refreshed: Condvar::new(),
            begun: Instant::now(),
            stale_at: AtomicU64::new(0),
            has_answered: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            changes,
            listeners: Listeners::default(),
            pid: std::process::id(),
        })
    }

    pub(super) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read())
    }

    /// Returns the owner of a slot, as far as is known.
    pub(super) fn owner(&self, slot: Slot) -> Option<Arc<Node>> {
        let view = self.view.read();
        let at = view.slots.owner(slot)?;
        view.nodes.get(at).cloned()
    }

    /// Understands an address that a node tells.
    pub(super) fn place(&self, by: &Node, host: &str, port: u16) -> Option<Place> {
        let told = Told { by: &by.transport.endpoint().address.place, map: self.address_map.as_ref() };
        // The address map is the program's, and may panic. This may be the callback of a posted call, which must come to its end.
        catch_panic(|| told.place(host, port)).unwrap_or_else(|_| {
            log::error!(TRANSPORT, "the address map of the Cluster panicked for {host}:{port}");
            None
        })
    }

    /// Takes in the map that a node has told when it was asked at that moment. Returns `true` if it is another map than before. The number
    /// rises if a node of the earlier map is in it no more: the one in its place may lack its last writes.
    pub(super) fn install(&self, told: &SlotMap, asked_at: Instant) -> bool {
        let (before, view) = loop {
            let before = self.view();
            let newer = before.moved.iter().filter(|(_, at)| **at >= asked_at);
            let moved: HashMap<_, _> = newer.map(|(slot, at)| (*slot, *at)).collect();
            let slots = told.clone().follow(&before.slots, |slot| moved.contains_key(&slot));
            // The nodes are made without holding the map, which every call needs.
            let nodes: Vec<_> = slots.places().iter().map(|place| self.nodes.at(place)).collect();
            let view = Arc::new(View { slots, nodes, moved });
            let mut present = self.view.write();
            if Arc::ptr_eq(&present, &before) {
                *present = Arc::clone(&view);
                break (before, view);
            }
        };
        self.has_answered.store(true, Ordering::Relaxed); // ORDERING: Relaxed: see the field.
        self.nodes.keep(view.slots.places(), Instant::now());
        let is_new = before.slots != view.slots;
        if is_new {
            self.listeners.note_map();
        }
        if before.slots.has_lost_a_node(&view.slots) {
            self.changes.rise();
        }
        is_new
    }

    /// Notes the new owner of a slot, and returns it.
    pub(super) fn moved(&self, slot: Slot, place: &Place) -> Arc<Node> {
        self.ask_first(place);
        let node = self.nodes.at(place);
        let mut view = self.view.write();
        let owner = view.slots.owner(slot).and_then(|at| view.nodes.get(at));
        if !owner.is_some_and(|owner| Arc::ptr_eq(owner, &node)) {
            let mut new = self.with_nodes(&view, view.slots.with(slot, place.clone()), &node);
            new.moved.insert(slot, Instant::now());
            // What ends with the earlier view ends without the lock.
            let _before = std::mem::replace(&mut *view, Arc::new(new));
            drop(view);
            self.listeners.note_map();
        }
        node
    }

    /// Takes in that a node has redirected a call of a slot to this place. Returns the node to which such calls go now; `None` if the node
    /// named itself, and was made anew for that a moment ago.
    pub(super) fn follow_to(&self, place: &Place, slot: Slot, old: &Arc<Node>) -> Option<Arc<Node>> {
        let is_itself = *place == old.transport.endpoint().address.place;
        let next = if is_itself { self.renew(old) } else { Some(self.moved(slot, place)) };
        self.want_map();
        next
    }

    /// Returns the nodes that own slots, each with its slots. Waits for a map until `deadline`.
    pub(crate) fn masters(&self, deadline: Instant) -> Result<Masters, Error> {
        self.first_map(deadline)?;
        let view = self.view();
        let mut slots = BTreeMap::<usize, Vec<Slot>>::new();
        for slot in 0..SLOTS as Slot {
            if let Some(at) = view.slots.owner(slot) {
                slots.entry(at).or_default().push(slot);
            }
        }
        let masters = slots.into_iter().filter_map(|(at, slots)| Some((Arc::clone(view.nodes.get(at)?), slots)));
        Ok(masters.collect())
    }

    /// Hides our user in an error that a node has sent.
    pub(super) fn hide(&self, error: Error) -> Error {
        self.nodes.reach.endpoint.address.hide(error)
    }

    /// Puts a node that was made anew in the place of an earlier one. Returns `None` if that was done a moment ago.
    pub(super) fn renew(&self, old: &Arc<Node>) -> Option<Arc<Node>> {
        let node = self.nodes.renew(old, Instant::now())?;
        let mut view = self.view.write();
        let new = self.with_nodes(&view, view.slots.clone(), &node);
        let _before = std::mem::replace(&mut *view, Arc::new(new));
        drop(view);
        // Listening connections to the earlier node end.
        self.listeners.note_map();
        Some(node)
    }

    /// Makes a view of a map that differs from an earlier one by at most one place, that of this node.
    fn with_nodes(&self, before: &View, slots: SlotMap, node: &Arc<Node>) -> View {
        let own = &node.transport.endpoint().address.place;
        let of_place = |(at, place): (usize, &Place)| match before.nodes.get(at) {
            Some(other) if place != own => Arc::clone(other),
            _ => Arc::clone(node),
        };
        let nodes = slots.places().iter().enumerate().map(of_place).collect();
        View { slots, nodes, moved: before.moved.clone() }
    }

    pub(crate) fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed) // ORDERING: Relaxed: see the field.
    }

    /// Returns a number that rises when a server may have lost what it knew: another one answers at a node's place, or a node has left
    /// the map.
    #[cfg(test)]
    pub(crate) fn number(&self) -> u64 {
        self.changes.number.load(Ordering::Relaxed) // ORDERING: Relaxed: see the field.
    }

    /// Takes a function to call after each rise of the number.
    pub(crate) fn tell(&self, told: Box<identity::Told>) {
        self.changes.told.lock().push(Arc::from(told));
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed) // ORDERING: Relaxed: see the field.
    }

    /// Closes the connections. Calls that wait fail, and so does every later one.
    pub(crate) fn close(&self) {
        if self.pid != std::process::id() {
            // A child process shares its parent's sockets.
            return;
        }
        self.is_closed.store(true, Ordering::Relaxed); // ORDERING: Relaxed: see the field.
        self.nodes.close();
        let _looked_under = self.refreshing.lock();
        self.refreshed.notify_all();
        self.listeners.note_map();
    }

    /// The error of a call whose slot has no owner.
    pub(super) fn unowned(&self, slot: Slot) -> Error {
        let failure = self.refreshing.lock().failure.clone();
        let unanswered = || failure.filter(|_| !self.has_answered());
        unanswered().unwrap_or_else(|| {
            let message = format!("no node of the Cluster at {self} owns the slot {slot}");
            Error::backend(BackendFailure::NotExecuted, message)
        })
    }
}

/// Shows the configured nodes.
impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, place) in self.seeds.iter().enumerate() {
            let address = self.nodes.reach.endpoint_at(place, Arc::default()).address;
            write!(f, "{}{address}", if n == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = self.view();
        f.debug_struct("Cluster").field("slots", &view.slots).field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::redis::Value;

    fn place(port: u16) -> Place {
        Place::Tcp { host: "127.0.0.1".to_owned(), port, tls: false }
    }

    /// A map in which one node owns everything.
    fn map(port: i64) -> SlotMap {
        let node = Value::Array(vec![Value::Nil, Value::Int(port)]);
        let reply = Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(16_383), node])]);
        SlotMap::read(&reply, Told { by: &place(port as u16), map: None }).expect("a map")
    }

    #[test]
    fn a_map_that_was_asked_for_before_a_slot_moved_does_not_move_it_back() {
        let cluster = Cluster::new(Settings { seeds: Vec::new(), reach: Reach::nowhere(), address_map: None });
        let owner = |slot| cluster.owner(slot).map(|node| node.transport.endpoint().address.place.clone());
        assert!(cluster.install(&map(1), Instant::now()));
        let asked_at = Instant::now();
        cluster.moved(7, &place(2));
        // Two answers under way, by nodes that do not know it yet.
        for _ in 0..2 {
            assert!(!cluster.install(&map(1), asked_at));
            assert_eq!([6, 7].map(owner), [1, 2].map(|port| Some(place(port))));
        }
        assert_eq!(cluster.number(), 0, "no node has lost its last slot");
        // Asked for later, it is news.
        assert!(cluster.install(&map(1), Instant::now()));
        assert_eq!([6, 7].map(owner), [1, 1].map(|port| Some(place(port))));
        assert_eq!(cluster.number(), 1);
    }
}
