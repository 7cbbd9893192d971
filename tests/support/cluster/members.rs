//! Nodes that come and go.

use super::super::crew::slowly;
use super::{Cluster, Node};

impl Cluster {
    /// Starts one more node, a master without slots, and waits until all is well.
    pub(crate) fn add(&mut self) -> usize {
        self.nodes.push(Node::start(&self.plan));
        self.join(self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    /// Starts one more node, a replica of this master, and waits until all is well.
    pub(crate) fn add_replica(&mut self, master: usize) -> usize {
        let replica = self.add();
        self.follow(replica, master);
        self.wait_until_well();
        replica
    }

    /// Takes in a node that was removed, or that came back as a stranger, as a master without slots, and waits until all is well. The
    /// others forget what does not exist any more.
    pub(crate) fn join(&mut self, node: usize) {
        self.forget(|cluster, id| cluster.place_of(id).is_none());
        let other = (0..self.nodes.len()).find(|other| self.nodes[*other].is_member && self.nodes[*other].is_up());
        self.introduce(node, other.expect("a node that is up"));
        self.nodes[node].is_member = true;
        self.wait_until_well();
    }

    /// Takes a node out as an operator does: moves its slots to the other masters, gives its replicas to one of them, lets all others
    /// forget it, and it all others. Waits until all is well. The node runs on, empty, with a new id, and can [join](Self::join) again.
    pub(crate) fn remove(&mut self, node: usize) {
        let others: Vec<_> = self.masters().into_iter().filter(|other| *other != node).collect();
        let slots: Vec<_> = self.slots_of(node).into_iter().flatten().collect();
        for (share, to) in slots.chunks(slots.len().div_ceil(others.len()).max(1)).zip(&others) {
            self.reshard(share.iter().copied(), *to);
        }
        // A master without slots may have become a replica by itself, and its replicas may have followed it.
        let heir = others[0];
        slowly("no replica follows the node", || {
            let replicas = self.replicas_of(node);
            for replica in &replicas {
                self.nodes[*replica].ask::<()>(&["CLUSTER", "REPLICATE", self.nodes[heir].id()]);
            }
            replicas.is_empty()
        });
        self.nodes[node].is_member = false;
        let id = self.nodes[node].id().to_owned();
        self.forget(|_, other| other == id);
        // By now they have all forgotten it, and for a minute none of them hears of it by another one.
        self.nodes[node].run::<()>(&["CLUSTER", "RESET", "HARD"]);
        self.nodes[node].learn_id();
        self.wait_until_well();
    }

    /// Lets all nodes that are up forget certain ids, and waits until they have.
    fn forget(&self, which: impl Fn(&Self, &str) -> bool) {
        slowly("the nodes forget one", || {
            let known: Vec<_> = self.up().map(|node| (node, node.view())).collect();
            let mut are_all_forgotten = true;
            for (node, view) in known {
                let ids = view.iter().flatten().filter(|seen| which(self, &seen.id));
                for seen in ids {
                    // Refused while the node is a replica of that one.
                    node.ask::<()>(&["CLUSTER", "FORGET", &seen.id]);
                    are_all_forgotten = false;
                }
                are_all_forgotten &= view.is_some();
            }
            are_all_forgotten
        });
    }
}
