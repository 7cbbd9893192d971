//! TLS for requests over HTTP.
//!
//! `redis-dlock` reads and checks the certificates, as for its own store. This module only hands them on, in the types of the HTTP client. It names
//! the crypto provider, so that nothing depends on one that the program has installed: without one, rustls would panic.

use redis_dlock::Error;
use redis_dlock::port::TlsSettings;
use std::io;
use std::sync::Arc;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

/// Reads the certificates for the HTTP client.
///
/// # Errors
///
/// [`Error::InvalidConfig`] for certificates or keys that cannot be used.
pub(super) fn config(settings: &TlsSettings) -> Result<TlsConfig, Error> {
    // A certificate that cannot be used is an error here, and not of the first request.
    settings.check()?;
    let unread = |e| Error::invalid_config("TLS certificates", "", format!("{e}"));
    let roots = match settings.root_certificates() {
        Some(pem) => certificates(pem).map_err(unread)?,
        None => {
            let found = rustls_native_certs::load_native_certs().certs;
            found.iter().map(|root| Certificate::from_der(root).to_owned()).collect()
        }
    };
    let identity = match settings.client_certificate() {
        Some((chain, key)) => {
            let chain = certificates(chain).map_err(unread)?;
            Some(ClientCert::new_with_certs(
                &chain,
                PrivateKey::from_pem(key).map_err(io::Error::other).map_err(unread)?,
            ))
        }
        None => None,
    };
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
        .client_cert(identity)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}

/// The certificates of a PEM text.
fn certificates(pem: &[u8]) -> io::Result<Vec<Certificate<'static>>> {
    let items = parse_pem(pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(Ok(certificate)),
        Ok(_) => None,
        Err(e) => Some(Err(io::Error::other(e))),
    });
    items.collect()
}
