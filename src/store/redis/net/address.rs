//! The server's place and our login, read from a URL. Nothing here shows a user or a password.
//!
//! A URL that cannot be used is not shown at all, because it is not certain where its password is. Its error gives one of a few fixed
//! reasons.

use super::classify::HIDDEN;
use crate::error::Error;
use crate::one_line::OneLine;
use ::redis::{ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisError};
use std::fmt;
use std::path::{Path, PathBuf};

/// The schemes that mean Redis: an error may show them.
pub(crate) const SCHEMES: &[&str] = &["redis", "rediss", "valkey", "valkeys", "redis+unix", "valkey+unix", "unix"];

/// What an error shows instead of a URL.
pub(crate) const NOT_SHOWN: &str = "(not shown: it may contain a password)";

/// How a URL is written.
const FORMS: &str = "write redis://[user][:password@]host[:port][/db] or unix:///path";

/// What to do about an `@` behind the hosts: see [`has_stray_at`].
pub(crate) const STRAY_AT: &str =
    "there is an `@` after a `/`, `?` or `#`: write %2F, %3F, %23 and %40 for those of a password";

/// The messages of the crate `redis` about a URL, and ours. Its own are not passed on, because some quote a part of the URL.
const REASONS: &[(&str, &str)] = &[
    ("Missing hostname", "missing host"),
    ("Missing path", "missing path of the socket"),
    ("Cannot connect to a wildcard address", "the host is a wildcard address"),
    ("Invalid database number", "the database is not a number"),
    ("Invalid protocol version", "unknown protocol"),
    ("only #insecure is supported", "there is something after a `#`"),
    ("Username is not valid", "the user is not UTF-8"),
    ("Password is not valid", "the password is not UTF-8"),
    ("Unix sockets are not available", "no Unix sockets on this platform"),
];

/// The place of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Tcp {
        host: String,
        port: u16,
        tls: bool,
    },
    Unix(PathBuf),
    /// Wherever the Sentinels of a service say that its master is.
    Service {
        name: String,
        tls: bool,
    },
}

/// A server, and the login for it.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) place: Place,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) db: i64,
}

impl Address {
    /// Reads a URL as the crate `redis` does.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`], which shows nothing of the URL except a scheme that means Redis.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let invalid = |hint: &str| Error::invalid_config("URL", not_shown(url), hint);
        // Asked before the crate `redis` is: it would report a URL with TLS, in a build without, as one that cannot be read.
        let tls = matches!(scheme_of(url), Some("rediss" | "valkeys"));
        if tls && cfg!(not(feature = "tls")) {
            return Err(invalid("for TLS enable the feature `tls` of the crate redis-dlock"));
        }
        if tls && url.ends_with("#insecure") {
            return Err(invalid(
                "`#insecure` is not supported: give the server's root certificate with `tls_root_certificates` instead",
            ));
        }
        // Its words may quote the URL, and with it the password. So they choose one of our own sentences, and are dropped (`reason`).
        let info = url.into_connection_info().map_err(|e| {
            let reason = reason(url, &e);
            invalid(&format!("{reason}; {FORMS}"))
        })?;
        let settings = info.redis_settings();
        // Under RESP3 messages and replies come as other types, and interleaved. The reader knows the five types of RESP2.
        if settings.protocol() != ProtocolVersion::RESP2 {
            return Err(invalid("RESP3 is not supported: leave `protocol` out"));
        }
        let place = match info.addr() {
            ConnectionAddr::Tcp(host, port) => Place::Tcp { host: host.clone(), port: *port, tls: false },
            ConnectionAddr::TcpTls { host, port, .. } => Place::Tcp { host: host.clone(), port: *port, tls: true },
            ConnectionAddr::Unix(path) => Place::Unix(path.clone()),
            _ => return Err(invalid(&format!("this kind of address is not supported; {FORMS}"))),
        };
        if let Some(hint) = fault(url, &place) {
            return Err(invalid(hint));
        }
        // It would be left out of the handshake, and the server would take the client for `default`.
        if settings.username().is_some_and(|user| !user.is_empty()) && settings.password().is_none() {
            return Err(invalid(
                "there is a user without a password: give both, and any password if the user needs none",
            ));
        }
        Ok(Self {
            place,
            user: settings.username().map(str::to_owned),
            password: settings.password().map(str::to_owned),
            db: settings.db(),
        })
    }
}

/// What an error shows in place of a URL that cannot be used.
fn not_shown(url: &str) -> String {
    match SCHEMES.iter().find(|scheme| scheme_of(url) == Some(scheme)) {
        Some(scheme) => format!("{scheme}://… {NOT_SHOWN}"),
        None => NOT_SHOWN.to_owned(),
    }
}

fn scheme_of(url: &str) -> Option<&str> {
    url.split_once("://").map(|(scheme, _)| scheme)
}

