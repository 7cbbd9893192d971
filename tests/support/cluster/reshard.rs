//! Many slots that move from one master to another.

use super::super::crew::slowly;
use super::migration::send_slot;
use super::saying::{require, tell};
use super::{Cluster, Node, view};
use redis::Connection;

/// How many slots are on the way at once.
const SLOTS_AT_ONCE: usize = 256;

/// By how many connections a node is told of them.
const CONNECTIONS: usize = 16;

/// The connections to one node.
fn connect(node: &Node) -> Vec<Connection> {
    (0..CONNECTIONS).map(|_| node.connection()).collect()
}

impl Cluster {
    /// Moves many slots to another master, some at a time, and waits until all nodes that are up know it. Those that are there already
    /// stay.
    pub(crate) fn reshard(&self, slots: impl IntoIterator<Item = u16>, to: usize) {
        let slots: Vec<_> = slots.into_iter().collect();
        let owners = self.owners();
        for (id, ranges) in owners.iter().filter(|(id, _)| *id != self.nodes[to].id()) {
            let from = self.place_of(id).expect("a node of this cluster");
            let is_there = |slot: &&u16| ranges.iter().any(|range| range.contains(slot));
            let moving: Vec<_> = slots.iter().filter(is_there).copied().collect();
            if !moving.is_empty() {
                self.move_between(&moving, from, to);
            }
        }
        slowly("all know the new owner of many slots", || {
            let id = Some(self.nodes[to].id());
            let is_there = |owners: &view::Owners, slot| view::owner(owners, slot).map(String::as_str) == id;
            self.agreed().is_some_and(|owners| slots.iter().all(|slot| is_there(&owners, *slot)))
        });
    }

    fn move_between(&self, slots: &[u16], from: usize, to: usize) {
        let [source, target] = [from, to].map(|place| &self.nodes[place]);
        let (mut to_source, mut to_target) = (connect(source), connect(target));
        let mut to_others: Vec<_> = self.masters_but([from, to]).map(connect).collect();
        for slots in slots.chunks(SLOTS_AT_ONCE) {
            require(&mut to_target, slots, "IMPORTING", source.id());
            require(&mut to_source, slots, "MIGRATING", target.id());
            for slot in slots {
                send_slot(&mut to_source[0], target.port_past_the_network(), *slot);
            }
            require(&mut to_target, slots, "NODE", target.id());
            tell(&mut to_source, slots, target.id());
            to_others.iter_mut().for_each(|other| tell(other, slots, target.id()));
        }
    }

    /// The other masters that are up.
    pub(super) fn masters_but(&self, nodes: [usize; 2]) -> impl Iterator<Item = &Node> {
        let ids = nodes.map(|node| self.nodes[node].id());
        let others = self.up().filter(move |node| !ids.contains(&node.id()));
        others.filter(|node| node.itself().is_some_and(|seen| seen.is("master")))
    }
}
