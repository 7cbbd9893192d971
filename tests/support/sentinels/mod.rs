//! A master, its replicas and the Sentinels that watch them, all from `redis-server` alone.
//!
//! `redis-test` has a Sentinel cluster, too, but none of its processes can be stopped or killed by itself.
//!
//! | file | holds |
//! |---|---|
//! | `sentinel.rs` | one Sentinel |
//! | `failover.rs` | who is the master, and what an operator does after a failover |

mod failover;
mod sentinel;

use super::crew::slowly;
use super::{Proxy, RedisServer, free_port};
pub(crate) use failover::{PATIENT, is_master};
pub(crate) use sentinel::Sentinel;
use std::time::Duration;

/// What the Sentinels call the service.
pub(crate) const SERVICE: &str = "dlock";

/// A replica does not wait for others that might come.
const AT_ONCE: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

/// How a service is started.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) replicas: usize,
    pub(crate) sentinels: usize,
    /// After how long without an answer a Sentinel takes the master for dead.
    pub(crate) down_after_ms: u32,
    /// Whether a network of its own leads to each server: Sentinels, other servers and clients reach it by that alone.
    pub(crate) networked: bool,
    /// With TLS, all reach servers and Sentinels by that alone. The kit's own commands go by a port without.
    pub(crate) tls: Option<TlsFiles>,
    /// Further arguments of each server.
    pub(crate) server_args: Vec<String>,
    /// Further lines for each Sentinel, before it watches the service, and after.
    pub(crate) sentinel_lines: [Vec<String>; 2],
}

/// The files of the certificate that servers and Sentinels show, as servers and as clients.
#[derive(Clone, Debug)]
pub(crate) struct TlsFiles {
    pub(crate) certificate: String,
    pub(crate) key: String,
    pub(crate) authority: String,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            replicas: 2,
            sentinels: 3,
            down_after_ms: 500,
            networked: false,
            tls: None,
            server_args: vec![],
            sentinel_lines: [vec![], vec![]],
        }
    }
}

impl TlsFiles {
    /// The settings of a server or a Sentinel that is reached by this port.
    pub(in super::super) fn settings(&self, port: u16) -> [(&'static str, String); 5] {
        [
            ("tls-port", port.to_string()),
            ("tls-cert-file", self.certificate.clone()),
            ("tls-key-file", self.key.clone()),
            ("tls-ca-cert-file", self.authority.clone()),
            ("tls-replication", "yes".to_owned()),
        ]
    }
}

/// Servers that replicate one of them, and Sentinels that watch it.
pub(crate) struct Service {
    /// The first master is the first of them.
    pub(crate) servers: Vec<RedisServer>,
    pub(crate) sentinels: Vec<Sentinel>,
    /// The network that leads to each server, if the plan wants one.
    pub(crate) ways: Vec<Proxy>,
    /// The port by which Sentinels, other servers and clients reach each server.
    ports: Vec<u16>,
    has_tls: bool,
}

impl Service {
    /// Starts a master, two replicas and three Sentinels, and waits until they know each other: some three seconds.
    pub(crate) fn start() -> Self {
        Self::start_as(&Plan::default())
    }

    pub(crate) fn start_as(plan: &Plan) -> Self {
        let (mut servers, mut ports) = (Vec::new(), Vec::new());
        for _ in 0..=plan.replicas {
            let mut args: Vec<String> = plan.server_args.clone();
            args.extend(AT_ONCE.map(str::to_owned));
            let tls = plan.tls.as_ref().map(|files| (free_port(), files));
            for (name, value) in tls.iter().flat_map(|(port, files)| files.settings(*port)) {
                args.extend([format!("--{name}"), value]);
            }
            let server = RedisServer::start_with(&args.iter().map(String::as_str).collect::<Vec<_>>());
            ports.push(tls.map_or(server.port(), |(port, _)| port));
            servers.push(server);
        }
        let networks = if plan.networked { ports.as_slice() } else { &[] };
        let ways: Vec<_> = networks.iter().map(|port| Proxy::to(*port, Duration::ZERO)).collect();
        if plan.networked {
            ports = ways.iter().map(Proxy::port).collect();
        }
        let has_tls = plan.tls.is_some();
        let mut service = Self { servers, sentinels: Vec::new(), ways, ports, has_tls };
        (1..service.servers.len()).for_each(|replica| service.follow(replica, 0));
        service.sentinels = (0..plan.sentinels).map(|_| Sentinel::start(service.ports[0], plan)).collect();
        service.wait_until_complete();
        service
    }

    /// Makes a server a replica of another one.
    pub(crate) fn follow(&self, server: usize, master: usize) {
        let [own, of_master] = [server, master].map(|place| self.ports[place].to_string());
        if !self.ways.is_empty() {
            self.servers[server].run::<()>(&["CONFIG", "SET", "replica-announce-ip", "127.0.0.1"]);
            self.servers[server].run::<()>(&["CONFIG", "SET", "replica-announce-port", &own]);
        }
        self.servers[server].run::<()>(&["REPLICAOF", "127.0.0.1", &of_master]);
    }

    /// Waits until every Sentinel knows all others and all replicas, and the replicas have what the master has.
    pub(crate) fn wait_until_complete(&self) {
        let (sentinels, replicas) = (self.sentinels.len(), self.servers.len() - 1);
        slowly("the Sentinels know each other and the replicas", || {
            self.sentinels.iter().all(|sentinel| {
                let known = |field: &str| sentinel.master_field(field).and_then(|n| n.parse::<usize>().ok());
                known("num-other-sentinels") == Some(sentinels - 1)
                    && known("num-slaves") == Some(replicas)
                    && sentinel.master_field("flags").as_deref() == Some("master")
                    && sentinel.replicas_are_well()
            })
        });
        slowly("the replicas have what the master has", || {
            let is_up = |server: &&RedisServer| failover::info(server, "replication").contains("master_link_status:up");
            self.servers.iter().filter(is_up).count() == replicas
        });
    }

    /// The URL of the service, with all its Sentinels.
    pub(crate) fn url(&self) -> String {
        let ports: Vec<_> = self.sentinels.iter().map(Sentinel::public_port).collect();
        self.url_by("127.0.0.1", &ports)
    }

    /// The URL of the service with Sentinels on these ports of a host.
    pub(crate) fn url_by(&self, host: &str, ports: &[u16]) -> String {
        let scheme = if self.has_tls { "rediss+sentinel" } else { "redis+sentinel" };
        let places: Vec<_> = ports.iter().map(|port| format!("{host}:{port}")).collect();
        format!("{scheme}://{}/{SERVICE}", places.join(","))
    }

    /// The port by which others reach a server.
    pub(crate) fn port_of(&self, server: usize) -> u16 {
        self.ports[server]
    }
}
