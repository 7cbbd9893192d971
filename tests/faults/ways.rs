//! How a worker process comes to its store: by a network of its own, or directly.

use crate::scene::Process;
use crate::servers::Servers;
use crate::setup::Setup;
use crate::support::Proxy;
use crate::support::cluster::{Cluster, Node};
use crate::support::sentinels::Sentinel;
use crate::work::PortMap;
use std::time::Duration;

/// What leads a process to its store.
pub(crate) struct Ways {
    pub(crate) proxy: Option<Proxy>,
    /// To the Sentinels, to the nodes of a Cluster, or to the servers of a consensus store.
    pub(crate) ways: Vec<Proxy>,
    pub(crate) url: String,
    pub(crate) ports: PortMap,
}

impl Ways {
    pub(crate) fn of(setup: &Setup, process: Process, servers: &Servers) -> Self {
        let to = |port| Proxy::to(port, Duration::ZERO);
        if let Servers::Cluster(cluster, _) = servers {
            return Self::to_nodes(cluster, setup.apart == Some(process));
        }
        if let Servers::Consensus(consensus) = servers {
            let direct = consensus.quorum.ports();
            let ways: Vec<_> =
                if setup.proxied { direct.iter().copied().map(Proxy::to_foreign).collect() } else { Vec::new() };
            let mut ports = if setup.proxied { ways.iter().map(Proxy::port).collect() } else { direct };
            // Each begins with another server.
            let first = process as usize % ports.len();
            ports.rotate_left(first);
            let url = consensus.url_by(&ports);
            return Self { proxy: None, ways, url, ports: PortMap::default() };
        }
        let Servers::Service(service, _) = servers else {
            let proxy = setup.proxied.then(|| to(servers.port()));
            let url = match &setup.login {
                Some(login) => servers.url().replace("//", &format!("//{login}@")),
                None => proxy.as_ref().map_or_else(|| servers.url(), Proxy::url),
            };
            return Self { proxy, ways: Vec::new(), url, ports: PortMap::default() };
        };
        let watched = if setup.proxied { service.sentinels.as_slice() } else { &[] };
        let sentinels: Vec<_> = watched.iter().map(|sentinel| to(sentinel.port())).collect();
        let url = match sentinels.as_slice() {
            [] => service.url(),
            ways => service.url_by("127.0.0.1", &ways.iter().map(Proxy::port).collect::<Vec<_>>()),
        };
        let mut ports: Vec<_> = watched.iter().map(Sentinel::port).zip(sentinels.iter().map(Proxy::port)).collect();
        if setup.apart == Some(process) {
            ports.extend(
                (0..service.servers.len()).map(|place| (service.port_of(place), service.servers[place].port())),
            );
        }
        Self { proxy: None, ways: sentinels, url, ports: PortMap(ports) }
    }

    /// To the nodes of a Cluster, in their order.
    fn to_nodes(cluster: &Cluster, is_apart: bool) -> Self {
        let masters = cluster.masters();
        if !is_apart {
            let url = cluster.url_of_seeds(&masters);
            return Self { proxy: None, ways: Vec::new(), url, ports: PortMap::default() };
        }
        let ports = || cluster.nodes.iter().map(Node::port);
        let ways: Vec<_> = ports().map(|port| Proxy::to(port, Duration::ZERO)).collect();
        let seeds: Vec<_> = masters.iter().map(|node| format!("127.0.0.1:{}", ways[*node].port())).collect();
        let url = format!("redis+cluster://{}/", seeds.join(","));
        let ports = PortMap(ports().zip(ways.iter().map(Proxy::port)).collect());
        Self { proxy: None, ways, url, ports }
    }
}
