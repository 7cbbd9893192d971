//! Consensus stores, etcd and Consul, on three servers. Whatever happens to the servers, M, F, X, O and Q are judged as on one server that never
//! fails. No holder needs a store that checks tokens, because two never have the lock at once. There are two exceptions: an operator has taken the
//! lock from its holder, or a suspended leader of an earlier etcd has resumed.
//!
//! Each process has a network of its own between it and each server, and asks another server first.

pub(crate) mod clients;
mod keeping;
mod leader;
mod network;
mod operator;
mod restarts;
mod terms;
mod together;

use crate::consensus::{ConsensusStore, Server};
use crate::consensus_servers::ConsensusServers;
use crate::peers::Peers;
use crate::report::{Bounds, Report};
use crate::scene::Scene;
use crate::servers::Servers;
use crate::setup::{Setup, leases};
use crate::support::Proxy;
use crate::support::crew::eventually;
use std::marker::PhantomData;
use std::time::Duration;

/// Three servers, on which scenes are played one after another: their start takes seconds.
pub(crate) struct Stage<V> {
    servers: Option<Servers>,
    scenes: usize,
    kind: PhantomData<V>,
}

impl<V: ConsensusStore> Stage<V> {
    pub(crate) fn open() -> Self {
        Self::on(V::start(3), None)
    }

    /// With a network between the servers.
    fn open_networked() -> Self {
        let mut peers = None;
        let quorum = V::start_between(3, Some(&mut |servers| peers = Some(Peers::between(servers))));
        Self::on(quorum, peers)
    }

    fn on(quorum: V, peers: Option<Peers>) -> Self {
        let consensus = ConsensusServers { quorum: Box::new(quorum), peers, root: String::new() };
        Self { servers: Some(Servers::Consensus(Box::new(consensus))), scenes: 0, kind: PhantomData }
    }

    /// Plays a scene. All servers run before it, and after it.
    pub(crate) fn play(&mut self, mut setup: Setup, bounds: Bounds, fault: impl FnOnce(&mut Scene)) -> Report {
        let mut servers = self.servers.take().expect("no scene is being played");
        if let Servers::Consensus(consensus) = &mut servers {
            consensus.root = format!("scene{}", self.scenes);
            consensus.quorum.servers().iter_mut().for_each(Server::wait);
        }
        self.scenes += 1;
        setup.name = format!("{}: {}", V::NAME, setup.name).leak();
        let (report, servers) = setup.play_on(servers, bounds, fault);
        self.servers = Some(servers);
        report
    }
}

/// A waiter is served within this, once the servers agree again. A request may wait three seconds for a server that stands still, and its outcome is
/// only asked after that.
fn bounds() -> Bounds {
    Bounds { lossy: false, told: leases(0.5), waited: Duration::from_secs(6), expired: 0 }
}

/// Three processes that hold the lock for some hundredths of a second each, with a lease that may end while the servers elect a leader.
fn many(name: &'static str) -> Setup {
    Setup::of(name).on_consensus(Duration::from_secs(5))
}

/// Three processes with a thread each that do nothing but wait for the lock and hold it, with a lease that outlives an election.
fn few<V: ConsensusStore>(name: &'static str) -> Setup {
    Setup::of(name).on_consensus(V::LONG_LEASE).work(|work| (work.threads, work.tries, work.reentries) = (1, 0, 0))
}

/// The first process holds the lock while something is done, and all others wait. The hold outlives that.
fn held(scene: &mut Scene, what: impl FnOnce(&mut Scene)) {
    scene.ask_to_hold_on(0);
    scene.wait_until_it_holds_on(0);
    let others = scene.processes().len() - 1;
    eventually("all others wait", || {
        scene.server.keys().iter().filter(|key| key.contains("/.wait/")).count() == others
    });
    what(scene);
    assert!(scene.is_inside(0), "the hold goes on");
    scene.let_go(0);
}

/// Plays work of one kind while a server dies, and while a process that holds its locks is cut off, and loses them. Returns both reports.
fn struck<V: ConsensusStore>(kind: &str, work: fn(Setup) -> Setup) -> [Report; 2] {
    let mut stage = Stage::<V>::open();
    let setup = work(many(format!("server killed, {kind}").leak()));
    let server_died = stage.play(setup, bounds(), |scene| {
        let server = scene.leader();
        scene.without_service(|scene| scene.kill_server(server));
        scene.go_on(6);
        scene.restart_server(server);
    });
    // The others wait for the end of its sessions.
    let waited = V::longest(V::LEASE) + Duration::from_secs(2);
    let setup = Setup::of(format!("cut off from all servers for 3 L, {kind}").leak()).on_consensus(V::LEASE);
    let was_cut_off = stage.play(work(setup), Bounds { waited, ..bounds() }, |scene| {
        scene.ask_to_hold_on(0);
        scene.wait_until_it_holds_on(0);
        scene.fault();
        scene.ways(0).iter().for_each(Proxy::cut_off);
        scene.sleep(3.0);
        scene.ways(0).iter().for_each(Proxy::heal);
        scene.let_go(0);
        // The process holds something again.
        scene.wait_inside(0);
    });
    assert!(was_cut_off.lost >= 1, "{was_cut_off}");
    [server_died, was_cut_off].map(assert_safe)
}

/// Nobody has lost anything, nobody was refused, and no two were inside.
fn assert_safe(report: Report) -> Report {
    let report = report.assert_clean();
    assert_eq!((report.refused, report.both), (0, 0), "{report}");
    report
}
