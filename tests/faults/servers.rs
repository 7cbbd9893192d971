//! The servers of a scene: one server, a service with one master at a time, a Cluster, or the servers of a consensus store.

use crate::consensus_servers::ConsensusServers;
use crate::support::RedisServer;
use crate::support::cluster::{Cluster, Node, slot_of};
use crate::support::sentinels::Service;
use crate::work::KEY;
use std::ops::{Deref, DerefMut};

const NO_REDIS: &str = "a scene on a consensus store";

/// Stands for the one server, for the present master, or for the node that owns the slot of the lock.
pub(crate) enum Servers {
    One(Box<RedisServer>),
    /// A service, and the master's place among its servers.
    Service(Box<Service>, usize),
    /// A Cluster, and the place of the slot's owner among its nodes.
    Cluster(Box<Cluster>, usize),
    /// Servers of a consensus store.
    Consensus(Box<ConsensusServers>),
}

impl Servers {
    /// The service, in a scene that has one.
    pub(crate) fn service(&self) -> &Service {
        match self {
            Self::Service(service, _) => service,
            _ => panic!("a scene without Sentinels"),
        }
    }

    pub(crate) fn service_mut(&mut self) -> &mut Service {
        match self {
            Self::Service(service, _) => service,
            _ => panic!("a scene without Sentinels"),
        }
    }

    /// The Cluster, in a scene that has one.
    pub(crate) fn cluster(&self) -> &Cluster {
        match self {
            Self::Cluster(cluster, _) => cluster,
            _ => panic!("a scene without a Cluster"),
        }
    }

    pub(crate) fn cluster_mut(&mut self) -> &mut Cluster {
        match self {
            Self::Cluster(cluster, _) => cluster,
            _ => panic!("a scene without a Cluster"),
        }
    }

    /// The place of the master.
    pub(crate) fn master(&self) -> usize {
        match self {
            Self::One(_) | Self::Consensus(_) => 0,
            Self::Service(_, master) | Self::Cluster(_, master) => *master,
        }
    }

    /// The places of all masters.
    pub(crate) fn masters(&self) -> Vec<usize> {
        match self {
            Self::Cluster(cluster, _) => cluster.masters(),
            _ => vec![self.master()],
        }
    }

    /// Another server is the master now.
    pub(crate) fn follow(&mut self, server: usize) {
        if let Self::Service(_, master) | Self::Cluster(_, master) = self {
            *master = server;
        }
    }

    /// Waits until another server than this one is the master.
    pub(crate) fn follow_promotion(&mut self, old: usize) {
        let new = match self {
            Self::One(_) | Self::Consensus(_) => panic!("a scene without a master that others follow"),
            Self::Service(service, _) => service.wait_for_promotion(old),
            Self::Cluster(cluster, _) if cluster.nodes[old].is_up() => cluster.owner_of_key(KEY.2),
            Self::Cluster(cluster, _) => cluster.wait_for_promotion(old),
        };
        self.follow(new);
    }

    /// Waits until the replicas have what the master has.
    pub(crate) fn wait_for_replicas(&self) {
        match self {
            Self::One(_) | Self::Consensus(_) => {}
            Self::Service(service, master) => service.wait_for_replicas(service.servers[*master].port()),
            Self::Cluster(cluster, owner) => cluster.wait_for_replicas(*owner),
        }
    }

    /// The names of all keys.
    pub(crate) fn keys(&self) -> Vec<String> {
        match self {
            Self::Cluster(cluster, _) => cluster.keys("*"),
            Self::Consensus(consensus) => consensus.keys(),
            _ => self.run(&["KEYS", "*"]),
        }
    }

    /// The clients whose inboxes the master has; in a Cluster, for the slot of the lock.
    pub(crate) fn inboxes(&self) -> Vec<String> {
        let list = |kind: &str, prefix: &str| self.run::<Vec<String>>(&["PUBSUB", kind, &format!("{prefix}*")]);
        let channels = match self {
            Self::Cluster(..) => {
                let mut channels = list("SHARDCHANNELS", "DLOCK:1:");
                channels.retain(|channel| slot_of(channel) == slot_of(KEY.2));
                channels
            }
            _ => list("CHANNELS", "DLOCK:1:inbox:"),
        };
        channels.iter().filter_map(|channel| Some(channel.split_once("inbox:")?.1.to_owned())).collect()
    }

    /// The processes of all servers.
    pub(crate) fn pids(&mut self) -> Vec<u32> {
        match self {
            Self::One(server) => vec![server.pid()],
            Self::Service(service, _) => service.servers.iter().map(RedisServer::pid).collect(),
            Self::Cluster(cluster, _) => cluster.nodes.iter().map(|node| node.server().pid()).collect(),
            Self::Consensus(consensus) => consensus.pids(),
        }
    }

    /// The locker that has the lock.
    pub(crate) fn holder(&self) -> Option<String> {
        match self {
            Self::Consensus(consensus) => consensus.holder(),
            _ => self.run(&["GET", KEY.2]),
        }
    }

    /// Returns for how many milliseconds the key stays: negative if there is no key, or if it stays for ever.
    pub(crate) fn ttl_of(&self, key: &str) -> i64 {
        match self {
            Self::Cluster(cluster, _) => cluster.run(cluster.owner_of_key(key), &["PTTL", key]),
            _ => self.run(&["PTTL", key]),
        }
    }

    /// Puts everything in order, as an operator does. Returns the master.
    pub(crate) fn heal(&mut self) -> usize {
        match self {
            Self::One(_) | Self::Consensus(_) => 0,
            Self::Service(service, _) => service.heal(),
            Self::Cluster(cluster, _) => {
                cluster.heal();
                cluster.owner_of_key(KEY.2)
            }
        }
    }

    /// Ends the master's process.
    pub(crate) fn kill_master(&mut self) {
        match self {
            Self::Cluster(cluster, owner) => cluster.nodes[*owner].kill(),
            _ => self.kill(),
        }
    }
}

impl Deref for Servers {
    type Target = RedisServer;

    fn deref(&self) -> &RedisServer {
        match self {
            Self::One(server) => server,
            Self::Service(service, master) => &service.servers[*master],
            Self::Cluster(cluster, owner) => cluster.nodes[*owner].server(),
            Self::Consensus(_) => panic!("{NO_REDIS}"),
        }
    }
}

/// A node of a Cluster has its own words for what is done to it.
impl DerefMut for Servers {
    fn deref_mut(&mut self) -> &mut RedisServer {
        match self {
            Self::One(server) => server,
            Self::Service(service, master) => &mut service.servers[*master],
            Self::Cluster(..) => panic!("a scene with a Cluster"),
            Self::Consensus(_) => panic!("{NO_REDIS}"),
        }
    }
}

impl Servers {
    /// One of the servers.
    pub(crate) fn at(&self, place: usize) -> &RedisServer {
        match self {
            Self::One(server) => server,
            Self::Service(service, _) => &service.servers[place],
            Self::Cluster(cluster, _) => cluster.nodes[place].server(),
            Self::Consensus(_) => panic!("{NO_REDIS}"),
        }
    }

    /// How many replicas a master has when all is well.
    pub(crate) fn replicas(&self) -> usize {
        match self {
            Self::One(_) | Self::Consensus(_) => 0,
            Self::Service(service, _) => service.servers.len() - 1,
            Self::Cluster(..) => 1,
        }
    }

    /// A node of the Cluster.
    pub(crate) fn node(&self, place: usize) -> &Node {
        &self.cluster().nodes[place]
    }
}
