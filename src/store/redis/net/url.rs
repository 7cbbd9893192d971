//! The URLs that name several hosts, as Sentinels and the nodes of a Cluster are named:
//!
//! ```text
//! scheme://[[user]:password@]host[:port][,host…][/path][?name=value&…][#fragment]
//! ```
//!
//! The crate `redis` reads a URL of one server (`address.rs`), with the crate `url`, which refuses several hosts. So URLs of several hosts
//! are read here, for all kinds of them. A [`Kind`] says what distinguishes one kind from another. Each kind interprets its path, its
//! settings and its fragment itself.
//!
//! Of a URL that cannot be used only the scheme is shown, because it is not certain where its password is. A password that contains an
//! unencoded `/`, `?` or `#` ends the list of hosts too early. An `@` behind the hosts shows that, and is refused before any other part is
//! looked at.

use super::address::{NOT_SHOWN, Place, STRAY_AT};
use super::hosts::host_and_port;
use crate::error::Error;

/// What distinguishes one kind of URL.
#[derive(Debug)]
pub(crate) struct Kind {
    /// The scheme without TLS, and the one with TLS to all hosts.
    pub(crate) schemes: [&'static str; 2],
    /// The port of a host that names none.
    pub(crate) port: u16,
    /// Whether a login without a colon is a password, and not a user.
    pub(crate) lone_password: bool,
    /// A hint how such a URL is written.
    pub(crate) form: &'static str,
}

/// A URL, taken apart. It contains secrets.
pub(crate) struct HostsUrl<'u> {
    scheme: &'static str,
    form: &'static str,
    pub(crate) tls: bool,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// There is one at least.
    pub(crate) hosts: Vec<Place>,
    /// What stands between the hosts and a `?` or `#`. Nothing of it is decoded, and neither is what follows.
    pub(crate) path: &'u str,
    pub(crate) query: Option<&'u str>,
    pub(crate) fragment: Option<&'u str>,
}

impl Kind {
    /// Returns the scheme, and whether it means TLS, if the URL is of this kind.
    pub(crate) fn scheme_of(&self, url: &str) -> Option<(&'static str, bool)> {
        let (scheme, _) = url.split_once("://")?;
        let at = self.schemes.iter().position(|known| *known == scheme)?;
        Some((self.schemes[at], at == 1))
    }
}

impl<'u> HostsUrl<'u> {
    /// Takes a URL of this kind apart.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`], which shows nothing of the URL except its scheme.
    pub(crate) fn read(url: &'u str, kind: &Kind) -> Result<Self, Error> {
        let Some((scheme, tls)) = kind.scheme_of(url) else {
            return Err(Error::invalid_config("URL", NOT_SHOWN, kind.form));
        };
        let rest = &url[scheme.len() + "://".len()..];
        // The hosts end where a path, settings or a fragment begins, whichever comes first.
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (rest, fragment) = rest.split_once('#').map_or((rest, None), |(rest, fragment)| (rest, Some(fragment)));
        let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
        let (user, password, hosts) = (None, None, Vec::new());
        let mut read = Self { scheme, form: kind.form, tls, user, password, hosts, path, query, fragment };
        if tls && cfg!(not(feature = "tls")) {
            return Err(read.invalid("for TLS enable the feature `tls` of the crate redis-dlock"));
        }
        // A password with one of these characters that is not escaped ends there, and the rest of it would be read as a path and shown in
        // errors. An `@` behind them gives that away.
        if [Some(path), query, fragment].into_iter().flatten().any(|part| part.contains('@')) {
            return Err(read.invalid(STRAY_AT));
        }
        // The last `@`: a password may contain one, and a host may not.
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        read.read_login(login, kind)?;
        read.read_hosts(hosts, kind)?;
        Ok(read)
    }

    fn read_login(&mut self, login: &str, kind: &Kind) -> Result<(), Error> {
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            // Redis's own tools write a password without a user in front of the `@`. For stores whose tools do not, it is a user.
            None if kind.lone_password && !login.is_empty() => ("", Some(login)),
            None => (login, None),
        };
        self.user = Some(self.decoded(user)?).filter(|user| !user.is_empty());
        self.password = password.map(|password| self.decoded(password)).transpose()?;
        if self.user.is_some() && self.password.is_none() {
            return Err(self.invalid("there is a user without a password: write user:password@"));
        }
        Ok(())
    }

    fn read_hosts(&mut self, hosts: &str, kind: &Kind) -> Result<(), Error> {
        for host in hosts.split(',') {
            let Some((host, port)) = host_and_port(host, kind.port) else {
                return Err(self.invalid(&format!("a host or a port cannot be read; {}", self.form)));
            };
            self.hosts.push(Place::Tcp { host, port, tls: self.tls });
        }
        Ok(())
    }

    /// Decodes a part of the URL.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if it is not UTF-8.
    pub(crate) fn decoded(&self, text: &str) -> Result<String, Error> {
        decode(text).ok_or_else(|| self.invalid("there is a `%` that encodes no UTF-8: write %25 for a `%`"))
    }

    /// The error for a URL that cannot be used.
    pub(crate) fn invalid(&self, hint: &str) -> Error {
        Error::invalid_config("URL", format!("{}://… {NOT_SHOWN}", self.scheme), hint)
    }

    /// The same, with a hint how such a URL is written.
    pub(crate) fn misses(&self, what: &str) -> Error {
        self.invalid(&format!("{what}; {}", self.form))
    }
}

/// Decodes `%xx`.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'%' {
            let code = std::str::from_utf8(rest.get(..2)?).ok()?;
            // `from_str_radix` takes a sign, which is no digit.
            bytes.push(u8::from_str_radix(code, 16).ok().filter(|_| !code.starts_with('+'))?);
            rest = &rest[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}
