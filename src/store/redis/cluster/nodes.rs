//! The nodes of a Cluster, by their places. Each has its own connections, at most [`CONNECTIONS`], opened when they are needed.
//!
//! A `Node` is created when the map, a `MOVED` or an `ASK` names its place, which opens no connection. It is closed when the node
//! has left the map and no call was sent to it for [`IDLE_NODE`], so that a client keeps no sockets to nodes of the past. A connection that
//! was not used for [`IDLE_CONNECTION`] is closed, too. Both are checked when a map comes in, which is once a minute while calls are made.
//! So no thread is needed for these checks.
//!
//! A node may redirect a call to its own place. Then another server is at that place than the one to which the connection leads, for
//! example after a failover behind one address. The node is *made again*, with new connections. That happens at most once in [`RENEWAL`],
//! because many calls may be redirected at the same time.

use super::timing::{IDLE_CONNECTION, IDLE_NODE, RENEWAL};
use crate::backoff::Cooldown;
use crate::store::redis::net::address::{Address, Place};
use crate::store::redis::net::endpoint::Endpoint;
use crate::store::redis::net::identity::Servers;
use crate::store::redis::net::resp::Stamp;
use crate::store::redis::node::{Node, confirming};
use crate::store::redis::script::acks::ReplicaAcks;
use crate::store::redis::script::scripts::Form;
use crate::store::redis::transport::{Polling, Transport};
use crate::sync::unseen::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The most connections to a node for calls. One of them is for renewals alone.
const CONNECTIONS: usize = 4;

/// No command is stamped: see the module.
const NO_STAMP: Stamp = *b"00000";

/// How nodes are reached.
#[derive(Clone)]
pub(crate) struct Reach {
    /// An endpoint with the login for all nodes. Its place is replaced by that of each node.
    pub(crate) endpoint: Endpoint,
    pub(crate) io_timeout: Duration,
    pub(crate) polling: Polling,
    /// How many replicas must acknowledge calls, if any must.
    pub(crate) acks: Option<ReplicaAcks>,
}

impl Reach {
    /// Returns the endpoint of a node.
    pub(crate) fn endpoint_at(&self, place: &Place, servers: Arc<Servers>) -> Endpoint {
        let address = Address { place: place.clone(), ..self.endpoint.address.clone() };
        Endpoint { address, servers, ..self.endpoint.clone() }
    }
}

pub(crate) struct Nodes {
    pub(crate) reach: Reach,
    /// Called when another server answers at a node's place than before.
    told: Arc<dyn Fn() + Send + Sync>,
    table: Mutex<NodeTable>,
}

#[derive(Default)]
struct NodeTable {
    entries: HashMap<Place, NodeEntry>,
    /// The nodes that were replaced, or have left the map, and still have callers.
    former: Vec<Weak<Node>>,
    /// A node that is made after the closing is closed from the beginning.
    is_closed: bool,
}

struct NodeEntry {
    node: Arc<Node>,
    /// When the node last owned a slot, or a call was sent to it beside the map.
    used: Instant,
    /// Lasts while the node is not made again, after it was.
    renewed: Cooldown<Instant>,
}

impl NodeEntry {
    fn new(node: &Arc<Node>) -> Self {
        Self { node: Arc::clone(node), used: Instant::now(), renewed: Cooldown::default() }
    }
}

impl Nodes {
    pub(crate) fn new(reach: Reach, told: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self { reach, told, table: Mutex::default() }
    }

    /// Returns the node at a place. Does not connect.
    pub(crate) fn at(&self, place: &Place) -> Arc<Node> {
        let mut table = self.table.lock();
        // A `MOVED` or an `ASK` may name a node that the map does not have. Its use is noted here, so that it is not forgotten.
        if let Some(entry) = table.entries.get_mut(place) {
            entry.used = Instant::now();
            return Arc::clone(&entry.node);
        }
        // Each place has its own history: its number rises when another server than before answers *there*, as after a failover that moved an
        // address.
        let servers = Arc::<Servers>::default();
        let told = Arc::clone(&self.told);
        servers.tell(Box::new(move |_| told()));
        let node = self.make(place, servers, &table);
        table.entries.insert(place.clone(), NodeEntry::new(&node));
        node
    }

    /// Returns the node at a place if it is known, and has a connection that callers share.
    pub(crate) fn connected(&self, place: &Place) -> Option<Arc<Node>> {
        let table = self.table.lock();
        table.entries.get(place).map(|entry| &entry.node).filter(|node| node.transport.is_connected()).cloned()
    }

