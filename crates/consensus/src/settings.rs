//! What the builders of these stores collect.
//!
//! Both builders have the same settings, and check them when they build. A certificate that would not be used is an error: otherwise the password
//! would silently go over the network unencrypted.

use super::http::Http;
#[cfg(feature = "tls")]
use super::tls;
use super::url::StoreUrl;
use redis_dlock::Error;
#[cfg(feature = "tls")]
use redis_dlock::port::TlsSettings;
use std::fmt;

/// The servers, the login, and the certificates.
#[derive(Clone)]
pub(super) struct StoreSettings {
    pub(super) url: StoreUrl,
    #[cfg(feature = "tls")]
    pub(super) tls: TlsSettings,
}

impl StoreSettings {
    /// Reads the URL, which may have these parameters. Certificates come later, and are checked when the store is made: a program may give a
    /// certificate and its key in either order.
    pub(super) fn new(
        url: &str,
        scheme: &'static str,
        port: u16,
        parameters: &'static [&'static str],
    ) -> Result<Self, Error> {
        Ok(Self {
            url: StoreUrl::parse(url, scheme, port, parameters)?,
            #[cfg(feature = "tls")]
            tls: TlsSettings::default(),
        })
    }

    /// Makes the HTTP client for these servers.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for certificates that cannot be used, or would not be.
    pub(super) fn http_of(&self, servers: &[String]) -> Result<Http, Error> {
        #[cfg(feature = "tls")]
        let tls = match (self.url.is_encrypted(), self.tls.is_default()) {
            (true, _) => Some(tls::config(&self.tls)?),
            (false, true) => None,
            (false, false) => {
                let hint = "they would not be used: write +https:// in place of ://, or leave them out";
                return Err(Error::invalid_config("TLS certificates", self.url.servers.join(","), hint));
            }
        };
        Ok(Http::new(
            servers.to_vec(),
            self.url.socket.clone(),
            #[cfg(feature = "tls")]
            tls,
        ))
    }
}

/// Shows no login.
impl fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("StoreSettings");
        shown.field("servers", &self.url.servers).field("root", &self.url.root);
        #[cfg(feature = "tls")]
        shown.field("tls", &self.tls);
        shown.finish_non_exhaustive()
    }
}
