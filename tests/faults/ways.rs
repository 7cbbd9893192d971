//! How a worker process comes to its store: by a network of its own, or directly.

use crate::scene::Process;
use crate::servers::Servers;
use crate::setup::Setup;
use crate::support::Proxy;
use crate::support::sentinels::Sentinel;
use crate::worker::PortMap;
use std::time::Duration;

/// What leads a process to its store.
pub(crate) struct Ways {
    pub(crate) proxy: Option<Proxy>,
    pub(crate) sentinels: Vec<Proxy>,
    pub(crate) url: String,
    pub(crate) ports: PortMap,
}

impl Ways {
    pub(crate) fn of(setup: &Setup, process: Process, servers: &Servers) -> Self {
        let to = |port| Proxy::to(port, Duration::ZERO);
        let Servers::Service(service, _) = servers else {
            let proxy = setup.proxied.then(|| to(servers.port()));
            let url = match &setup.login {
                Some(login) => servers.url().replace("//", &format!("//{login}@")),
                None => proxy.as_ref().map_or_else(|| servers.url(), Proxy::url),
            };
            return Self { proxy, sentinels: Vec::new(), url, ports: PortMap::default() };
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
        Self { proxy: None, sentinels, url, ports: PortMap(ports) }
    }
}
