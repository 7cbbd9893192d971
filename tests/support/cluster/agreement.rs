//! Waiting until the nodes agree, and who owns a slot by what they agree on. Nodes that are killed or stopped are not asked.

use super::super::crew::slowly;
use super::view::{self, Owners};
use super::{Cluster, Node, SLOTS, Seen, keys_in, slot_of};
use std::ops::RangeInclusive;

impl Cluster {
    /// The nodes of the cluster that are up.
    pub(super) fn up(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.is_member && node.is_up())
    }

    /// The place of the node with this id.
    pub(super) fn place_of(&self, id: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.id() == id)
    }

    /// What all nodes that are up see; `None` if one of them does not answer.
    pub(super) fn views(&self) -> Option<Vec<Vec<Seen>>> {
        self.up().map(Node::view).collect()
    }

    /// Who owns which slots, if all nodes that are up say the same.
    pub(crate) fn agreed(&self) -> Option<Owners> {
        let mut all = self.views()?.into_iter().map(|view| view::owners(&view));
        let first = all.next()?;
        all.all(|other| other == first).then_some(first)
    }

    /// Who owns which slots. Waits until all nodes that are up say the same.
    pub(crate) fn owners(&self) -> Owners {
        let mut agreed = None;
        slowly("the nodes agree on the owners of all slots", || {
            agreed = self.agreed();
            agreed.is_some()
        });
        agreed.unwrap()
    }

    /// Who owns a slot. Waits until all nodes that are up say the same.
    pub(crate) fn owner_of(&self, slot: u16) -> usize {
        let owners = self.owners();
        let id = view::owner(&owners, slot).unwrap_or_else(|| panic!("nobody owns slot {slot}"));
        self.place_of(id).expect("a node of this cluster")
    }

    /// Who owns the slot of a key. Waits until all nodes that are up say the same.
    pub(crate) fn owner_of_key(&self, key: &str) -> usize {
        self.owner_of(slot_of(key))
    }

    /// The owner of a slot, as one node says. `None` if it does not answer, or names nobody.
    pub(crate) fn named(&self, by: usize, slot: u16) -> Option<usize> {
        self.place_of(view::owner(&view::owners(&self.nodes[by].view()?), slot)?)
    }

    /// Waits until all nodes that are up say that this node owns the slot.
    pub(crate) fn wait_for_owner(&self, slot: u16, node: usize) {
        slowly("all name the new owner of a slot", || {
            self.agreed()
                .is_some_and(|owners| view::owner(&owners, slot).is_some_and(|id| *id == self.nodes[node].id()))
        });
    }

    /// The slots of a node; none if it is a replica.
    pub(crate) fn slots_of(&self, node: usize) -> Vec<RangeInclusive<u16>> {
        self.owners().remove(self.nodes[node].id()).unwrap_or_default()
    }

    /// The nodes that own slots.
    pub(crate) fn masters(&self) -> Vec<usize> {
        let mut places: Vec<_> = self.owners().keys().filter_map(|id| self.place_of(id)).collect();
        places.sort_unstable();
        places
    }

    /// The master of a replica, as that says itself.
    pub(crate) fn master_of(&self, replica: usize) -> Option<usize> {
        self.place_of(&self.nodes[replica].itself()?.master?)
    }

    /// The replicas of a master that are up.
    pub(crate) fn replicas_of(&self, master: usize) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| self.master_of(*node) == Some(master)).collect()
    }

    /// Those of the keys that `key` makes of 0, 1, 2 … whose slots a node owns now. Without an end: take as many as needed.
    pub(crate) fn keys_on<F: Fn(u32) -> String>(&self, node: usize, key: F) -> impl Iterator<Item = String> + use<F> {
        keys_in(self.slots_of(node), key)
    }

    /// Waits until all is well with the nodes that are up: they say that the cluster works, know each other, agree on the slots, all
    /// of which have an owner that is up, and the replicas have caught up with their masters.
    pub(crate) fn wait_until_well(&self) {
        slowly("the cluster is well", || self.is_well().is_some());
    }

    /// `None` if not, or if a node does not answer.
    fn is_well(&self) -> Option<()> {
        let need = |is_so: bool| is_so.then_some(());
        let views = self.views()?;
        let up: Vec<_> = self.up().collect();
        for view in &views {
            let is_well = |node: &&Node| view.iter().any(|seen| seen.id == node.id() && seen.is_well());
            need(up.iter().all(is_well))?;
            need(!view.iter().any(|seen| seen.is("handshake")))?;
            // Who is master, and whose replica each one is.
            need(up.iter().all(|node| master_in(view, node) == master_in(&views[0], node)))?;
            need(view::owners(view) == view::owners(&views[0]))?;
        }
        let owners = view::owners(&views[0]);
        need(owners.values().flatten().map(ExactSizeIterator::len).sum::<usize>() == usize::from(SLOTS))?;
        need(owners.keys().all(|id| up.iter().any(|node| node.id() == id)))?;
        need(up.iter().all(|node| node.is_content()))?;
        let follows = |node: &Node, master: &Node| master_in(&views[0], node) == Some(master.id());
        for master in &up {
            let replicas: Vec<_> = up.iter().filter(|node| follows(node, master)).collect();
            need(replicas.iter().all(|replica| replica.is_synced()))?;
            // The master counts a replica when it hears from it, which is later.
            need(replicas.is_empty() || master.replicas_online()? >= replicas.len())?;
        }
        Some(())
    }
}

/// The master of a node in a view.
fn master_in<'a>(view: &'a [Seen], node: &Node) -> Option<&'a str> {
    view.iter().find(|seen| seen.id == node.id())?.master.as_deref()
}
