//! A master, its replicas and the Sentinels that watch them, all from `redis-server` alone.
//!
//! `redis-test` has a Sentinel cluster, too, but none of its processes can be stopped or killed by itself.

use super::RedisServer;
use super::crew::eventually;
use super::process;
use rustix::process::Signal;
use std::fs;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

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
    /// Further arguments of each server.
    pub(crate) server_args: Vec<String>,
    /// Further lines for each Sentinel, before it watches the service, and after.
    pub(crate) sentinel_lines: [Vec<String>; 2],
}

impl Default for Plan {
    fn default() -> Self {
        Self { replicas: 2, sentinels: 3, down_after_ms: 500, server_args: vec![], sentinel_lines: [vec![], vec![]] }
    }
}

/// Servers that replicate one of them, and Sentinels that watch it.
pub(crate) struct Service {
    /// The first master is the first of them.
    pub(crate) servers: Vec<RedisServer>,
    pub(crate) sentinels: Vec<Sentinel>,
}

/// One Sentinel. Killed when dropped.
pub(crate) struct Sentinel {
    process: Option<Child>,
    port: u16,
    _dir: TempDir,
}

impl Service {
    /// Starts a master, two replicas and three Sentinels, and waits until they know each other: some three seconds.
    pub(crate) fn start() -> Self {
        Self::start_as(&Plan::default())
    }

    pub(crate) fn start_as(plan: &Plan) -> Self {
        let args: Vec<_> = plan.server_args.iter().map(String::as_str).chain(AT_ONCE).collect();
        let mut servers = vec![RedisServer::start_with(&args)];
        let master = servers[0].port();
        let of_master = ["--replicaof", "127.0.0.1", &master.to_string()].map(str::to_owned);
        for _ in 0..plan.replicas {
            let args: Vec<_> = args.iter().copied().chain(of_master.iter().map(String::as_str)).collect();
            servers.push(RedisServer::start_with(&args));
        }
        let sentinels = (0..plan.sentinels).map(|_| Sentinel::start(master, plan)).collect();
        let service = Self { servers, sentinels };
        service.wait_until_complete();
        service
    }

    /// Waits until every Sentinel knows all others and all replicas, and the replicas have what the master has.
    pub(crate) fn wait_until_complete(&self) {
        let (sentinels, replicas) = (self.sentinels.len(), self.servers.len() - 1);
        eventually("the Sentinels know each other and the replicas", || {
            self.sentinels.iter().all(|sentinel| {
                let known = |field: &str| sentinel.master_field(field).and_then(|n| n.parse::<usize>().ok());
                known("num-other-sentinels") == Some(sentinels - 1)
                    && known("num-slaves") == Some(replicas)
                    && sentinel.master_field("flags").as_deref() == Some("master")
            })
        });
        eventually("the replicas have what the master has", || {
            let is_up = |server: &&RedisServer| info(server, "replication").contains("master_link_status:up");
            self.servers.iter().filter(is_up).count() == replicas
        });
    }

    /// The URL of the service, with all its Sentinels.
    pub(crate) fn url(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(Sentinel::place).collect();
        format!("redis+sentinel://{}/{SERVICE}", hosts.join(","))
    }

    /// The port of the master, as a Sentinel says.
    pub(crate) fn named_by(&self, sentinel: usize) -> u16 {
        self.sentinels[sentinel].master_field("port").unwrap().parse().unwrap()
    }

    /// The server on that port.
    pub(crate) fn on(&mut self, port: u16) -> &mut RedisServer {
        self.servers.iter_mut().find(|server| server.port() == port).unwrap()
    }

    /// Waits until the replicas have what the master has been told so far.
    pub(crate) fn wait_for_replicas(&self, master: u16) {
        let replicas = (self.servers.len() - 1).to_string();
        let server = self.servers.iter().find(|server| server.port() == master).unwrap();
        eventually("the replicas have it", || {
            let mut admin = server.connection();
            // WAIT counts for what its own connection has written.
            redis::cmd("SET").arg("marker").arg("x").exec(&mut admin).unwrap();
            let acks: usize = redis::cmd("WAIT").arg(&replicas).arg("1000").query(&mut admin).unwrap();
            acks == self.servers.len() - 1
        });
    }

