//! etcd.

use super::{ConsensusStore, DOORS, LOCAL, Look, Network, Quorum, Server, asking, directory, ports, program};
use crate::support::crew::eventually;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dlock_consensus::EtcdLockProcessor;
use redis_dlock::port::LockProcessor;
use serde_json::{Value, json};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

pub(crate) struct Etcd {
    servers: Vec<Server>,
    _directory: TempDir,
}

/// Asks one server. Fails if it does not answer within two seconds.
fn ask(address: &str, path: &str, body: &Value) -> Option<Value> {
    let request =
        ureq::post(format!("{address}/v3/{path}")).config().timeout_global(Some(Duration::from_secs(2))).build();
    let answer = request.send(&body.to_string()).ok()?;
    serde_json::from_str(&answer.into_body().read_to_string().ok()?).ok()
}

impl Etcd {
    fn call(&self, path: &str, body: &Value) -> Value {
        let mut answer = None;
        eventually("etcd answers", || {
            let mut running = self.servers.iter().filter(|server| server.is_running());
            answer = running.find_map(|server| ask(&server.address, path, body));
            answer.is_some()
        });
        answer.unwrap()
    }

    /// Forgets what was written before an index.
    pub(crate) fn compact(&self, index: u64) {
        self.call("kv/compaction", &json!({ "revision": index.to_string(), "physical": true }));
    }

    /// Writes an entry whose name is perhaps no text.
    pub(crate) fn put_bytes(&self, path: &[u8]) {
        self.call("kv/put", &json!({ "key": STANDARD.encode(path) }));
    }
}

impl ConsensusStore for Etcd {
    const LEASE: Duration = Duration::from_secs(2);
    const LONG_LEASE: Duration = Duration::from_secs(15);
    const NAME: &'static str = "etcd";
    const PROGRAM: [&'static str; 2] = ["etcd", "ETCD_BIN"];

    fn start_between(count: usize, network: Option<Network<'_>>) -> Self {
        let directory = directory();
        let ports = ports(2 * count);
        let address = |port: u16| format!("http://{LOCAL}:{port}");
        let door = if network.is_some() { DOORS } else { LOCAL };
        let reached = |n: usize| format!("http://{door}:{}", ports[2 * n]);
        let all: Vec<_> = (0..count).map(|n| format!("server{n}={}", reached(n))).collect();
        let server = |n: usize| {
            let (peers, clients, reached) = (address(ports[2 * n]), address(ports[2 * n + 1]), reached(n));
            let (data, all, listens) = (directory.path().join(n.to_string()), all.join(","), clients.clone());
            let is_ready = |address: &str| ask(address, "kv/range", &json!({ "key": "AA==" })).is_some();
            Server::new(clients, ports[2 * n], is_ready, move || {
                let mut command = Command::new(program::<Self>());
                command.args(["--name", &format!("server{n}"), "--log-level", "error", "--data-dir"]).arg(&data);
                command.args(["--listen-client-urls", &listens, "--advertise-client-urls", &listens]);
                command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &reached]);
                command.args(["--initial-cluster", &all]);
                command
            })
        };
        let mut servers: Vec<_> = (0..count).map(server).collect();
        if let Some(network) = network {
            network(&servers);
        }
        servers.iter_mut().for_each(Server::begin);
        Server::wait_for_all(&mut servers);
        Self { servers, _directory: directory }
    }

    fn processor(url: &str) -> Arc<dyn LockProcessor> {
        Arc::new(EtcdLockProcessor::new(url).unwrap())
    }

    /// A quarter longer, in whole seconds; etcd looks for leases that have ended every half second.
    fn longest(lease: Duration) -> Duration {
        Duration::from_secs((lease + lease / 4).as_secs() + 2)
    }

    /// Leaders before 3.4.31 and 3.5.13 do so: [issue 15247](https://github.com/etcd-io/etcd/issues/15247).
    fn resumed_leader_ends_leases() -> bool {
        let output = Command::new(program::<Self>()).arg("--version").output().expect("etcd runs");
        let text = String::from_utf8(output.stdout).unwrap();
        let version = text.lines().find_map(|line| line.strip_prefix("etcd Version: ")).expect("it says its version");
        let mut parts = version.trim().split('.').map(|part| part.parse::<u32>().unwrap_or_default());
        let number = [(); 3].map(|()| parts.next().unwrap_or_default());
        matches!(number, [3, 4, ..=30] | [3, 5, ..=12])
    }
}

