//! TLS, with the crate rustls.
//!
//! A server's certificate is always checked, against the platform's roots or those that the program gives. No setting turns the check off.
//! With several servers (a Cluster, a service of Sentinels) the certificate of each must name the host under which that server is dialled.

use crate::error::Error;
use crate::tls::TlsSettings;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::fmt;
use std::io;
use std::sync::Arc;

/// What TLS sessions are made from. Shows nothing of it.
#[derive(Clone)]
pub(crate) struct Tls(Arc<ClientConfig>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads the certificates for sessions with `host`, if it is known already.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for certificates or keys that cannot be used, and for a host that no certificate can name.
    pub(crate) fn new(settings: &TlsSettings, host: Option<&str>) -> Result<Self, Error> {
        if let Some(host) = host
            && ServerName::try_from(host).is_err()
        {
            return Err(Error::invalid_config(
                "URL",
                host,
                "no certificate can name this host: give a DNS name or an IP address",
            ));
        }
        Ok(Self(Arc::new(settings.client_config()?)))
    }

    /// A session with a host, before its handshake.
    pub(crate) fn session(&self, host: &str) -> io::Result<ClientConnection> {
        // The host as it was dialled, also where one of several servers named it: it is what the certificate must name.
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        ClientConnection::new(Arc::clone(&self.0), name).map_err(io::Error::other)
    }
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/net/tls.rs"]
mod tests;