/// Why a URL cannot be read.
fn reason(url: &str, cause: &RedisError) -> &'static str {
    let cause = cause.to_string();
    // By the beginning alone: the end of a message is where the quotation stands.
    let known = REASONS.iter().find(|(words, _)| cause.starts_with(words)).map(|(_, reason)| *reason);
    let is_redis = |scheme: &str| SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme));
    // A scheme that is not known may be the beginning of a password, so it is not shown.
    match scheme_of(url) {
        Some(scheme) if is_redis(scheme) && has_stray_at(url) => return STRAY_AT,
        _ => {}
    }
    known.unwrap_or_else(|| match scheme_of(url) {
        None => "missing scheme",
        Some("etcd" | "etcd+https") => {
            "unsupported scheme: EtcdLockProcessor::new of the crate dlock-consensus takes this URL"
        }
        Some("consul" | "consul+https") => {
            "unsupported scheme: ConsulLockProcessor::new of the crate dlock-consensus takes this URL"
        }
        Some("mongodb" | "mongodb+srv") => {
            "unsupported scheme: MongoLockProcessor::new of the crate dlock-mongodb takes this URL, and so does its dlock"
        }
        Some(scheme) if !is_redis(scheme) => "unsupported scheme",
        Some(_) => "the host or the port cannot be read",
    })
}

/// Whether an `@` stands behind the hosts, which end at the first `/`, `?` or `#`. A password with one of these characters that is not escaped
/// ends there, and the rest of it would be read as a path or as settings. The path of a socket may have an `@`.
fn has_stray_at(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    !scheme.ends_with("unix") && rest.find(['/', '?', '#']).is_some_and(|end| rest[end..].contains('@'))
}

/// Why a URL that can be read cannot be used.
fn fault(url: &str, place: &Place) -> Option<&'static str> {
    // From the first `?` or `#` on. A password with one of them that is not escaped ends there for the crate `redis`, and what follows it
    // would be read as settings, and the part before as a host.
    let (_, settings) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
    // The crate `redis` silently drops a setting that it does not know.
    let has_only = |known: &[&str]| {
        let name = |setting: &str| setting.split('=').next().unwrap_or_default().to_owned();
        let is_known = |name: &String| name.is_empty() || known.contains(&name.as_str());
        !settings.contains('#') && settings.trim_start_matches('?').split('&').map(name).all(|name| is_known(&name))
    };
    // Whatever is not refused here is shown when the server cannot be reached.
    match place {
        Place::Tcp { .. } if has_stray_at(url) => Some(STRAY_AT),
        // The crate `redis` decodes the login and not the host. So a `%` there is one of a login whose `@` was encoded, too.
        Place::Tcp { host, .. } if host.contains('%') => Some(
            "the host name has a `%` or a letter that is not ASCII: write user and password before a plain `@`, and such a name as xn--…",
        ),
        Place::Tcp { host, port, .. } if *port == 0 || host.contains('\0') => {
            Some("nobody can connect there: give a host name or address, and a port from 1 to 65535")
        }
        Place::Tcp { .. } if !has_only(&["protocol"]) => {
            Some("there is a setting after a `?` or `#` that is not known: leave it out, and write the database as /db")
        }
        Place::Unix(path) if names_password(&path.to_string_lossy()) => {
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

/// Whether a text contains a setting that names a password.
fn names_password(text: &str) -> bool {
    // Programs write these settings as they like; a path is shown in errors.
    let text = text.to_ascii_lowercase();
    ["pass=", "passwd=", "password="].iter().any(|name| text.contains(name))
}

fn is_socket_path(path: &Path) -> bool {
    #[cfg(unix)]
    // The standard library knows the limit of the platform: 108 bytes with a NUL at the end on Linux, less elsewhere.
    if std::os::unix::net::SocketAddr::from_pathname(path).is_err() {
        return false;
    }
    !path.as_os_str().is_empty()
}

impl Address {
    /// Returns the server's words with our user's name hidden wherever it is a word of its own: servers that `classify` does not know
    /// may name the user in other words than it expects. `default` is not hidden.
    pub(crate) fn hide_user(&self, words: &str) -> String {
        let Some(user) = self.user.as_deref().filter(|user| !user.is_empty() && *user != "default") else {
            return words.to_owned();
        };
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let (mut shown, mut rest) = (String::with_capacity(words.len()), words);
        while let Some(at) = rest.find(user) {
            // Byte offsets: a user's name is found whole, and so begins and ends between characters.
            let end = at + user.len();
            // The character before may lie in what was shown already: two occurrences may touch.
            let before = rest[..at].chars().next_back().or_else(|| shown.chars().next_back());
            // Only as a word of its own: a user `app` must not blank out half of `application`, or the message says nothing any more.
            let is_word = !before.is_some_and(is_part) && !rest[end..].starts_with(is_part);
            shown.push_str(&rest[..at]);
            shown.push_str(if is_word { HIDDEN } else { user });
            rest = &rest[end..];
        }
        shown + rest
    }

    /// Does as [`hide_user`](Self::hide_user) for an error made from a reply.
    pub(crate) fn hide(&self, mut error: Error) -> Error {
        // The kinds whose words may be a server's. All others are our own.
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
            Place::Service { name, .. } => write!(f, "service {}", OneLine(name)),
        }
    }
}

/// Without the login: a generator shows its store in its own `Debug`, and that ends up in logs.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}/{}", self.db)
    }
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/net/address.rs"]
mod tests;
