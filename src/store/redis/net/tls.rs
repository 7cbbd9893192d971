//! TLS by rustls, with the platform's root certificates or given ones, and with a client certificate.
//!
//! The crypto provider is named here, so that nothing depends on one installed for the process (without which rustls panics).

use crate::error::Error;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::fmt;
use std::io;
use std::sync::Arc;

/// The TLS settings of the builder.
#[derive(Clone, Default)]
pub(crate) struct TlsSettings {
    /// PEM text of root certificates that replace the platform's.
    pub(crate) roots: Option<Vec<u8>>,
    /// PEM texts of our certificate chain and its private key.
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

impl TlsSettings {
    /// Whether nothing was set.
    pub(crate) fn is_default(&self) -> bool {
        self.roots.is_none() && self.client.is_none()
    }
}

impl fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { roots, client } = self;
        f.debug_struct("TlsSettings")
            .field("own_roots", &roots.is_some())
            .field("client_certificate", &client.is_some())
            .finish()
    }
}

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
        let mut store = RootCertStore::empty();
        match &settings.roots {
            Some(pem) => {
                for certificate in certificates("TLS root certificates", pem)? {
                    store.add(certificate).map_err(|e| invalid("TLS root certificates", pem, e))?;
                }
            }
            None => {
                let found = rustls_native_certs::load_native_certs();
                store.add_parsable_certificates(found.certs);
                if store.is_empty() {
                    let why = found.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
                    let hint = format!("the platform has none ({why}): give some with `tls_root_certificates`");
                    return Err(Error::invalid_config("TLS root certificates", "", hint));
                }
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| invalid("TLS settings", &[], e))?
            .with_root_certificates(store);
        let config = match &settings.client {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let certificates = certificates("TLS client certificate", chain)?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| invalid("TLS client key", key, e))?;
                builder
                    .with_client_auth_cert(certificates, key)
                    .map_err(|e| invalid("TLS client certificate", chain, e))?
            }
        };
        Ok(Self(Arc::new(config)))
    }

    /// A session with a host, before its handshake.
    pub(crate) fn session(&self, host: &str) -> io::Result<ClientConnection> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        ClientConnection::new(Arc::clone(&self.0), name).map_err(io::Error::other)
    }
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(list) if list.is_empty() => Err(invalid(what, pem, "no CERTIFICATE section in the PEM text")),
        Ok(list) => Ok(list),
        Err(e) => Err(invalid(what, pem, e)),
    }
}

/// Shows only the length of the value, because it may be a key.
fn invalid(what: &'static str, pem: &[u8], cause: impl fmt::Display) -> Error {
    let value = format!("(PEM text of {} bytes)", pem.len());
    Error::invalid_config(
        what,
        value,
        format!("{cause}; give the text of the PEM file, with its BEGIN and END lines, and not its path"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_pem_is_refused_and_not_shown() {
        let roots = TlsSettings { roots: Some(b"s3crt".to_vec()), client: None };
        let error = Tls::new(&roots, Some("localhost")).expect_err("no certificate").to_string();
        assert!(error.contains("TLS root certificates") && !error.contains("s3crt"), "{error}");
        assert!(!format!("{roots:?}").contains("s3crt"));
    }
}
