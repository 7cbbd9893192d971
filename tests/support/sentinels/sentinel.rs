//! One Sentinel.

use super::super::crew::eventually;
use super::super::redis_server::directory;
use super::super::{free_port, process, serves};
use super::{Plan, SERVICE};
use rustix::process::Signal;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// How often a Sentinel asks each server what it is, and after how long without a processor or a disk it trusts itself no more; in
/// milliseconds.
///
/// With its own ten seconds it may miss that an operator made a replica of a former master, and makes a replica of it once more when it has
/// just been promoted again. With its own two seconds a busy machine lets it do nothing for half a minute.
const PERIODS: [[&str; 2]; 2] = [["info-period", "1000"], ["tilt-trigger", "20000"]];

/// One Sentinel. Killed when dropped.
pub(crate) struct Sentinel {
    process: Option<Child>,
    port: u16,
    /// The port by which clients and other Sentinels reach it.
    public_port: u16,
    dir: TempDir,
}

impl Sentinel {
    pub(super) fn start(master: u16, plan: &Plan) -> Self {
        let mut failure = String::new();
        for _ in 0..5 {
            let dir = directory();
            let port = free_port();
            let public_port = if plan.tls.is_some() { free_port() } else { port };
            let mut sentinel = Self { process: None, port, public_port, dir };
            match sentinel.try_run(master, plan) {
                Ok(()) => return sentinel,
                Err(e) => failure = e,
            }
        }
        panic!("no Sentinel starts: {failure}");
    }

    fn try_run(&mut self, master: u16, plan: &Plan) -> Result<(), String> {
        let dir = self.dir.path();
        let quorum = plan.sentinels / 2 + 1;
        let down_after = plan.down_after_ms;
        let mut lines = vec![
            format!("port {}", self.port),
            "bind 127.0.0.1".to_owned(),
            format!("dir {}", dir.display()),
            format!("logfile {}", dir.join("log").display()),
        ];
        for (name, value) in plan.tls.iter().flat_map(|files| files.settings(self.public_port)) {
            lines.push(format!("{name} {value}"));
        }
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
            ended.is_some() || serves(port, pid)
        });
        if let Some(status) = ended {
            return Err(format!("{status}: {}", fs::read_to_string(dir.join("log")).unwrap_or_default()));
        }
        let words: Vec<_> = ["SENTINEL", "DEBUG"].into_iter().chain(PERIODS.into_iter().flatten()).collect();
        self.run::<()>(&words).ok_or("it refuses other periods".to_owned())
    }

    pub(crate) fn place(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The port by which clients and other Sentinels reach it.
    pub(crate) fn public_port(&self) -> u16 {
        self.public_port
    }

    /// Runs one command; `None` if the Sentinel does not answer, or refuses it.
    pub(crate) fn run<T: redis::FromRedisValue>(&self, words: &[&str]) -> Option<T> {
        let client = redis::Client::open(format!("redis://{}/", self.place())).unwrap();
        let limit = Duration::from_secs(1);
        let mut connection = client.get_connection_with_timeout(limit).ok()?;
        connection.set_read_timeout(Some(limit)).ok()?;
        redis::cmd(words[0]).arg(&words[1..]).query(&mut connection).ok()
    }

    /// A field of what it says of the master.
    pub(crate) fn master_field(&self, name: &str) -> Option<String> {
        field(&self.run::<Vec<String>>(&["SENTINEL", "MASTER", SERVICE])?, name)
    }

    /// Whether all replicas answer it, and say that they are replicas.
    pub(super) fn replicas_are_well(&self) -> bool {
        let replicas = self.run::<Vec<Vec<String>>>(&["SENTINEL", "REPLICAS", SERVICE]).unwrap_or_default();
        let is_well = |fields: &Vec<String>| {
            ["flags", "role-reported"].iter().all(|name| field(fields, name).as_deref() == Some("slave"))
        };
        replicas.iter().all(is_well)
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

/// The value of a field in a list of names and values.
fn field(fields: &[String], name: &str) -> Option<String> {
    fields.chunks_exact(2).find(|pair| pair[0] == name).map(|pair| pair[1].clone())
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.kill();
    }
}
