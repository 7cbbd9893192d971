//! Where a client connects, and the steps by which a link is made: find the server, dial, TLS, handshake.
//!
//! One deadline limits all steps together. A [`Finder`] may say where the server is. Then dialling its first address may use half of the
//! time at most. If that address takes no connection, the finder is asked once more, because the server may have moved meanwhile. An
//! address that is found twice is not dialled twice.
//!
//! A link is used only when its server has said who it is, and when the finder still names its address (`identity.rs`, rule 4). So a slow
//! connect cannot bring an earlier master back.

use super::address::Address;
#[cfg(feature = "tls")]
use super::address::Place;
use super::connector::{Connector, OpenConnection};
use super::dial::dial;
use super::handshake;
use super::identity::{ConnectionCut, Servers};
use super::link::{Inbound, Link, Outbound};
#[cfg(feature = "tls")]
use super::tls::{Tls, TlsSession};
use crate::error::{BackendFailure, Error};
use crate::log;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Makes links without a handshake.
#[derive(Clone, Default)]
pub(crate) struct Dialer {
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Tls>,
}

/// Says where a server is that may move.
pub(crate) trait Finder: Send + Sync {
    /// Returns the address of the server now. Blocks until the deadline at most.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] (not executed); [`Error::InvalidConfig`] if there never was such a server.
    fn find(&self, deadline: Instant) -> Result<Address, Error>;

    /// Notes whether a connect to an address that was found has reached a server that takes locks.
    fn note(&self, found: &Address, is_master: bool);

    /// Returns `true` if the server is still to be found there.
    fn is_followed(&self, found: &Address) -> bool;

    /// Returns for how long there may be no server when one dies.
    fn outage(&self) -> Duration;

    /// Ends the finder's thread and connections.
    fn stop(&self);
}

/// Everything that is needed to make a link.
#[derive(Clone)]
pub(crate) struct Endpoint {
    /// Where the server is, or what to call it if it is to be found.
    pub(crate) address: Address,
    /// Finds the server; `None` if it stays at its address.
    pub(crate) finder: Option<Arc<dyn Finder>>,
    pub(crate) dialer: Dialer,
    /// Limits finding, connect, TLS and handshake together.
    pub(crate) connect_timeout: Duration,
    /// Which server answers. All connections share it.
    pub(crate) servers: Arc<Servers>,
    /// Whether it is a node of a Cluster.
    pub(crate) in_cluster: bool,
}

impl Dialer {
    /// Connects a socket, with TLS if it is wanted.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`], not executed.
    pub(crate) fn dial(&self, address: &Address, deadline: Instant) -> Result<Link, Error> {
        let socket = dial(address, deadline)?;
        #[cfg(feature = "tls")]
        let tls = match (&self.tls, &address.place) {
            (Some(tls), Place::Tcp { host, .. }) => {
                Some(TlsSession::start(tls, host, &socket, deadline).map_err(|e| handshake::failed(address, e))?)
            }
            _ => None,
        };
        let link = Link::new(
            socket,
            #[cfg(feature = "tls")]
            tls,
        );
        link.map_err(|e| handshake::failed(address, e))
    }
}

impl Endpoint {
    /// Finds the server, connects, and does the handshake. If another server answers than before, cuts the older connections.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] (not executed; also for a replica), [`Error::Denied`], [`Error::Unsupported`], [`Error::InvalidConfig`] for a
    /// database that does not exist.
    pub(crate) fn connect(&self, deadline: Instant) -> Result<Link, Error> {
        // A fixed address needs no search, and cannot become wrong meanwhile.
        let Some(finder) = &self.finder else { return self.connect_to(&self.address, deadline, &|| true) };
        let mut before: Option<(Address, Error)> = None;
        loop {
            let found = match finder.find(deadline) {
                Ok(found) => found,
                // If a first address was tried, return the error of that attempt: it says more than the error that no second address was
                // found.
                Err(error) => return Err(before.map_or(error, |(_, error)| error)),
            };
            if let Some((address, error)) = before.take_if(|(address, _)| address.place == found.place) {
                log::debug!(TRANSPORT, "{}: no master is found at {address}", self.address);
                return Err(error);
            }
            // The first address gets half of the time, so that a host that drops all packets leaves time for another one.
            let now = Instant::now();
            let half = if before.is_none() { now + deadline.saturating_duration_since(now) / 2 } else { deadline };
            let link = self.connect_to(&found, half, &|| finder.is_followed(&found));
            // The finder is told before the second try, so that it names another address if it can.
            finder.note(&found, link.is_ok());
            match link {
                // The finder may know another address now.
                Err(error) if error.is_transient() && before.is_none() && Instant::now() < deadline => {
                    before = Some((found, error));
                }
                link => return link,
            }
        }
    }

    /// Does as [`connect`](Self::connect) at a known address. The link is not used if the server has moved to another address by the time it has
    /// answered.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect).
    pub(crate) fn connect_to(
        &self,
        address: &Address,
        deadline: Instant,
        is_followed: &dyn Fn() -> bool,
    ) -> Result<Link, Error> {
        let mut link = self.dialer.dial(address, deadline)?;
        let (part, identity) = handshake::run(&mut link, address, deadline)?;
        if part.is_in_cluster && !self.in_cluster {
            // By this mark, a builder with a plain URL learns that the server is a node of a Cluster, and connects again as to a Cluster.
            self.servers.note_cluster();
        }
        part.check_kind(self.in_cluster, address)?;
        part.check_master(address)?;
        if self.servers.meet(identity, address, &link.socket(), is_followed) {
            return Ok(link);
        }
        let message = format!("{address} is not the master any more");
        Err(Error::backend(BackendFailure::NotExecuted, message))
    }

    /// Connects to a server, be it a master or not, to read the map of a Cluster from it or to examine it. It carries no locks.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect), but not for a replica.
    pub(crate) fn connect_to_any(&self, deadline: Instant) -> Result<Link, Error> {
        let mut link = self.dialer.dial(&self.address, deadline)?;
        let (part, _) = handshake::run(&mut link, &self.address, deadline)?;
        // A replica may be asked for the map: its answer is as good as a master's.
        part.check_kind(self.in_cluster, &self.address)?;
        Ok(link)
    }
}

impl Connector for Endpoint {
    type Out = Outbound;
    type In = Inbound;
    type Cut = ConnectionCut;

    fn open(&self, deadline: Instant) -> Result<OpenConnection<Self>, Error> {
        let link = self.connect(deadline)?;
        let cut = ConnectionCut { socket: link.socket(), servers: Arc::clone(&self.servers) };
        Ok(OpenConnection { outbound: link.outbound, inbound: link.inbound, cut })
    }

    fn close(&self) {
        if let Some(finder) = &self.finder {
            finder.stop();
        }
    }
}
