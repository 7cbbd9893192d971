//! TLS by rustls: the platform's root certificates or given ones, and a client certificate.
//!
//! The crypto provider is named here, so that nothing depends on one installed for the process (rustls panics without).

use crate::error::Error;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::fmt;
use std::io;
use std::sync::Arc;

/// What the builder was told about TLS.
#[derive(Clone, Default)]
pub(crate) struct TlsSettings {
    /// PEM text of root certificates, in place of the platform's.
    pub(crate) roots: Option<Vec<u8>>,
    /// PEM texts of our certificate chain and its private key.
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
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

/// Everything that a TLS session starts from.
#[derive(Clone)]
pub(crate) struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Reads the certificates.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for certificates or keys that cannot be used.
    pub(crate) fn new(settings: &TlsSettings) -> Result<Self, Error> {
        let mut store = RootCertStore::empty();
        match &settings.roots {
            Some(pem) => {
                for certificate in certificates("TLS root certificates", pem)? {
                    store.add(certificate).map_err(|e| invalid("TLS root certificates", e))?;
                }
            }
            None => {
                let found = rustls_native_certs::load_native_certs();
                store.add_parsable_certificates(found.certs);
                if store.is_empty() {
                    let why = found.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
                    return Err(invalid("TLS root certificates", format!("the platform has none: {why}")));
                }
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| invalid("TLS settings", e))?
            .with_root_certificates(store);
        let config = match &settings.client {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = certificates("TLS client certificate", chain)?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| invalid("TLS client key", e))?;
                builder.with_client_auth_cert(chain, key).map_err(|e| invalid("TLS client certificate", e))?
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
        Ok(list) if list.is_empty() => Err(invalid(what, "no CERTIFICATE section in the PEM text")),
        Ok(list) => Ok(list),
        Err(e) => Err(invalid(what, e)),
    }
}

/// The value is not shown: it may be a key.
fn invalid(what: &'static str, cause: impl fmt::Display) -> Error {
    Error::invalid(what, "(PEM)", cause.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_pem_is_refused_and_not_shown() {
        let roots = TlsSettings { roots: Some(b"s3crt".to_vec()), client: None };
        let error = Tls::new(&roots).err().expect("no certificate").to_string();
        assert!(error.contains("TLS root certificates") && !error.contains("s3crt"), "{error}");
        assert!(!format!("{roots:?}").contains("s3crt"));
    }
}
