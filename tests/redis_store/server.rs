//! A redis-server of a test's own, killed when it is dropped.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Far more than anything here takes.
pub const LONG: Duration = Duration::from_secs(20);

pub struct Server {
    child: Child,
    pub port: u16,
    args: Vec<String>,
    dir: tempfile::TempDir,
}

impl Server {
    pub fn start(args: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = tempfile::tempdir().unwrap();
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let child = spawn(port, &args, dir.path());
        let server = Self { child, port, args, dir };
        server.wait_ready();
        server
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn wait_ready(&self) {
        let end = Instant::now() + LONG;
        while Instant::now() < end {
            if let Ok(mut socket) = TcpStream::connect(("127.0.0.1", self.port)) {
                let mut reply = [0u8; 5];
                let asked = socket.write_all(b"PING\r\n").and_then(|()| socket.read_exact(&mut reply));
                if asked.is_ok() && !reply.starts_with(b"-LOAD") {
                    return;
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("redis-server did not come up");
    }

    /// An administrator's connection.
    pub fn admin(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    pub fn run<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut self.admin()).unwrap()
    }

    /// Everything in the server, as `DUMP` gives it.
    pub fn contents(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut admin = self.admin();
        let mut keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut admin).unwrap();
        keys.sort();
        let dump = |key: Vec<u8>| {
            let dump = redis::cmd("DUMP").arg(&key).query(&mut self.admin()).unwrap();
            (key, dump)
        };
        keys.into_iter().map(dump).collect()
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn restart(&mut self) {
        self.child = spawn(self.port, &self.args, self.dir.path());
        self.wait_ready();
    }
}

fn spawn(port: u16, args: &[String], dir: &std::path::Path) -> Child {
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--save", "", "--bind", "127.0.0.1", "--dir"])
        .arg(dir)
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is installed")
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
