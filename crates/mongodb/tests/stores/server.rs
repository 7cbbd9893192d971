//! A server of MongoDB's protocol: a real one that `DLOCK_MONGODB` names, or SecantusDB's as a process of its own.

use crate::support::crew::eventually;
use crate::support::ports::free_port;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};
use tempfile::TempDir;

/// One server for all cases that run now. It ends when this is dropped, unless it is a real one.
pub(crate) struct Server {
    /// The URL without a database.
    url: String,
    process: Option<(Child, TempDir)>,
}

static RUNNING: Mutex<Weak<Server>> = Mutex::new(Weak::new());

impl Server {
    pub(crate) fn shared() -> Arc<Self> {
        let mut running = RUNNING.lock().unwrap();
        let server = running.upgrade().unwrap_or_else(|| Arc::new(Self::start()));
        *running = Arc::downgrade(&server);
        server
    }

    pub(crate) fn start() -> Self {
        if let Ok(url) = std::env::var("DLOCK_MONGODB") {
            return Self { url, process: None };
        }
        let program = std::env::var("SECANTUS_BIN").unwrap_or_else(|_| "secantusd-rs".into());
        let (port, data) = (free_port(), TempDir::new().unwrap());
        let mut command = Command::new(&program);
        command.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--storage-path"]).arg(data.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().unwrap_or_else(|e| panic!("{program}: {e}: tests/run.sh mongodb builds it"));
        eventually("the server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { url: format!("mongodb://127.0.0.1:{port}/"), process: Some((process, data)) }
    }

    /// The URL of a database of this server.
    pub(crate) fn url(&self, database: &str) -> String {
        let (begin, options) = self.url.split_once('?').map_or((&*self.url, ""), |(begin, options)| (begin, options));
        let hosts = begin.trim_end_matches('/');
        let options = if options.is_empty() { String::new() } else { format!("?{options}") };
        format!("{hosts}/{database}{options}")
    }

    /// The port of a server that the tests have started.
    pub(crate) fn port(&self) -> Option<u16> {
        self.process.as_ref()?;
        self.url.trim_end_matches('/').rsplit_once(':')?.1.parse().ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((process, _)) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
