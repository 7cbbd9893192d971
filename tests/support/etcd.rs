//! Real servers of etcd.

use super::crew::eventually;
use super::process::signal;
use rustix::process::Signal;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Servers of one etcd, on free ports of this machine. They end when this is dropped.
pub(crate) struct Etcd {
    pub(crate) servers: Vec<Server>,
    _directory: TempDir,
}

/// One server.
pub(crate) struct Server {
    name: String,
    port: u16,
    peers: u16,
    all: String,
    data: PathBuf,
    process: Option<Child>,
}

impl Etcd {
    /// One server.
    pub(crate) fn start() -> Self {
        Self::start_many(1)
    }

    /// So many servers, which elect one another.
    pub(crate) fn start_many(count: usize) -> Self {
        // In memory, where there is such a directory: every write waits for the disk.
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        // All are taken before one is given back.
        let listeners: Vec<_> = (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let ports: Vec<_> = listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        drop(listeners);
        let name = |n: usize| format!("server{n}");
        let all: Vec<_> = (0..count).map(|n| format!("{}=http://127.0.0.1:{}", name(n), ports[2 * n])).collect();
        let server = |n: usize| Server {
            name: name(n),
            peers: ports[2 * n],
            port: ports[2 * n + 1],
            all: all.join(","),
            data: directory.path().join(name(n)),
            process: None,
        };
        let mut servers: Vec<_> = (0..count).map(server).collect();
        servers.iter_mut().for_each(Server::begin);
        servers.iter().for_each(Server::wait);
        Self { servers, _directory: directory }
    }

    /// A URL with all servers, for a store with this prefix.
    pub(crate) fn url(&self, prefix: &str) -> String {
        let servers: Vec<_> = self.servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect();
        format!("etcd://{}/{prefix}", servers.join(","))
    }

    /// The address of a server.
    pub(crate) fn address(&self) -> String {
        self.servers[0].address()
    }

    /// The server that the others follow now.
    pub(crate) fn leader(&self) -> usize {
        let status = |server: &Server| -> Option<serde_json::Value> {
            let answer = ureq::post(format!("{}/v3/maintenance/status", server.address())).send("{}").ok()?;
            serde_json::from_str(&answer.into_body().read_to_string().ok()?).ok()
        };
        let mut leader = None;
        eventually("a leader", || {
            let is_leader = |server: &Server| {
                let Some(status) = server.process.as_ref().and_then(|_| status(server)) else { return false };
                status["leader"].is_string() && status["leader"] == status["header"]["member_id"]
            };
            leader = self.servers.iter().position(is_leader);
            leader.is_some()
        });
        leader.unwrap()
    }
}

impl Server {
    fn begin(&mut self) {
        let (clients, peers) = (self.address(), format!("http://127.0.0.1:{}", self.peers));
        let process = Command::new(std::env::var("ETCD_BIN").unwrap_or_else(|_| "etcd".into()))
            .args(["--name", &self.name, "--log-level", "error", "--data-dir"])
            .arg(&self.data)
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &self.all])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("an etcd in PATH: tests/run.sh installs it");
        self.process = Some(process);
    }

    fn wait(&self) {
        eventually("etcd answers", || {
            let limit = Some(Duration::from_secs(2));
            let request = ureq::post(format!("{}/v3/kv/range", self.address())).config().timeout_global(limit).build();
            request.send("{\"key\":\"AA==\"}").is_ok()
        });
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Starts it again, with the data that it had.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.begin();
        self.wait();
    }

    pub(crate) fn signal(&self, what: Signal) {
        signal(self.process.as_ref().unwrap(), what);
    }

    pub(crate) fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
