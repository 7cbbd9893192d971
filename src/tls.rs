//! The settings of TLS: the certificates, as PEM texts or the platform's.
//!
//! The crypto provider is named here, so that nothing depends on one installed for the process (without which rustls panics).

use crate::error::Error;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::sync::Arc;

/// The certificates of a store that encrypts, as PEM texts. The builder of a store collects them here and checks them when it builds.
/// Without any, the servers are checked against the platform's root certificates, and the client presents none.
///
/// `Debug` shows which are set, and nothing of them.
#[derive(Clone, Default)]
pub struct TlsSettings {
    /// PEM text of root certificates that replace the platform's.
    pub(crate) roots: Option<Vec<u8>>,
    /// PEM texts of our certificate chain and its private key.
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

impl TlsSettings {
    /// Sets the root certificates that the servers are checked against.
    #[must_use]
    pub fn with_root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots = Some(pem.into());
        self
    }

    /// Sets the certificate chain that the client presents, and its private key.
    #[must_use]
    pub fn with_client_certificate(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.client = Some((chain.into(), key.into()));
        self
    }

    /// Returns whether nothing was set.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.roots.is_none() && self.client.is_none()
    }

    /// Returns the root certificates, if they were set.
    #[must_use]
    pub fn root_certificates(&self) -> Option<&[u8]> {
        self.roots.as_deref()
    }

    /// Returns the certificate chain of the client and its private key, if they were set.
    #[must_use]
    pub fn client_certificate(&self) -> Option<(&[u8], &[u8])> {
        self.client.as_ref().map(|(chain, key)| (&**chain, &**key))
    }

    /// Checks whether connections can be opened with these certificates, so that the builder of a store says what is wrong, and not the
    /// first request. Reads the platform's root certificates if none were set.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for certificates or keys that cannot be used, and where the platform has no root certificates.
    pub fn check(&self) -> Result<(), Error> {
        self.client_config().map(drop)
    }

    /// Reads the certificates. Fails with [`Error::InvalidConfig`] for certificates or keys that cannot be used.
    pub(crate) fn client_config(&self) -> Result<ClientConfig, Error> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|e| invalid("TLS settings", &[], e))?
            .with_root_certificates(self.roots()?);
        let Some((chain, key)) = &self.client else { return Ok(builder.with_no_client_auth()) };
        let certificates = certificates(CLIENT, chain)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| invalid(KEY, key, e))?;
        builder.with_client_auth_cert(certificates, key).map_err(|e| invalid(CLIENT, chain, e))
    }

    fn roots(&self) -> Result<RootCertStore, Error> {
        let mut store = RootCertStore::empty();
        let Some(pem) = &self.roots else {
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
            if store.is_empty() {
                let why = found.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
                let hint = format!("the platform has none ({why}): give some with `tls_root_certificates`");
                return Err(Error::invalid_config(ROOTS, "", hint));
            }
            return Ok(store);
        };
        for certificate in certificates(ROOTS, pem)? {
            store.add(certificate).map_err(|e| invalid(ROOTS, pem, e))?;
        }
        Ok(store)
    }
}

/// What encrypts.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
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

/// The names of the settings, for errors.
const ROOTS: &str = "TLS root certificates";
const CLIENT: &str = "TLS client certificate";
const KEY: &str = "TLS client key";

/// Reads the certificates of a PEM text.
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
