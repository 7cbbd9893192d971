//! The servers of a consensus store in a scene, with their faults and the contents of their store.

use crate::checker::waits::Kept;
use crate::checker::windows::Window;
use crate::consensus::{Look, Quorum};
use crate::observer::locker;
use crate::peers::Peers;
use crate::scene::Scene;
use crate::servers::Servers;
use crate::support::crew::eventually;
use crate::work::KEY;
use crate::worker::now;
use rustix::process::Signal;
use std::sync::atomic::Ordering;

/// The servers of one store.
pub(crate) struct ConsensusServers {
    pub(crate) quorum: Box<dyn Quorum>,
    /// The network between them, in a scene that wants one.
    pub(crate) peers: Option<Peers>,
    /// The prefix of the scene's entries.
    pub(crate) root: String,
}

impl ConsensusServers {
    pub(crate) fn url_by(&self, ports: &[u16]) -> String {
        self.quorum.url_by(ports, &self.root)
    }

    pub(crate) fn lock_path(&self) -> String {
        format!("{}/{}/.lock", self.root, KEY.2)
    }

    /// What a majority has of the lock's entry.
    pub(crate) fn look(&self) -> Look {
        let look = self.quorum.look_at(&self.lock_path());
        let mut found = None;
        eventually("the store answers", || {
            found = look();
            found.is_some()
        });
        found.unwrap()
    }

    /// The locker that has the lock.
    pub(crate) fn holder(&self) -> Option<String> {
        match self.look() {
            Look::Held { value, .. } => locker(&value),
            Look::Absent => None,
        }
    }

    /// The entries of locks. The last message to each client stays, and so do the marks of idle sessions.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys = self.quorum.list(&format!("{}/", self.root));
        keys.retain(|key| !key.contains("/.inbox/") && !key.contains("/.session/"));
        keys
    }

    pub(crate) fn pids(&mut self) -> Vec<u32> {
        self.quorum.servers().iter().map(|server| server.pid().load(Ordering::SeqCst)).collect()
    }
}

/// What is done to the servers.
impl Scene {
    /// The servers, in a scene with a consensus store.
    pub(crate) fn consensus(&mut self) -> &mut ConsensusServers {
        match &mut self.server {
            Servers::Consensus(consensus) => consensus,
            _ => panic!("a scene without a consensus store"),
        }
    }

    pub(crate) fn leader(&mut self) -> usize {
        self.consensus().quorum.leader()
    }

    /// A server that follows the leader.
    pub(crate) fn follower(&mut self) -> usize {
        let leader = self.leader();
        (leader + 1) % self.servers_count()
    }

    pub(crate) fn servers_count(&mut self) -> usize {
        self.consensus().quorum.servers().len()
    }

    pub(crate) fn kill_server(&mut self, server: usize) {
        self.consensus().quorum.servers()[server].kill();
    }

    pub(crate) fn restart_server(&mut self, server: usize) {
        self.consensus().quorum.servers()[server].restart();
    }

    /// Sends one server a signal.
    pub(crate) fn signal_server(&mut self, server: usize, signal: Signal) {
        self.consensus().quorum.servers()[server].signal(signal);
    }

    /// Cuts one server off from the others. Clients reach it.
    pub(crate) fn cut_off_server(&mut self, server: usize) {
        self.consensus().peers.as_ref().expect("a scene with a network between the servers").cut_off(server);
    }

    pub(crate) fn heal_server(&mut self, server: usize) {
        self.consensus().peers.as_ref().expect("a scene with a network between the servers").heal(server);
    }

    /// Does something during which nobody may get or give back the lock, and waits until the store answers again.
    pub(crate) fn without_service(&mut self, what: impl FnOnce(&mut Self)) {
        let at = now();
        what(self);
        self.consensus().look();
        self.kept.push(Kept { at, until: now() });
    }

    /// Plays an operator who takes the lock away. A live holder learns that within `told` nanoseconds. Until then two may have the lock.
    pub(crate) fn meddle(&mut self, told: u64, what: impl FnOnce(&mut Self)) {
        let from = now();
        self.gone_at = Some(from);
        what(self);
        self.windows.push(Window { from, to: now() + told });
    }
}
