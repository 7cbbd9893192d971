//! Where the server is and who we are there, read from a URL. Nothing here shows a user or a password; what a URL that
//! cannot be used shows of itself is decided in `mask`.

use super::classify::HIDDEN;
use super::mask::{find_password, mask};
use crate::error::Error;
use crate::one_line::OneLine;
use ::redis::{ConnectionAddr, IntoConnectionInfo, ProtocolVersion};
use std::fmt;
use std::path::{Path, PathBuf};

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
        let invalid = |hint: &str| Error::invalid_config("URL", mask(url), hint);
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
        if let Some(hint) = fault(url, &place) {
            return Err(invalid(hint));
        }
        Ok(Self {
            place,
            user: settings.username().map(str::to_owned),
            password: settings.password().map(str::to_owned),
            db: settings.db(),
        })
    }
}

/// Why a URL that can be read cannot be used.
fn fault(url: &str, place: &Place) -> Option<&'static str> {
    let (_, settings) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
    // The crate `redis` drops a setting that it does not know without a word.
    let has_only = |known: &[&str]| {
        let name = |setting: &str| setting.split('=').next().unwrap_or_default().to_owned();
        let is_known = |name: &String| name.is_empty() || known.contains(&name.as_str());
        !settings.contains('#') && settings.trim_start_matches('?').split('&').map(name).all(|name| is_known(&name))
    };
    // What is not refused is shown whenever the server cannot be reached.
    match place {
        Place::Tcp { .. } if settings.contains('@') => {
            Some("there is an `@` after a `?` or `#`: write %3F and %23 for those of a password")
        }
        Place::Tcp { host, .. } if host.contains('%') => {
            Some("the host name has a `%` in it: write user and password before a plain `@`")
        }
        Place::Tcp { host, port, .. } if *port == 0 || host.contains('\0') => {
            Some("nobody can connect there: give a host name or address, and a port from 1 to 65535")
        }
        Place::Tcp { .. } if !has_only(&["protocol"]) => {
            Some("there is a setting after a `?` or `#` that is not known: leave it out, and write the database as /db")
        }
        Place::Unix(path) if find_password(&path.to_string_lossy()).is_some() => {
            Some("the socket's path names a password: write settings after a plain `?`")
        }
        Place::Unix(path) if !is_socket_path(path) => {
            Some("nobody can connect there: give the path of a socket, at most 107 bytes, without NUL")
        }
        Place::Unix(_) if !has_only(&["db", "user", "pass", "protocol"]) => Some(
            "there is a setting that is not known: leave it out; write db, user and pass after the `?`, joined by `&`",
        ),
        _ => None,
    }
}

fn is_socket_path(path: &Path) -> bool {
    #[cfg(unix)]
    if std::os::unix::net::SocketAddr::from_pathname(path).is_err() {
        return false;
    }
    !path.as_os_str().is_empty()
}

impl Address {
    /// The server's words without our user's name, wherever it stands as a word: other servers than those that `classify` knows may
    /// name the user in words of their own. `default` is nobody's secret.
    pub(crate) fn hide_user(&self, words: &str) -> String {
        let Some(user) = self.user.as_deref().filter(|user| !user.is_empty() && *user != "default") else {
            return words.to_owned();
        };
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let (mut shown, mut rest) = (String::with_capacity(words.len()), words);
        while let Some(at) = rest.find(user) {
            let end = at + user.len();
            let before = rest[..at].chars().next_back().or_else(|| shown.chars().next_back());
            let is_word = !before.is_some_and(is_part) && !rest[end..].starts_with(is_part);
            shown.push_str(&rest[..at]);
            shown.push_str(if is_word { HIDDEN } else { user });
            rest = &rest[end..];
        }
        shown + rest
    }

    /// As [`hide_user`](Self::hide_user), of an error that a reply stands for.
    pub(crate) fn hide(&self, mut error: Error) -> Error {
        if let Error::Backend { message, .. } | Error::Denied { message } | Error::Unsupported { message } = &mut error
        {
            *message = self.hide_user(message);
        }
        error
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
    fn words_are_shown_without_the_user() {
        let of = |user: &str, words: &str| {
            let place = Place::Unix(PathBuf::new());
            Address { place, user: Some(user.to_owned()), password: None, db: 0 }.hide_user(words)
        };
        for (words, shown) in [
            ("NOPERM: alice has no ACL permissions", "NOPERM: *** has no ACL permissions"),
            ("alice", "***"),
            ("`alice`, 'alice' and alice's", "`***`, '***' and ***'s"),
            ("malice, alices, alice_2 and Alice", "malice, alices, alice_2 and Alice"),
            ("alicealice alice", "alicealice ***"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(of("alice", words), shown);
        }
        assert_eq!(of("\"o d\\é", "user \"o d\\é may not"), "user *** may not");
        assert_eq!(of("default", "User default may not"), "User default may not");
        assert_eq!(of("", "User  may not"), "User  may not");
    }

    #[test]
    #[cfg(not(feature = "tls"))]
    fn tls_without_the_feature_says_what_to_enable() {
        let error = Address::parse("rediss://host").expect_err("no TLS");
        assert!(error.to_string().contains("feature `tls`"), "{error}");
    }
}
