//! Where the server is and who we are there, read from a URL. Nothing here shows a user or a password; what a URL that
//! cannot be used shows of itself is decided in `mask`.

use super::mask::{find_password, mask};
use crate::error::Error;
use crate::one_line::OneLine;
use ::redis::{ConnectionAddr, IntoConnectionInfo, ProtocolVersion};
use std::fmt;
use std::path::PathBuf;

/// The place of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Tcp { host: String, port: u16, tls: bool },
    Unix(PathBuf),
}

/// A server and a login.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) place: Place,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) db: i64,
}

impl Address {
    /// Reads a URL as the crate `redis` understands them.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`], with everything masked that may be a user or a password.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let invalid = |hint: &str| Error::invalid("URL", mask(url), hint);
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        let tls = scheme == "rediss" || scheme == "valkeys";
        if tls && cfg!(not(feature = "tls")) {
            return Err(invalid("for TLS enable the feature `tls` of the crate redis-dlock"));
        }
        if tls && url.ends_with("#insecure") {
            return Err(invalid(
                "`#insecure` is not supported: give the server's root certificate with `tls_root_certificates` instead",
            ));
        }
        let info = url.into_connection_info().map_err(|e| {
            let cause = e.to_string();
            // The crate's message may quote a part of the URL: only its fixed beginning is passed on.
            let cause = cause.split(" - ").next().unwrap_or_default().to_owned();
            let cause = cause.strip_suffix("InvalidClientConfig").unwrap_or(&cause).trim_end();
            invalid(&format!("{cause}; write redis://[user][:password@]host[:port][/db]"))
        })?;
        let settings = info.redis_settings();
        if settings.protocol() != ProtocolVersion::RESP2 {
            return Err(invalid("RESP3 is not supported: leave `protocol` out"));
        }
        let place = match info.addr() {
            ConnectionAddr::Tcp(host, port) => Place::Tcp { host: host.clone(), port: *port, tls: false },
            ConnectionAddr::TcpTls { host, port, .. } => Place::Tcp { host: host.clone(), port: *port, tls: true },
            ConnectionAddr::Unix(path) => Place::Unix(path.clone()),
            _ => return Err(invalid("this kind of address is not supported")),
        };
        // All would be shown whenever the server cannot be reached.
        match &place {
            Place::Tcp { .. } if url[url.find(['?', '#']).unwrap_or(url.len())..].contains('@') => {
                return Err(invalid("there is an `@` after a `?` or `#`: write %3F and %23 for those of a password"));
            }
            Place::Tcp { host, .. } if host.contains('%') => {
                return Err(invalid("the host name has a `%` in it: write user and password before a plain `@`"));
            }
            Place::Unix(path) if find_password(&path.to_string_lossy()).is_some() => {
                return Err(invalid("the socket's path names a password: write settings after a plain `?`"));
            }
            _ => {}
        }
        Ok(Self {
            place,
            user: settings.username().map(str::to_owned),
            password: settings.password().map(str::to_owned),
            db: settings.db(),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Tcp { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Place::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
            Place::Unix(path) => write!(f, "{}", OneLine(path.display())),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}/{}", self.db)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let a = Address::parse("redis://ann:s%40crt@db.example:7000/3").expect("a URL");
        assert_eq!(a.place, Place::Tcp { host: "db.example".into(), port: 7000, tls: false });
        assert_eq!((a.user.as_deref(), a.password.as_deref(), a.db), (Some("ann"), Some("s@crt"), 3));
        assert_eq!(format!("{a} {a:?}"), "db.example:7000 db.example:7000/3");
        let a = Address::parse("redis://[::1]").expect("a URL");
        assert_eq!(format!("{a}"), "[::1]:6379");
        let a = Address::parse("unix:///run/r.sock?db=2&user=ann&pass=s3crt").expect("a URL");
        assert_eq!((a.place.clone(), a.password.as_deref()), (Place::Unix("/run/r.sock".into()), Some("s3crt")));
        assert!(!format!("{a:?}{a}").contains("s3crt"));
    }

    #[test]
    fn unusable_urls_are_named_without_their_password() {
        for url in [
            "",
            "localhost:6379",
            "http://ann:s3crt@host",
            "redis://ann:s3crt@host:port",
            "redis://ann:s3crt@host/x",
            "redis://:s3crt/more@host:1:2",
            "redis://s3crt@host/x",
            "redis://host/?protocol=resp3",
            "redis://ann:s3crt@host/?protocol=s3crt",
            "unix:///run/r.sock?db=x&pass=s3crt&user=a",
            "rediss://ann:s3crt@host/#insecure",
            // Such as could be used, but not as they were meant.
            "redis://ann:1?s3crt@host",
            "redis://ann:1#s3crt@host",
            "redis://ann%3As3crt%40host",
            "unix:///run/r.sock%3Fpass=s3crt",
        ] {
            let error = Address::parse(url).expect_err(url);
            assert!(matches!(&error, Error::InvalidConfig { what: "URL", .. }), "{error:?}");
            let shown = format!("{error} {error:?}").replace("protocol=s3crt", "");
            assert!(!shown.contains("s3crt"), "{shown}");
        }
    }

    #[test]
    #[cfg(not(feature = "tls"))]
    fn tls_without_the_feature_says_what_to_enable() {
        let error = Address::parse("rediss://host").expect_err("no TLS");
        assert!(error.to_string().contains("feature `tls`"), "{error}");
    }
}
