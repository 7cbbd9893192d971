//! A Redis Cluster: masters and their replicas, all from `redis-server` alone.
//!
//! `redis-test` has one, too, but it needs `redis-cli`, has a fixed node time-out, and none of its nodes can be stopped or killed by
//! itself.
//!
//! | file | holds |
//! |---|---|
//! | `node.rs` | one node: killed, stopped, started again |
//! | `ports.rs` | free ports |
//! | `slots.rs` | which slot a key falls into, and keys for a slot |
//! | `view.rs` | what a node says of the cluster |
//! | `agreement.rs` | waiting until the nodes agree; who owns a slot |
//! | `failover.rs` | replicas that become masters |
//! | `migration.rs` | a slot that moves, step by step |
//! | `reshard.rs` | many slots that move |
//! | `saying.rs` | telling nodes where slots belong |
//! | `members.rs` | nodes that come and go |
//! | `slot_subscriptions.rs` | whether clients hear what they believe to hear |
//! | `counts.rs` | keys and executed commands, of all nodes together |

mod agreement;
mod counts;
mod failover;
mod members;
mod migration;
mod node;
mod ports;
mod reshard;
mod saying;
mod slot_subscriptions;
mod slots;
mod view;

use super::crew::slowly;
pub(crate) use super::sentinels::TlsFiles;
pub(crate) use migration::{Migration, Step};
pub(crate) use node::Node;
pub(crate) use slot_subscriptions::client_of;
pub(crate) use slots::{SLOTS, keys_in, slot_of};
use std::ops::RangeInclusive;
use std::thread;
pub(crate) use view::{Owners, Seen};

/// How a cluster is started.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) masters: usize,
    /// How many replicas each master has.
    pub(crate) replicas: usize,
    /// After how long without an answer a node takes another one for dead.
    pub(crate) node_timeout_ms: u32,
    /// Whether a network of its own leads to each node: the cluster names that alone to clients and replicas. The bus is not concerned.
    pub(crate) networked: bool,
    /// With TLS, clients, replicas and the bus use that alone. The kit's own commands go by a port without.
    pub(crate) tls: Option<TlsFiles>,
    /// Further arguments of each node.
    pub(crate) args: Vec<String>,
}

impl Default for Plan {
    fn default() -> Self {
        Self { masters: 3, replicas: 1, node_timeout_ms: 1000, networked: false, tls: None, args: vec![] }
    }
}

impl Plan {
    /// Nodes that take no other one for dead, however busy the machine is: for tests in which no master fails.
    pub(crate) fn steady() -> Self {
        Self { node_timeout_ms: 60_000, ..Self::default() }
    }
}

/// A cluster. Nodes are named by their place in the list.
pub(crate) struct Cluster {
    /// At first the masters, in the order of their slots; then the replicas: first one of each master, in that order.
    /// Nodes that were added come last. Who was removed stays in its place.
    pub(crate) nodes: Vec<Node>,
    plan: Plan,
}

impl Cluster {
    /// Starts three masters and a replica of each, and waits until all is well: some three seconds, of which the masters spend two
    /// waiting for others that might know better.
    pub(crate) fn start() -> Self {
        Self::start_as(&Plan::default())
    }

    pub(crate) fn start_as(plan: &Plan) -> Self {
        let nodes = thread::scope(|scope| {
            let count = plan.masters * (1 + plan.replicas);
            let starting: Vec<_> = (0..count).map(|_| scope.spawn(|| Node::start(plan))).collect();
            starting.into_iter().map(|node| node.join().unwrap()).collect()
        });
        let mut cluster = Self { nodes, plan: plan.clone() };
        cluster.nodes.iter_mut().for_each(|node| node.is_member = true);
        // Without this, nodes with the same epoch would have to notice it.
        for (place, node) in cluster.nodes.iter().enumerate() {
            node.run::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(place + 1).to_string()]);
        }
        for (master, slots) in cluster.shares(plan.masters).into_iter().enumerate() {
            let (first, last) = (slots.start().to_string(), slots.end().to_string());
            cluster.nodes[master].run::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
        }
        (1..cluster.nodes.len()).for_each(|node| cluster.introduce(node, 0));
        for replica in plan.masters..cluster.nodes.len() {
            cluster.follow(replica, (replica - plan.masters) % plan.masters);
        }
        cluster.wait_until_well();
        cluster
    }

    /// All slots in so many equal parts.
    fn shares(&self, parts: usize) -> Vec<RangeInclusive<u16>> {
        let begin = |part: usize| u16::try_from(usize::from(SLOTS) * part / parts).unwrap();
        (0..parts).map(|part| begin(part)..=begin(part + 1) - 1).collect()
    }

    /// Makes a node known to another one, and so to all.
    fn introduce(&self, node: usize, to: usize) {
        let node = &self.nodes[node];
        let (port, bus_port) = (node.port().to_string(), node.bus_port().to_string());
        self.nodes[to].run::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus_port]);
    }

    /// Makes a node without slots a replica of a master, as soon as it knows that.
    pub(crate) fn follow(&self, replica: usize, master: usize) {
        let [replica, master] = [replica, master].map(|place| &self.nodes[place]);
        slowly("a node becomes a replica", || replica.ask::<String>(&["CLUSTER", "REPLICATE", master.id()]).is_some());
    }

    /// The URL of one node.
    pub(crate) fn url(&self, node: usize) -> String {
        format!("{}://127.0.0.1:{}/", self.scheme(), self.nodes[node].port())
    }

    /// The URL with these nodes as seeds.
    pub(crate) fn url_of_seeds(&self, seeds: &[usize]) -> String {
        let places: Vec<_> = seeds.iter().map(|seed| format!("127.0.0.1:{}", self.nodes[*seed].port())).collect();
        format!("{}+cluster://{}/", self.scheme(), places.join(","))
    }

    fn scheme(&self) -> &'static str {
        if self.plan.tls.is_some() { "rediss" } else { "redis" }
    }

    /// A new connection to a node for plain commands, past its network.
    pub(crate) fn connection(&self, node: usize) -> redis::Connection {
        self.nodes[node].connection()
    }

    /// Runs one command on a node.
    pub(crate) fn run<T: redis::FromRedisValue>(&self, node: usize, words: &[&str]) -> T {
        self.nodes[node].run(words)
    }
}
