//! What the processes of a scene talk to: one server, or a service of which one server at a time is the master.

use crate::support::RedisServer;
use crate::support::sentinels::Service;
use std::ops::{Deref, DerefMut};

/// Stands for the one server, or for the present master.
pub(crate) enum Servers {
    One(Box<RedisServer>),
    /// And the master's place among its servers.
    Service(Box<Service>, usize),
}

impl Servers {
    /// The service, in a scene that has one.
    pub(crate) fn service(&self) -> &Service {
        match self {
            Self::One(_) => panic!("a scene with one server"),
            Self::Service(service, _) => service,
        }
    }

    pub(crate) fn service_mut(&mut self) -> &mut Service {
        match self {
            Self::One(_) => panic!("a scene with one server"),
            Self::Service(service, _) => service,
        }
    }

    /// The place of the master.
    pub(crate) fn master(&self) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Service(_, master) => *master,
        }
    }

    /// Another server is the master now.
    pub(crate) fn follow(&mut self, server: usize) {
        if let Self::Service(_, master) = self {
            *master = server;
        }
    }

    /// The processes of all servers.
    pub(crate) fn pids(&self) -> Vec<u32> {
        match self {
            Self::One(server) => vec![server.pid()],
            Self::Service(service, _) => service.servers.iter().map(RedisServer::pid).collect(),
        }
    }
}

impl Deref for Servers {
    type Target = RedisServer;

    fn deref(&self) -> &RedisServer {
        match self {
            Self::One(server) => server,
            Self::Service(service, master) => &service.servers[*master],
        }
    }
}

impl DerefMut for Servers {
    fn deref_mut(&mut self) -> &mut RedisServer {
        match self {
            Self::One(server) => server,
            Self::Service(service, master) => &mut service.servers[*master],
        }
    }
}
