//! Who is the master, and what an operator does after a failover.

use super::super::crew::slowly;
use super::super::{Proxy, RedisServer};
use super::{SERVICE, Service};

/// After how many milliseconds without an answer a master is down, where the Sentinels are to leave it alone.
///
/// With 500 they may fail over twice. A Sentinel first pings a new master when 500 ms are over, and takes it for dead in that very moment. The
/// one that led the failover still counts what the others said of the old master. A busy machine does the same.
pub(crate) const PATIENT: u32 = 30_000;

/// Whether a server says that it is a master. One that does not answer does not.
pub(crate) fn is_master(server: &RedisServer) -> bool {
    info(server, "replication").contains("role:master")
}

/// A section of what a server says of itself; nothing if it does not answer.
pub(super) fn info(server: &RedisServer, section: &str) -> String {
    server.ask(&["INFO", section]).unwrap_or_default()
}

/// By the ports of the servers.
impl Service {
    /// The port of the master, as a Sentinel says.
    pub(crate) fn named_by(&self, sentinel: usize) -> u16 {
        self.sentinels[sentinel].master_field("port").unwrap().parse().unwrap()
    }

    /// The server on that port.
    pub(crate) fn on(&mut self, port: u16) -> &mut RedisServer {
        self.servers.iter_mut().find(|server| server.port() == port).unwrap()
    }

    /// Waits until the replicas have what the master has been told so far.
    pub(crate) fn wait_for_replicas(&self, master: u16) {
        let replicas = (self.servers.len() - 1).to_string();
        let server = self.servers.iter().find(|server| server.port() == master).unwrap();
        let mut admin = server.connection();
        slowly("the replicas have it", || {
            // WAIT counts for what its own connection has sent to the replicas. A message leaves nothing behind.
            redis::cmd("PUBLISH").arg("marker").arg("x").exec(&mut admin).unwrap();
            let acks: usize = redis::cmd("WAIT").arg(&replicas).arg("1000").query(&mut admin).unwrap();
            acks == self.servers.len() - 1
        });
    }

    /// Waits until a server other than this one says that it is the master.
    pub(crate) fn wait_for_another_master(&self, old: u16) -> u16 {
        let old = self.servers.iter().position(|server| server.port() == old).unwrap();
        self.servers[self.wait_for_promotion(old)].port()
    }
}

/// By the places of the servers in the list.
impl Service {
    /// The server that a Sentinel names as the master. `None` if it does not answer.
    pub(crate) fn named(&self, sentinel: usize) -> Option<usize> {
        let port: u16 = self.sentinels[sentinel].master_field("port")?.parse().ok()?;
        self.ports.iter().position(|of| *of == port)
    }

    /// Waits until a server other than this one says that it is a master. From then on the Sentinels are [patient](PATIENT).
    pub(crate) fn wait_for_promotion(&self, old: usize) -> usize {
        let mut found = None;
        slowly("a replica is promoted", || {
            found = (0..self.servers.len()).find(|server| *server != old && is_master(&self.servers[*server]));
            found.is_some()
        });
        self.is_down_after(PATIENT);
        found.unwrap()
    }

    /// Sets after how many milliseconds without an answer the Sentinels take the master for dead. Those that do not run are passed over.
    pub(crate) fn is_down_after(&self, millis: u32) {
        for sentinel in &self.sentinels {
            let _: Option<()> =
                sentinel.run(&["SENTINEL", "SET", SERVICE, "down-after-milliseconds", &millis.to_string()]);
        }
    }

    /// Puts everything in order after a failover, as an operator does who does not wait for Sentinel to do it (ten seconds): all servers
    /// run, all networks let everything through, and all servers but the master replicate it. Returns the master.
    pub(crate) fn heal(&mut self) -> usize {
        self.ways.iter().for_each(Proxy::heal);
        self.servers.iter_mut().filter(|server| !server.is_running()).for_each(RedisServer::restart);
        let mut master = None;
        slowly("all Sentinels name one master", || {
            let named: Vec<_> = (0..self.sentinels.len()).map(|sentinel| self.named(sentinel)).collect();
            let is_agreed = |first: &usize| named.iter().all(|other| *other == Some(*first));
            master = named[0].filter(is_agreed).filter(|master| is_master(&self.servers[*master]));
            master.is_some()
        });
        let master = master.unwrap();
        (0..self.servers.len()).filter(|server| *server != master).for_each(|server| self.follow(server, master));
        self.wait_until_complete();
        master
    }
}
