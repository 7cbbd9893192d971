//! A real etcd.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// One server of etcd, on a free port of this machine. It ends when it is dropped.
pub(crate) struct Etcd {
    process: Child,
    port: u16,
    _directory: TempDir,
}

impl Etcd {
    pub(crate) fn start() -> Self {
        // In memory, where there is such a directory: every write waits for the disk.
        let memory = std::path::Path::new("/dev/shm");
        let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let [port, peers] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap()).map(|l| l.local_addr().unwrap().port());
        let (clients, peers) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
        let process = Command::new(std::env::var("ETCD_BIN").unwrap_or_else(|_| "etcd".into()))
            .args(["--name", "one", "--log-level", "error", "--data-dir"])
            .arg(directory.path())
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("one={peers}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("an etcd in PATH: tests/run.sh installs it");
        let etcd = Self { process, port, _directory: directory };
        let ready = |_| {
            std::thread::sleep(Duration::from_millis(100));
            ureq::post(format!("{}/v3/kv/range", etcd.address())).send("{\"key\":\"AA==\"}").is_ok()
        };
        assert!((0..600).any(ready), "etcd does not answer");
        etcd
    }

    pub(crate) fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A URL for a store with this prefix.
    pub(crate) fn url(&self, prefix: &str) -> String {
        format!("etcd://127.0.0.1:{}/{prefix}", self.port)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
