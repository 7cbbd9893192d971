//! A service, or a Cluster, on which scenes are played one after another: its start takes seconds.

use crate::report::{Bounds, Report};
use crate::scene::Scene;
use crate::servers::Servers;
use crate::setup::Setup;
use crate::support::cluster::{self, Cluster};
use crate::support::sentinels::{PATIENT, Plan, Service};
use crate::work::KEY;

/// A master, two replicas, and three Sentinels of which two must agree; or a Cluster of three masters with a replica each.
pub(crate) struct Stage(Option<Servers>);

impl Stage {
    pub(crate) fn open() -> Self {
        Self::open_as(false)
    }

    /// With a network that leads to each server.
    pub(crate) fn open_networked() -> Self {
        Self::open_as(true)
    }

    /// A Cluster. While nobody serves some slots, its nodes serve the others.
    pub(crate) fn open_cluster() -> Self {
        Self::open_cluster_with(cluster::Plan::default().node_timeout_ms)
    }

    /// A Cluster whose nodes do not take one another for dead on a busy machine. A master can be replaced once in twenty seconds.
    pub(crate) fn open_patient_cluster() -> Self {
        Self::open_cluster_with(10_000)
    }

    fn open_cluster_with(node_timeout_ms: u32) -> Self {
        let args = ["--cluster-require-full-coverage", "no"].map(str::to_owned).to_vec();
        let plan = cluster::Plan { node_timeout_ms, args, ..cluster::Plan::default() };
        Self(Some(Servers::Cluster(Box::new(Cluster::start_as(&plan)), 0)))
    }

    fn open_as(networked: bool) -> Self {
        let plan = Plan { networked, down_after_ms: PATIENT, ..Plan::default() };
        Self(Some(Servers::Service(Box::new(Service::start_as(&plan)), 0)))
    }

    /// Puts everything in order, and plays a scene on it.
    pub(crate) fn play(&mut self, setup: Setup, bounds: Bounds, fault: impl FnOnce(&mut Scene)) -> Report {
        let mut servers = self.0.take().expect("no scene is being played");
        servers.tidy_up();
        let (report, servers) = setup.play_on(servers, bounds, fault);
        self.0 = Some(servers);
        report
    }
}

impl Servers {
    /// Puts everything in order that the scene before has left: servers, settings, keys.
    fn tidy_up(&mut self) {
        if let Self::Cluster(cluster, owner) = self {
            cluster.heal();
            for master in cluster.masters() {
                cluster.run::<()>(master, &["FLUSHALL"]);
                cluster.wait_for_replicas(master);
            }
            *owner = cluster.owner_of_key(KEY.2);
            return;
        }
        let service = self.service_mut();
        service.is_down_after(PATIENT);
        let master = service.heal();
        for server in &service.servers {
            server.config("min-replicas-to-write", "0");
        }
        service.servers[master].run::<()>(&["FLUSHALL"]);
        service.wait_for_replicas(service.servers[master].port());
        self.follow(master);
    }
}