impl Quorum for Etcd {
    fn servers(&mut self) -> &mut [Server] {
        &mut self.servers
    }

    fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(|server| server.address.rsplit_once(':').unwrap().1.parse().unwrap()).collect()
    }

    fn address(&self) -> &str {
        self.servers[0].address.trim_start_matches("http://")
    }

    fn url_by(&self, ports: &[u16], prefix: &str) -> String {
        let servers: Vec<_> = ports.iter().map(|port| format!("{LOCAL}:{port}")).collect();
        format!("etcd://{}/{prefix}", servers.join(","))
    }

    fn leader(&self) -> usize {
        let mut leader = None;
        eventually("a leader", || {
            let is_leader = |server: &Server| {
                let status = || ask(&server.address, "maintenance/status", &json!({}));
                let Some(status) = server.is_running().then(status).flatten() else { return false };
                status["leader"].is_string() && status["leader"] == status["header"]["member_id"]
            };
            leader = self.servers.iter().position(is_leader);
            leader.is_some()
        });
        leader.unwrap()
    }

    fn delete(&self, path: &str) -> bool {
        self.call("kv/deleterange", &json!({ "key": STANDARD.encode(path) }))["deleted"] == "1"
    }

    fn hold(&self, path: &str, value: &str, lease: Option<Duration>) {
        let mut put = json!({ "key": STANDARD.encode(path), "value": STANDARD.encode(value) });
        if let Some(lease) = lease {
            let granted = self.call("lease/grant", &json!({ "TTL": lease.as_secs().to_string() }));
            put["lease"] = granted["ID"].clone();
        }
        self.call("kv/put", &put);
    }

    fn put(&self, path: &str, value: &str) {
        self.call("kv/put", &json!({ "key": STANDARD.encode(path), "value": STANDARD.encode(value) }));
    }

    fn list(&self, prefix: &str) -> Vec<String> {
        let mut end = prefix.as_bytes().to_vec();
        *end.last_mut().unwrap() += 1;
        let range = json!({ "key": STANDARD.encode(prefix), "range_end": STANDARD.encode(end), "keys_only": true });
        let range = self.call("kv/range", &range);
        let kvs = range["kvs"].as_array().map(Vec::as_slice).unwrap_or_default();
        kvs.iter().map(|kv| String::from_utf8(STANDARD.decode(kv["key"].as_str().unwrap()).unwrap()).unwrap()).collect()
    }

    fn log_index(&self) -> u64 {
        let status = self.call("maintenance/status", &json!({}));
        status["raftIndex"].as_str().and_then(|index| index.parse().ok()).expect("an index")
    }

    fn sessions(&self) -> usize {
        self.call("lease/leases", &json!({}))["leases"].as_array().map_or(0, Vec::len)
    }

    fn session_lives(&self) -> Vec<Duration> {
        let leases = self.call("lease/leases", &json!({}));
        let life = |lease: &Value| {
            let granted = self.call("lease/timetolive", &json!({ "ID": lease["ID"] }));
            Duration::from_secs(granted["grantedTTL"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default())
        };
        leases["leases"].as_array().map_or_else(Vec::new, |leases| leases.iter().map(life).collect())
    }

    fn end_session(&self, session: &str) {
        self.call("lease/revoke", &json!({ "ID": session }));
    }

    fn look_at(&self, path: &str) -> Box<dyn Fn() -> Option<Look> + Send> {
        let addresses = self.servers.iter().map(|server| server.address.clone()).collect();
        let range = json!({ "key": STANDARD.encode(path) });
        Box::new(asking(addresses, move |address| {
            let range = ask(address, "kv/range", &range)?;
            range.get("header")?;
            let Some(entry) = range["kvs"].get(0) else { return Some(Look::Absent) };
            let value = STANDARD.decode(entry["value"].as_str().unwrap_or_default()).ok()?;
            Some(Look::Held {
                index: entry["mod_revision"].as_str()?.parse().ok()?,
                value: String::from_utf8(value).ok()?,
                session: entry["lease"].as_str().unwrap_or("").to_owned(),
            })
        }))
    }
}