    /// Replaces a node that has redirected a call to itself: another server is behind its name now. Its connections end when their
    /// last callers leave. What was known of the server is compared with what the next one says.
    ///
    /// A node is replaced once in [`RENEWAL`]: if its name still leads to the wrong server, each call would open new connections.
    /// Returns `None` before that.
    pub(crate) fn renew(&self, old: &Arc<Node>, now: Instant) -> Option<Arc<Node>> {
        let place = &old.transport.endpoint().address.place;
        let mut table = self.table.lock();
        match table.entries.get(place) {
            // Another caller has already made it again.
            Some(entry) if !Arc::ptr_eq(&entry.node, old) => return Some(Arc::clone(&entry.node)),
            // The node was made again a moment ago, and still redirects to itself, so its name leads to the wrong server. The call pauses, as for a
            // node that cannot execute it now.
            Some(entry) if entry.renewed.lasts(now) => return None,
            _ => {}
        }
        // The new node has the history of the earlier one. So if another server answers now, the number rises with the first connection, and the
        // client asks about all that it holds. This is mostly a failover.
        let node = self.make(place, Arc::clone(old.servers()), &table);
        let mut entry = NodeEntry::new(&node);
        entry.renewed.fail(now, RENEWAL);
        // Callers may still wait for the earlier node. The closing of the Cluster must reach them, so a weak pointer to the node is kept.
        let former = table.entries.insert(place.clone(), entry);
        table.former.extend(former.map(|entry| Arc::downgrade(&entry.node)));
        Some(node)
    }

    fn make(&self, place: &Place, servers: Arc<Servers>, table: &NodeTable) -> Arc<Node> {
        let Reach { io_timeout, polling, acks, .. } = &self.reach;
        let endpoint = self.reach.endpoint_at(place, servers);
        // One connection is for renewals alone, as on one server: a script of a batch must not keep a lease from being extended.
        let transport = Transport::new(endpoint, *io_timeout, *polling, NO_STAMP, confirming(acks.as_ref()));
        // The flag is read under the mutex that the closing takes. So a node is closed here, or the closing finds it.
        if table.is_closed {
            transport.close();
        }
        Arc::new(Node::new(transport.with_callers(CONNECTIONS - 1), Form::Cluster, *acks))
    }

    /// Forgets the nodes that own no slot any more, and were not used for a while, and ends the connections to others that were idle for long.
    pub(crate) fn keep(&self, owners: &[Place], now: Instant) {
        let mut gone = Vec::new();
        let mut table = self.table.lock();
        // Owners count as used even if no call is sent to them. Otherwise a lock that is taken once an hour would need a new connect each time.
        for (place, entry) in table.entries.iter_mut().filter(|(place, _)| owners.contains(place)) {
            debug_assert_eq!(*place, entry.node.transport.endpoint().address.place);
            entry.used = now;
        }
        table.entries.retain(|_, entry| {
            let stays = now.saturating_duration_since(entry.used) < IDLE_NODE;
            if !stays {
                gone.push(Arc::clone(&entry.node));
            }
            stays
        });
        // Calls may be under way to a node that is forgotten. They keep the node alive until they end, so the closing must find it.
        table.former.extend(gone.iter().map(Arc::downgrade));
        // So the list has no more nodes than calls are under way, however often the Cluster changes.
        table.former.retain(|node| node.strong_count() > 0);
        let stay: Vec<_> = table.entries.values().map(|entry| Arc::clone(&entry.node)).collect();
        drop(table);
        // This happens without the mutex, which every redirected call needs: each connection has a mutex of its own, which its callers may hold.
        stay.iter().for_each(|node| node.transport.end_idle(IDLE_CONNECTION));
        // The connections of the forgotten nodes end here, without the mutex.
        drop(gone);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Node>> {
        self.table.lock().entries.values().map(|entry| Arc::clone(&entry.node)).collect()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.table.lock().is_closed
    }

    /// Closes all nodes, and every later one.
    pub(crate) fn close(&self) {
        let mut table = self.table.lock();
        table.is_closed = true;
        // The flag is set first: a node that is made from now on is closed from the beginning, so no node is missed.
        let former: Vec<_> = table.former.iter().filter_map(Weak::upgrade).collect();
        drop(table);
        self.all().iter().chain(&former).for_each(|node| node.transport.close());
    }
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/cluster/nodes.rs"]
mod tests;