    /// Waits until a server other than this one says that it is the master.
    pub(crate) fn wait_for_another_master(&self, old: u16) -> u16 {
        let mut found = None;
        eventually("a replica is promoted", || {
            let others = self.servers.iter().filter(|server| server.port() != old);
            found = others.filter(|server| is_master(server)).map(RedisServer::port).next();
            found.is_some()
        });
        found.unwrap()
    }
}

/// Whether a server says that it is a master. One that does not answer does not.
pub(crate) fn is_master(server: &RedisServer) -> bool {
    info(server, "replication").contains("role:master")
}

/// A section of what a server says of itself; nothing if it does not answer.
fn info(server: &RedisServer, section: &str) -> String {
    let client = redis::Client::open(server.url()).unwrap();
    let limit = std::time::Duration::from_secs(1);
    let Ok(mut admin) = client.get_connection_with_timeout(limit) else { return String::new() };
    let _ = admin.set_read_timeout(Some(limit));
    redis::cmd("INFO").arg(section).query(&mut admin).unwrap_or_default()
}

impl Sentinel {
    fn start(master: u16, plan: &Plan) -> Self {
        let mut failure = String::new();
        for _ in 0..5 {
            let dir = tempfile::Builder::new().prefix("redis-dlock-").tempdir().unwrap();
            let mut sentinel = Self { process: None, port: super::free_port(), _dir: dir };
            match sentinel.try_run(master, plan) {
                Ok(()) => return sentinel,
                Err(e) => failure = e,
            }
        }
        panic!("no Sentinel starts: {failure}");
    }

    fn try_run(&mut self, master: u16, plan: &Plan) -> Result<(), String> {
        let dir = self._dir.path();
        let quorum = plan.sentinels / 2 + 1;
        let down_after = plan.down_after_ms;
        let mut lines = vec![
            format!("port {}", self.port),
            "bind 127.0.0.1".to_owned(),
            format!("dir {}", dir.display()),
            format!("logfile {}", dir.join("log").display()),
        ];
        lines.extend(plan.sentinel_lines[0].iter().cloned());
        lines.extend([
            format!("sentinel monitor {SERVICE} 127.0.0.1 {master} {quorum}"),
            format!("sentinel down-after-milliseconds {SERVICE} {down_after}"),
            format!("sentinel failover-timeout {SERVICE} 3000"),
        ]);
        lines.extend(plan.sentinel_lines[1].iter().cloned());
        let file = dir.join("sentinel.conf");
        fs::write(&file, lines.join("\n") + "\n").unwrap();
        let program = std::env::var_os("REDIS_SERVER_BIN").unwrap_or_else(|| "redis-server".into());
        let process = Command::new(&program)
            .arg(&file)
            .arg("--sentinel")
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("{}: {e}; install Redis 7.0 or newer", program.display()))?;
        let (pid, port) = (process.id(), self.port);
        let process = self.process.insert(process);
        let mut ended = None;
        eventually("a Sentinel answers", || {
            ended = process.try_wait().unwrap();
            ended.is_some() || super::redis_server::serves(port, pid)
        });
        match ended {
            Some(status) => Err(format!("{status}: {}", fs::read_to_string(dir.join("log")).unwrap_or_default())),
            None => Ok(()),
        }
    }

    pub(crate) fn place(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Runs one command; `None` if the Sentinel does not answer, or refuses it.
    pub(crate) fn run<T: redis::FromRedisValue>(&self, words: &[&str]) -> Option<T> {
        let client = redis::Client::open(format!("redis://{}/", self.place())).unwrap();
        let limit = std::time::Duration::from_secs(1);
        let mut connection = client.get_connection_with_timeout(limit).ok()?;
        connection.set_read_timeout(Some(limit)).ok()?;
        redis::cmd(words[0]).arg(&words[1..]).query(&mut connection).ok()
    }

    /// A field of what it says of the master.
    pub(crate) fn master_field(&self, name: &str) -> Option<String> {
        let fields: Vec<String> = self.run(&["SENTINEL", "MASTER", SERVICE])?;
        fields.chunks_exact(2).find(|pair| pair[0] == name).map(|pair| pair[1].clone())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        process::signal(self.process.as_ref().unwrap(), signal);
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.kill();
    }
}
