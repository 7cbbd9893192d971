//! A redis-server of the run's own, and what it counts.

use super::kit::RedisServer;
use super::pin::{self, Place};
use super::raw::{Address, Raw};
use std::time::Duration;

/// The name of the unix socket.
const SOCKET: &str = "socket";

/// A server at a place, on a loopback port and on a unix socket.
pub(crate) struct Server(RedisServer);

impl Server {
    pub(crate) fn start(place: Place) -> Self {
        Self(pin::at(place, || RedisServer::start_with(&["--unixsocket", SOCKET])))
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.port()
    }

    pub(crate) fn tcp(&self) -> Address {
        Address::Tcp(self.port())
    }

    pub(crate) fn unix(&self) -> Address {
        Address::Unix(self.0.file(SOCKET))
    }

    pub(crate) fn admin(&self) -> Admin {
        Admin::of(self.port())
    }
}

/// A connection that asks the server what it has counted.
pub(crate) struct Admin(Raw);

impl Admin {
    /// Of the server that listens on this port of the loopback interface.
    pub(crate) fn of(port: u16) -> Self {
        Self(Raw::connect(&Address::Tcp(port)))
    }

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

    /// The bytes of all that it keeps.
    pub(crate) fn memory(&mut self) -> f64 {
        self.info("memory", "used_memory:").and_then(|text| text.parse().ok()).unwrap()
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
