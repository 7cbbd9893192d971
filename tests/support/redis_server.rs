//! A real redis-server for one test.
//!
//! The `redis-test` crate has one, too, but it cannot be killed and started again on its port, nor be given further
//! arguments without spawning it oneself, and it does not wait until the server answers.

use super::ports::free_port;
use super::process;
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a server may take to answer its first PING. It takes some 40 ms on an idle machine.
const START_LIMIT: Duration = Duration::from_secs(20);

/// A redis-server (or what `REDIS_SERVER_BIN` names) on a free port of the loopback interface, with its files in a
/// directory of its own, without persistence unless the arguments ask for it. Killed and cleaned up when dropped.
pub(crate) struct RedisServer {
    process: Option<Child>,
    port: u16,
    dir: TempDir,
    args: Vec<String>,
    variables: Vec<(String, String)>,
}

/// A directory for the files of a server, in memory where there is a place for that: replicas and Sentinels wait for the disk with each change
/// of theirs, and a busy machine lets them wait for seconds.
pub(crate) fn directory() -> TempDir {
    let mut builder = tempfile::Builder::new();
    builder.prefix("redis-dlock-");
    builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir()).unwrap()
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with further arguments, `["--maxmemory", "2mb"]` say, and waits until it answers.
    pub(crate) fn start_with(args: &[&str]) -> Self {
        Self::start_in(&[], args)
    }

    /// Starts a server with further environment variables and arguments, and waits until it answers.
    pub(crate) fn start_in(variables: &[(String, String)], args: &[&str]) -> Self {
        let args: Vec<_> = args.iter().map(|&arg| arg.to_owned()).collect();
        Self::start_by(variables, || (free_port(), args.clone()))
    }

    /// Starts a server on a chosen port, with further environment variables and arguments, and waits until it answers. The choice is
    /// made anew when the server does not start.
    pub(crate) fn start_by(variables: &[(String, String)], mut choice: impl FnMut() -> (u16, Vec<String>)) -> Self {
        let mut failure = String::new();
        // Between the choice of a port and its use, tests of another process may take it; then the server exits at once.
        for _ in 0..5 {
            let (port, args) = choice();
            let mut server = Self { process: None, port, dir: directory(), args, variables: variables.to_vec() };
            match server.try_run() {
                Ok(()) => return server,
                Err(e) => failure = e,
            }
        }
        panic!("redis-server does not start: {failure}");
    }

    /// The URL of the server.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// A new connection for plain commands.
    pub(crate) fn connection(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection_with_timeout(START_LIMIT).unwrap()
    }

    /// The port of the loopback interface that the server listens on.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Where a file of the server is, by its name in the arguments.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs one command on a connection of its own.
    pub(crate) fn run<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        redis::cmd(words[0]).arg(&words[1..]).query(&mut self.connection()).unwrap()
    }

    /// Runs one command on a connection of its own; `None` if the server refuses it, or does not answer within a second.
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> Option<T> {
        let limit = Duration::from_secs(1);
        let mut connection = redis::Client::open(self.url()).unwrap().get_connection_with_timeout(limit).ok()?;
        connection.set_read_timeout(Some(limit)).ok()?;
        redis::cmd(words[0]).arg(&words[1..]).query(&mut connection).ok()
    }

    /// A figure of `INFO stats`.
    pub(crate) fn stat(&self, name: &str) -> u64 {
        let stats: String = self.run(&["INFO", "stats"]);
        stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.parse().ok()).unwrap()
    }

    /// Everything in the server, as `DUMP` gives it.
    pub(crate) fn contents(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut admin = self.connection();
        let mut keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut admin).unwrap();
        keys.sort();
        keys.into_iter()
            .map(|key| {
                let dump = redis::cmd("DUMP").arg(&key).query(&mut admin).unwrap();
                (key, dump)
            })
            .collect()
    }

    /// Sends the server a signal, such as STOP, after which it stands still, and CONT.
    pub(crate) fn signal(&self, signal: Signal) {
        process::signal(self.process.as_ref().unwrap(), signal);
    }

    /// Ends the server as a power cut does: without a word to its clients, without saving.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Whether the server was not killed.
    pub(crate) fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Starts a killed server again, on the same port, with the same arguments and files, and waits until it answers. Tests of another process
    /// may have the port meanwhile: then it tries again.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let limit = Instant::now() + START_LIMIT;
        while let Err(error) = self.try_run() {
            assert!(error.contains("Address already in use") && Instant::now() < limit, "{error}");
            self.kill();
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn try_run(&mut self) -> Result<(), String> {
        let program = std::env::var_os("REDIS_SERVER_BIN").unwrap_or_else(|| "redis-server".into());
        let log = self.dir.path().join("log");
        let process = Command::new(&program)
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--logfile", "log"])
            .args(["--port", &self.port.to_string()])
            .arg("--dir")
            .arg(self.dir.path())
            .args(&self.args)
            .envs(self.variables.iter().cloned())
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("{}: {e}; install Redis 7.0 or newer", program.display()))?;
        let pid = process.id();
        let process = self.process.insert(process);
        let limit = Instant::now() + START_LIMIT;
        while Instant::now() < limit {
            if let Some(status) = process.try_wait().unwrap() {
                return Err(format!("{status}: {}", fs::read_to_string(log).unwrap_or_default()));
            }
            if serves(self.port, pid) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Err(format!("no answer within {START_LIMIT:?}: {}", fs::read_to_string(log).unwrap_or_default()))
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether it is our server that answers on this port, and no other one that took it meanwhile. Refusing to serve
/// without a password is an answer, too.
pub(crate) fn serves(port: u16, pid: u32) -> bool {
    let Ok(client) = redis::Client::open(format!("redis://127.0.0.1:{port}/")) else { return false };
    let Ok(mut connection) = client.get_connection_with_timeout(Duration::from_secs(1)) else { return false };
    match redis::cmd("PING").query::<String>(&mut connection) {
        Ok(_) => redis::cmd("INFO")
            .arg("server")
            .query::<String>(&mut connection)
            .is_ok_and(|info| info.lines().any(|line| line == format!("process_id:{pid}"))),
        Err(e) => e.code() == Some("NOAUTH"),
    }
}

#[test]
fn a_killed_server_comes_back_on_its_port() {
    let mut server = RedisServer::start_with(&["--maxclients", "77"]);
    let url = server.url();
    let mut connection = server.connection();
    let (_, limit): (String, u32) = redis::cmd("CONFIG").arg("GET").arg("maxclients").query(&mut connection).unwrap();
    assert_eq!(limit, 77);
    redis::cmd("SET").arg("k").arg("v").exec(&mut connection).unwrap();

    server.kill();
    assert!(redis::cmd("PING").exec(&mut connection).is_err());

    server.restart();
    assert_eq!(server.url(), url);
    let value: Option<String> = redis::cmd("GET").arg("k").query(&mut server.connection()).unwrap();
    assert_eq!(value, None, "nothing is saved");
}

#[test]
fn servers_do_not_meet() {
    let (a, b) = (RedisServer::start(), RedisServer::start());
    redis::cmd("SET").arg("k").arg("v").exec(&mut a.connection()).unwrap();
    let keys: u64 = redis::cmd("DBSIZE").query(&mut b.connection()).unwrap();
    assert_eq!(keys, 0);
}

#[test]
fn a_server_with_a_password_counts_as_started() {
    let server = RedisServer::start_with(&["--requirepass", "secret"]);
    let refused = redis::cmd("GET").arg("k").exec(&mut server.connection()).unwrap_err();
    assert_eq!(refused.code(), Some("NOAUTH"));
}
