//! Consul.

use super::{ConsensusStore, DOORS, LOCAL, Look, Network, Quorum, Server, asking, directory, ports, program};
use crate::support::crew::eventually;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dlock_consensus::ConsulLockProcessor;
use redis_dlock::port::LockProcessor;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

pub(crate) struct Consul {
    servers: Vec<Server>,
    /// Where the first server hears the gossip.
    gossip: String,
    directory: TempDir,
}

/// The setting `session_ttl_min` of these servers.
const SHORTEST: Duration = Duration::from_millis(500);

/// The flag of a lock in Go's package `api`.
const FLAG: u64 = 0x2ddc_cbc0_58a5_0c18;

/// Asks one server. Fails if it does not answer within two seconds.
fn ask(address: &str, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
    let request =
        ureq::http::Request::builder().method(method).uri(format!("{address}/v1/{path}")).body(body.to_owned());
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(2)))
        .build()
        .into();
    let answer = agent.run(request.unwrap()).ok()?;
    let status = answer.status().as_u16();
    Some((status, answer.into_body().read_to_string().ok()?))
}

/// A path of an entry in a URL.
fn in_url(path: &str) -> String {
    path.bytes()
        .map(|b| {
            if b.is_ascii_alphanumeric() || b"/._~-".contains(&b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

/// Whether a server or agent at this address says what a majority has.
fn is_ready(address: &str) -> bool {
    ask(address, "GET", "kv/?keys&consistent", "").is_some_and(|(status, _)| [200, 404].contains(&status))
}

/// Whether each server that runs votes. Autopilot takes the vote from one that is dead for some seconds, and gives it back some seconds after
/// its return.
fn do_all_vote(address: &str) -> bool {
    let ask = |path| ask(address, "GET", path, "").and_then(|(_, answer)| serde_json::from_str::<Value>(&answer).ok());
    let count = |list: &Value, is_one: &dyn Fn(&Value) -> bool| {
        list.as_array().map(|list| list.iter().filter(|one| is_one(one)).count())
    };
    let alive = ask("agent/members")
        .and_then(|all| count(&all, &|member| member["Tags"]["role"] == "consul" && member["Status"] == 1));
    let consensus =
        ask("operator/raft/configuration").and_then(|found| count(&found["Servers"], &|one| one["Voter"] == true));
    alive.zip(consensus).is_some_and(|(alive, consensus)| alive <= consensus)
}

/// The command of an agent with these settings, written to a file of this name.
pub(super) fn agent(directory: &Path, name: &str, settings: &Value) -> impl Fn() -> Command + Send + Sync + use<> {
    let file = directory.join(format!("{name}.json"));
    fs::write(&file, settings.to_string()).unwrap();
    move || {
        let mut command = Command::new(program::<Consul>());
        command.arg("agent").arg(format!("-config-file={}", file.display()));
        command
    }
}

impl Consul {
    /// Starts an agent beside the servers, with Consul's own settings.
    pub(crate) fn agent(&self) -> Server {
        let ports = ports(3);
        let settings = json!({
            "server": false, "node_name": "agent", "datacenter": "dc1", "bind_addr": LOCAL, "client_addr": LOCAL,
            "data_dir": self.directory.path().join("agent"), "disable_update_check": true, "log_level": "ERR",
            "ports": { "http": ports[0], "dns": -1, "grpc": -1, "grpc_tls": -1, "serf_lan": ports[1], "serf_wan": -1 },
            "retry_join": [self.gossip], "retry_interval": "1s",
        });
        let command = agent(self.directory.path(), "agent", &settings);
        let mut agent = Server::new(format!("http://{LOCAL}:{}", ports[0]), ports[2], is_ready, command);
        agent.begin();
        agent.wait();
        eventually("it is in the catalog", || self.nodes().iter().any(|node| node == "agent"));
        agent
    }

    /// The nodes in the catalog.
    pub(crate) fn nodes(&self) -> Vec<String> {
        let nodes: Vec<Value> = serde_json::from_str(&self.call("GET", "catalog/nodes?consistent", "").1).unwrap();
        nodes.iter().map(|node| node["Node"].as_str().unwrap().to_owned()).collect()
    }

    /// Takes a node out of the catalog.
    pub(crate) fn deregister(&self, node: &str) {
        self.call("PUT", "catalog/deregister", &json!({ "Node": node }).to_string());
    }

    /// Has a server leave the others in an orderly way, as `consul leave` does.
    pub(crate) fn leave(&self, server: usize) {
        ask(&self.servers[server].address, "PUT", "agent/leave", "");
    }

    fn call(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut answer = None;
        eventually("Consul answers", || {
            let running = self.servers.iter().filter(|server| server.is_running());
            let mut answers = running.filter_map(|server| ask(&server.address, method, path, body));
            // 500 says that there is no leader.
            answer = answers.find(|(status, _)| *status < 500);
            answer.is_some()
        });
        answer.unwrap()
    }

    /// Writes an entry that nobody holds, with this flag.
    pub(crate) fn set(&self, path: &str, value: &str, flag: u64) {
        self.call("PUT", &format!("kv/{}?flags={flag}", in_url(path)), value);
    }

    /// All sessions, as Consul tells them.
    pub(crate) fn all_sessions(&self) -> Vec<Value> {
        serde_json::from_str(&self.call("GET", "session/list?consistent", "").1).unwrap()
    }

    fn session(&self, lease: Option<Duration>) -> String {
        let ttl = lease.map_or("24h".into(), |lease| format!("{}ms", lease.as_millis()));
        let body = json!({ "TTL": ttl, "LockDelay": "0s", "Behavior": "delete", "NodeChecks": [] });
        let (_, answer) = self.call("PUT", "session/create", &body.to_string());
        let answer: Value = serde_json::from_str(&answer).expect(&answer);
        answer["ID"].as_str().unwrap().to_owned()
    }
}

impl ConsensusStore for Consul {
    const LEASE: Duration = Duration::from_secs(2);
    const LONG_LEASE: Duration = Duration::from_secs(15);
    const NAME: &'static str = "Consul";
    const PROGRAM: [&'static str; 2] = ["consul", "CONSUL_BIN"];

    fn start_between(count: usize, network: Option<Network<'_>>) -> Self {
        let directory = directory();
        let ports = ports(4 * count);
        let door = if network.is_some() { DOORS } else { LOCAL };
        let others: Vec<_> = (0..count).map(|n| format!("{door}:{}", ports[4 * n + 1])).collect();
        // As Consul advises for production.
        let multiplier = std::env::var("DLOCK_TEST_RAFT_MULTIPLIER").map_or(1, |times| times.parse().unwrap());
        let server = |n: usize| {
            let data = directory.path().join(n.to_string());
            let settings = json!({
                "server": true, "bootstrap_expect": count, "node_name": format!("server{n}"), "datacenter": "dc1",
                "bind_addr": LOCAL, "client_addr": LOCAL, "data_dir": data,
                // The gossip between the servers goes by no network: it decides nothing.
                "advertise_addr": door, "serf_lan": door,
                "disable_update_check": true, "log_level": "ERR", "session_ttl_min": "500ms",
                "connect": { "enabled": false }, "performance": { "raft_multiplier": multiplier },
                "limits": { "http_max_conns_per_client": 2000 },
                // A segment of the log takes its whole size at once, 64 MiB by default. A part of the tests runs twenty servers at a time.
                "raft_logstore": { "wal": { "segment_size_mb": 1 } },
                "ports": {
                    "http": ports[4 * n], "dns": -1, "grpc": -1, "grpc_tls": -1, "serf_lan": ports[4 * n + 1],
                    "serf_wan": -1, "server": ports[4 * n + 2],
                },
                "retry_join": others, "retry_interval": "1s",
            });
            let command = agent(directory.path(), &n.to_string(), &settings);
            let address = format!("http://{LOCAL}:{}", ports[4 * n]);
            Server::new(address, ports[4 * n + 2], is_ready, command).with_votes(do_all_vote)
        };
        let mut servers: Vec<_> = (0..count).map(server).collect();
        if let Some(network) = network {
            network(&servers);
        }
        servers.iter_mut().for_each(Server::begin);
        Server::wait_for_all(&mut servers);
        Self { servers, gossip: others[0].clone(), directory }
    }

    fn processor(url: &str) -> Arc<dyn LockProcessor> {
        Arc::new(ConsulLockProcessor::builder(url).unwrap().session_ttl_min(SHORTEST).build().unwrap())
    }

    /// A quarter longer, and Consul waits twice as long.
    fn longest(lease: Duration) -> Duration {
        lease * 5 / 2 + Duration::from_millis(500)
    }
}

impl Quorum for Consul {
    fn servers(&mut self) -> &mut [Server] {
        &mut self.servers
    }

    fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(Server::port).collect()
    }

    fn address(&self) -> &str {
        self.servers[0].address.trim_start_matches("http://")
    }

    fn url_by(&self, ports: &[u16], prefix: &str) -> String {
        let servers: Vec<_> = ports.iter().map(|port| format!("{LOCAL}:{port}")).collect();
        format!("consul://{}/{prefix}", servers.join(","))
    }

    fn leader(&self) -> usize {
        let mut leader = None;
        eventually("a leader", || {
            let asked = self.servers.iter().filter(|server| server.is_running());
            let told = asked
                .filter_map(|server| ask(&server.address, "GET", "status/leader", ""))
                .find(|(status, _)| *status == 200);
            let is_told = |server: &Server| {
                told.as_ref().is_some_and(|(_, told)| told.contains(&format!(":{}\"", server.peers())))
            };
            leader = self.servers.iter().position(|server| server.is_running() && is_told(server));
            leader.is_some()
        });
        leader.unwrap()
    }

    fn delete(&self, path: &str) -> bool {
        let path = in_url(path);
        let is_there = self.call("GET", &format!("kv/{path}?consistent"), "").0 == 200;
        self.call("DELETE", &format!("kv/{path}"), "");
        is_there
    }

    fn hold(&self, path: &str, value: &str, lease: Option<Duration>) {
        let held = format!("kv/{}?flags={FLAG}&acquire={}", in_url(path), self.session(lease));
        // Somebody else may take it in between.
        eventually("the entry is held", || {
            self.delete(path);
            self.call("PUT", &held, value).1.trim() == "true"
        });
    }

    fn put(&self, path: &str, value: &str) {
        self.set(path, value, 0);
    }

    fn list(&self, prefix: &str) -> Vec<String> {
        let (status, names) = self.call("GET", &format!("kv/{}?keys&consistent", in_url(prefix)), "");
        if status == 404 { Vec::new() } else { serde_json::from_str(&names).unwrap() }
    }

    fn log_index(&self) -> u64 {
        let own: Value = serde_json::from_str(&self.call("GET", "agent/self", "").1).unwrap();
        own["Stats"]["raft"]["last_log_index"].as_str().and_then(|index| index.parse().ok()).expect("an index")
    }

    fn sessions(&self) -> usize {
        self.all_sessions().len()
    }

    fn session_lives(&self) -> Vec<Duration> {
        let life = |session: &Value| match session["TTL"].as_str()? {
            text if text.ends_with("ms") => Some(Duration::from_millis(text.trim_end_matches("ms").parse().ok()?)),
            text => Some(Duration::from_secs(text.trim_end_matches('s').parse().ok()?)),
        };
        self.all_sessions().iter().map(|session| life(session).expect("a time")).collect()
    }

    fn end_session(&self, session: &str) {
        self.call("PUT", &format!("session/destroy/{session}"), "");
    }

    fn look_at(&self, path: &str) -> Box<dyn Fn() -> Option<Look> + Send> {
        let addresses = self.servers.iter().map(|server| server.address.clone()).collect();
        let path = format!("kv/{}?consistent", in_url(path));
        Box::new(asking(addresses, move |address| match ask(address, "GET", &path, "")? {
            (404, _) => Some(Look::Absent),
            (200, answer) => {
                let entry = &serde_json::from_str::<Value>(&answer).ok()?[0];
                let value = STANDARD.decode(entry["Value"].as_str().unwrap_or("")).ok()?;
                Some(Look::Held {
                    index: entry["ModifyIndex"].as_u64()?,
                    value: String::from_utf8(value).ok()?,
                    session: entry["Session"].as_str().unwrap_or("").to_owned(),
                })
            }
            _ => None,
        }))
    }
}
