//! Where a client connects, and how a link is made: dial, TLS, handshake.

use super::address::Address;
#[cfg(feature = "tls")]
use super::address::Place;
use super::dial::dial;
use super::handshake;
use super::link::Link;
#[cfg(feature = "tls")]
use super::tls::Tls;
#[cfg(feature = "tls")]
use super::tls_session::TlsSession;
use crate::error::Error;
use std::time::{Duration, Instant};

/// Everything that is needed to make a link.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: Address,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Tls>,
    /// Limits connect, TLS and handshake together.
    pub(crate) connect_timeout: Duration,
}

impl Endpoint {
    /// Connects, and does the handshake.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] (not executed), [`Error::Denied`], [`Error::Unsupported`], [`Error::InvalidConfig`] for a
    /// database that does not exist.
    pub(crate) fn connect(&self, deadline: Instant) -> Result<Link, Error> {
        let socket = dial(&self.address, deadline)?;
        #[cfg(feature = "tls")]
        let tls = match (&self.tls, &self.address.place) {
            (Some(tls), Place::Tcp { host, .. }) => {
                Some(TlsSession::start(tls, host, &socket, deadline).map_err(|e| handshake::failed(&self.address, e))?)
            }
            _ => None,
        };
        let link = Link::new(
            socket,
            #[cfg(feature = "tls")]
            tls,
        );
        let mut link = link.map_err(|e| handshake::failed(&self.address, e))?;
        handshake::run(&mut link, &self.address, deadline)?;
        Ok(link)
    }
}
