//! One server as a process.

use crate::support::crew::hang;
use crate::support::process::signal;
use rustix::process::Signal;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) struct Server {
    pub(super) address: String,
    /// The port on which it hears the other servers.
    peers: u16,
    command: Box<dyn Fn() -> Command + Send + Sync>,
    is_ready: fn(&str) -> bool,
    /// Whether all servers that run vote, as the server at this address sees it.
    do_all_vote: fn(&str) -> bool,
    process: Option<Child>,
    /// What its processes have printed.
    output: File,
    is_stopped: bool,
    pid: Arc<AtomicU32>,
}

impl Server {
    pub(super) fn new(
        address: String,
        peers: u16,
        is_ready: fn(&str) -> bool,
        command: impl Fn() -> Command + Send + Sync + 'static,
    ) -> Self {
        let (command, output) = (Box::new(command), tempfile::tempfile().unwrap());
        let (process, is_stopped, pid) = (None, false, Arc::default());
        Self { address, peers, command, is_ready, do_all_vote: |_| true, process, output, is_stopped, pid }
    }

    /// A server of a store that takes the vote from those that are dead for some seconds.
    pub(super) fn with_votes(mut self, do_all_vote: fn(&str) -> bool) -> Self {
        self.do_all_vote = do_all_vote;
        self
    }

    pub(crate) fn begin(&mut self) {
        let mut command = (self.command)();
        let [out, err] = [(); 2].map(|()| self.output.try_clone().unwrap());
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let process = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}: tests/run.sh installs it"));
        self.pid.store(process.id(), Ordering::SeqCst);
        self.process = Some(process);
    }

    /// Waits until it says what a majority has, and all vote. If its process ends instead, or it hangs, the test fails with what it has printed.
    pub(crate) fn wait(&mut self) {
        let start = Instant::now();
        while !self.answers() {
            let ended = self.process.as_mut().unwrap().try_wait().unwrap();
            let is_well = ended.is_none() && start.elapsed() < hang();
            assert!(is_well, "{} does not answer ({ended:?}). It has printed:\n{}", self.address, self.printed());
            thread::sleep(Duration::from_millis(1));
        }
        // Autopilot looks every ten seconds for servers that have been well for ten seconds: longer than a hang takes elsewhere, on a busy machine.
        let start = Instant::now();
        while !(self.do_all_vote)(&self.address) {
            assert!(start.elapsed() < Duration::from_secs(90), "not all servers vote");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for all servers of a store that has just begun. If the process of any of them ends, the test fails with what that one has printed.
    pub(super) fn wait_for_all(servers: &mut [Self]) {
        let start = Instant::now();
        while start.elapsed() < hang() && !servers.iter().all(Self::answers) {
            for server in &mut *servers {
                let ended = server.process.as_mut().unwrap().try_wait().unwrap();
                assert!(
                    ended.is_none(),
                    "{} has ended ({ended:?}). It has printed:\n{}",
                    server.address,
                    server.printed()
                );
            }
            thread::sleep(Duration::from_millis(1));
        }
        servers.iter_mut().for_each(Self::wait);
    }

    fn printed(&self) -> String {
        let mut printed = vec![0; 8 * 1024];
        let length = self.output.metadata().unwrap().len();
        let read = self.output.read_at(&mut printed, length.saturating_sub(8 * 1024)).unwrap();
        String::from_utf8_lossy(&printed[..read]).into_owned()
    }

    /// Whether it says what a majority has.
    pub(crate) fn answers(&self) -> bool {
        (self.is_ready)(&self.address)
    }

    /// Whether it runs, and is not stopped.
    pub(super) fn is_running(&self) -> bool {
        self.process.is_some() && !self.is_stopped
    }

    /// The port on which it serves clients.
    pub(crate) fn port(&self) -> u16 {
        self.address.rsplit_once(':').unwrap().1.parse().unwrap()
    }

    pub(crate) fn peers(&self) -> u16 {
        self.peers
    }

    /// Its process, also after a restart.
    pub(crate) fn pid(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.pid)
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        self.is_stopped = false;
    }

    /// Starts it again, with the data that it had.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.begin();
        self.wait();
    }

    pub(crate) fn signal(&mut self, what: Signal) {
        signal(self.process.as_ref().unwrap(), what);
        self.is_stopped = what == Signal::STOP;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
