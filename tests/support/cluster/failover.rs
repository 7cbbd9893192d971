//! Replicas that become masters, and what an operator does afterwards.

use super::super::Proxy;
use super::super::crew::slowly;
use super::{Cluster, Node};
use std::time::{Duration, Instant};

/// After so long a node gives up a failover that it was asked for.
const GIVEN_UP: Duration = Duration::from_secs(5);

impl Cluster {
    /// Makes a replica the master in place of its own one (`CLUSTER FAILOVER`), and waits until all nodes that are up know it. Returns
    /// the old master. Takes some hundredths of a second.
    pub(crate) fn fail_over_to(&self, replica: usize) -> usize {
        let old = self.master_of(replica).expect("a replica");
        let slot = *self.slots_of(old).first().expect("a master with slots").start();
        slowly("the replica has caught up", || self.nodes[replica].is_synced());
        let mut asked: Option<Instant> = None;
        slowly("the replica is a master", || {
            if asked.is_none_or(|at| at.elapsed() > GIVEN_UP) {
                asked = self.nodes[replica].ask::<()>(&["CLUSTER", "FAILOVER"]).map(|()| Instant::now());
            }
            self.nodes[replica].itself().is_some_and(|seen| seen.is("master"))
        });
        self.wait_for_owner(slot, replica);
        old
    }

    /// Waits until another node has all slots of this master, which was killed or stopped, and all nodes that are up know it and work.
    /// Returns the new master. Takes two to three seconds with a node time-out of one.
    pub(crate) fn wait_for_promotion(&self, old: usize) -> usize {
        let slots = self.nodes[old].last_words().slots;
        let slot = *slots.first().expect("the node was a master with slots").start();
        let mut new = None;
        slowly("a replica is promoted", || {
            let owners = self.agreed();
            let owner = owners.as_ref().and_then(|owners| super::view::owner(owners, slot));
            new = owner.and_then(|id| self.place_of(id)).filter(|owner| *owner != old);
            new.is_some() && self.up().all(Node::is_content)
        });
        new.unwrap()
    }

    /// Waits until the replicas of a master have what it has executed so far. Leaves nothing behind, and executes nothing but `INFO`.
    pub(crate) fn wait_for_replicas(&self, master: usize) {
        let replicas: Vec<_> = self.replicas_of(master).into_iter().map(|place| &self.nodes[place]).collect();
        let master = &self.nodes[master];
        let offset = |node: &Node, name| node.replication(name)?.parse::<u64>().ok();
        let goal = offset(master, "master_repl_offset").expect("the master answers");
        let history = master.replication("master_replid");
        slowly("the replicas have what the master has", || {
            let has_it = |node: &&Node| {
                node.is_synced()
                    && node.replication("master_replid") == history
                    && offset(node, "slave_repl_offset") >= Some(goal)
            };
            replicas.iter().all(has_it)
        });
    }

    /// Puts everything in order: all networks let everything through, all nodes run, and all is well.
    pub(crate) fn heal(&mut self) {
        self.nodes.iter().filter_map(|node| node.way.as_ref()).for_each(Proxy::heal);
        for node in self.nodes.iter_mut().filter(|node| node.is_member && !node.is_up()) {
            if node.server().is_running() { node.go_on() } else { node.restart() }
        }
        self.wait_until_well();
    }
}
