//! One server as a process.

use crate::support::crew::eventually;
use crate::support::process::signal;
use rustix::process::Signal;
use std::process::{Child, Command, Stdio};

pub(crate) struct Server {
    pub(super) address: String,
    command: Box<dyn Fn() -> Command + Send + Sync>,
    is_ready: fn(&str) -> bool,
    process: Option<Child>,
}

impl Server {
    pub(super) fn new(
        address: String,
        is_ready: fn(&str) -> bool,
        command: impl Fn() -> Command + Send + Sync + 'static,
    ) -> Self {
        Self { address, command: Box::new(command), is_ready, process: None }
    }

    pub(super) fn begin(&mut self) {
        let mut command = (self.command)();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn();
        self.process = Some(process.unwrap_or_else(|e| panic!("{command:?}: {e}: tests/run.sh installs it")));
    }

    pub(super) fn wait(&self) {
        eventually("the server answers", || (self.is_ready)(&self.address));
    }

    pub(super) fn is_running(&self) -> bool {
        self.process.is_some()
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
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
