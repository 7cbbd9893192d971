//! A redis-server of the run's own, and what it counts.

use super::pin::{self, Place};
use super::raw::{Address, Raw};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A redis-server (or what `REDIS_SERVER_BIN` names) without persistence, on a free loopback port and on a unix socket. Killed
/// when dropped.
pub(crate) struct Server {
    process: Child,
    port: u16,
    dir: TempDir,
}

/// The program that is started.
pub(crate) fn binary() -> String {
    std::env::var("REDIS_SERVER_BIN").unwrap_or_else(|_| "redis-server".to_owned())
}

impl Server {
    pub(crate) fn start(place: Place) -> Self {
        // Between the choice of a port and its use somebody else may take it; then the server exits at once.
        (0..5).find_map(|_| Self::try_start(place)).expect("redis-server does not start")
    }

    fn try_start(place: Place) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = tempfile::Builder::new().prefix("redis-dlock-bench-").tempdir().unwrap();
        let mut command = Command::new(binary());
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
        command.arg("--dir").arg(dir.path()).arg("--unixsocket").arg(dir.path().join("socket"));
        let process = pin::at(place, || command.stdout(Stdio::null()).spawn().expect("redis-server is to be in PATH"));
        let mut server = Self { process, port, dir };
        let limit = Instant::now() + Duration::from_secs(20);
        while server.process.try_wait().unwrap().is_none() && Instant::now() < limit {
            if Raw::try_connect(&server.tcp()).is_ok() && Raw::try_connect(&server.unix()).is_ok() {
                return Some(server);
            }
            thread::sleep(Duration::from_millis(5));
        }
        None
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn tcp(&self) -> Address {
        Address::Tcp(self.port)
    }

    pub(crate) fn unix(&self) -> Address {
        Address::Unix(self.dir.path().join("socket"))
    }

    pub(crate) fn admin(&self) -> Admin {
        Admin(Raw::connect(&self.tcp()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A connection that asks the server what it has counted.
pub(crate) struct Admin(Raw);

impl Admin {
    pub(crate) fn run(&mut self, words: &[&str]) -> String {
        self.0.command(words)
    }

    /// Version, as `INFO` has it.
    pub(crate) fn version(&mut self) -> String {
        self.info("server", "redis_version:").unwrap_or_default()
    }

    fn info(&mut self, section: &str, field: &str) -> Option<String> {
        let text = self.run(&["INFO", section]);
        text.lines().find_map(|line| line.strip_prefix(field)).map(|value| value.trim().to_owned())
    }

    /// How long the server's main thread has computed.
    pub(crate) fn cpu(&mut self) -> Duration {
        let mut seconds = |field: &str| self.info("cpu", field).and_then(|text| text.parse::<f64>().ok()).unwrap();
        Duration::from_secs_f64(seconds("used_cpu_sys_main_thread:") + seconds("used_cpu_user_main_thread:"))
    }

    /// How often it has read a connection.
    pub(crate) fn reads(&mut self) -> u64 {
        self.info("stats", "total_reads_processed:").and_then(|text| text.parse().ok()).unwrap()
    }

    pub(crate) fn forget_stats(&mut self) {
        self.run(&["CONFIG", "RESETSTAT"]);
    }

    /// Calls of a command since the statistics were forgotten, and the microseconds in all of them.
    pub(crate) fn stats(&mut self, command: &str) -> (u64, u64) {
        let line = self.info("commandstats", &format!("cmdstat_{command}:"));
        let field = |name: &str| {
            let line = line.as_deref().unwrap_or_default();
            line.split(',').find_map(|part| part.strip_prefix(name)).map_or(0, |value| value.parse().unwrap())
        };
        (field("calls="), field("usec="))
    }

    /// How many connections carry this client library's name.
    pub(crate) fn sockets_of_ours(&mut self) -> usize {
        self.run(&["CLIENT", "LIST"]).lines().filter(|line| line.contains(" name=redis-dlock")).count()
    }
}
