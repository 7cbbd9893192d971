//! A service on which scenes are played one after another: its start takes seconds.

use crate::report::{Bounds, Report};
use crate::scene::Scene;
use crate::servers::Servers;
use crate::setup::Setup;
use crate::support::sentinels::{PATIENT, Plan, Service};

/// The service. A master, two replicas, and three Sentinels of which two must agree.
pub(crate) struct Stage(Option<Servers>);

impl Stage {
    pub(crate) fn open() -> Self {
        Self::open_as(false)
    }

    /// With a network that leads to each server.
    pub(crate) fn open_networked() -> Self {
        Self::open_as(true)
    }

    fn open_as(networked: bool) -> Self {
        let plan = Plan { networked, down_after_ms: PATIENT, ..Plan::default() };
        Self(Some(Servers::Service(Box::new(Service::start_as(&plan)), 0)))
    }

    /// Puts the service in order, and plays a scene on it.
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
