//! The URL of a service that Sentinels watch. Users of other clients know these forms:
//!
//! ```text
//! redis+sentinel://[user[:password]@]host[:26379][,host…]/service[/db][?sentinel_username=…&sentinel_password=…]
//! redis-sentinel://[password@]host[:26379][,host…][/db]?sentinelMasterId=service        (Lettuce; also #service)
//! ```
//!
//! `rediss` in place of `redis` means TLS to Sentinels and servers. User and password before the `@` are those of the servers. The crate
//! `redis` reads no such URL, and the crate `url` refuses several hosts, so it is read here. As with other URLs, nothing of one that cannot
//! be used is shown, except its scheme.

use crate::error::Error;
use crate::store::redis::net::address::{Address, NOT_SHOWN, Place};
use crate::store::redis::net::hosts::{decode, host_and_port};

/// The port of Sentinels.
const PORT: u16 = 26379;

/// The scheme of each form: whether it means TLS, and whether it is Lettuce's.
const SCHEMES: [(&str, bool, bool); 4] = [
    ("redis+sentinel", false, false),
    ("rediss+sentinel", true, false),
    ("redis-sentinel", false, true),
    ("rediss-sentinel", true, true),
];

const FORM: &str = "write redis+sentinel://[user:password@]host[:26379][,host…]/service[/db]";

/// A service that Sentinels watch.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    /// Its name in the place of an address, with the login for its servers.
    pub(crate) address: Address,
    /// The configured Sentinels, with the login for them.
    pub(crate) sentinels: Vec<Address>,
}

/// Returns `true` if the URL names Sentinels.
pub(crate) fn is_sentinel(url: &str) -> bool {
    scheme_of(url).is_some()
}

fn scheme_of(url: &str) -> Option<(&'static str, bool, bool)> {
    let (scheme, _) = url.split_once("://")?;
    SCHEMES.into_iter().find(|(name, _, _)| *name == scheme)
}

/// Reads the URL of a service.
///
/// # Errors
///
/// [`Error::InvalidConfig`], which shows nothing of the URL except its scheme.
pub(crate) fn parse(url: &str) -> Result<Service, Error> {
    let Some((scheme, tls, is_lettuce)) = scheme_of(url) else {
        return Err(Error::invalid_config("URL", NOT_SHOWN, FORM));
    };
    let invalid = |hint: &str| Error::invalid_config("URL", format!("{scheme}://… {NOT_SHOWN}"), hint);
    if tls && cfg!(not(feature = "tls")) {
        return Err(invalid("for TLS enable the feature `tls` of the crate redis-dlock"));
    }
    let rest = &url[scheme.len() + "://".len()..];
    let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if rest.contains('@') {
        return Err(invalid(
            "there is an `@` after a `/`, `?` or `#`: write %2F, %3F, %23 and %40 for those of a password",
        ));
    }
    let (rest, fragment) = rest.split_once('#').map_or((rest, None), |(rest, fragment)| (rest, Some(fragment)));
    if fragment.is_some() && !is_lettuce {
        return Err(invalid("there is something after a `#`: leave it out"));
    }
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));

    let decoded =
        |text: &str| decode(text).ok_or_else(|| invalid("there is a `%` that encodes no UTF-8: write %25 for a `%`"));
    let (mut sentinel_user, mut sentinel_password, mut named) = (None, None, None);
    for setting in query.split('&').filter(|setting| !setting.is_empty()) {
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        let slot = match name {
            "sentinel_username" if !is_lettuce => &mut sentinel_user,
            "sentinel_password" if !is_lettuce => &mut sentinel_password,
            "sentinelMasterId" if is_lettuce => &mut named,
            _ => return Err(invalid("there is a setting after the `?` that is not known: leave it out")),
        };
        if slot.replace(decoded(value)?).is_some() {
            return Err(invalid("there is a setting twice after the `?`"));
        }
    }
    if let Some(fragment) = fragment
        && named.replace(decoded(fragment)?).is_some()
    {
        return Err(invalid("the service is named twice"));
    }
    if sentinel_user.is_some() && sentinel_password.is_none() {
        return Err(invalid("there is a sentinel_username without a sentinel_password: give both, or neither"));
    }

    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (decoded(user)?, Some(decoded(password)?)),
        // Lettuce writes a password alone.
        None if is_lettuce && !login.is_empty() => (String::new(), Some(decoded(login)?)),
        None => (decoded(login)?, None),
    };
    if password.is_none() && !user.is_empty() {
        return Err(invalid("there is a user without a password: write user:password@"));
    }

    let mut segments = path.trim_start_matches('/').trim_end_matches('/').split('/');
    let service = if is_lettuce { named.unwrap_or_default() } else { decoded(segments.next().unwrap_or_default())? };
    if service.is_empty() {
        let hint =
            if is_lettuce { "there is no sentinelMasterId after a `?`" } else { "there is no service after the hosts" };
        return Err(invalid(&format!("{hint}; {FORM}")));
    }
    let db = match segments.next() {
        None | Some("") => 0,
        Some(db) => db.parse::<u32>().map_err(|_| invalid("the database is not a number"))?,
    };
    if segments.next().is_some() {
        return Err(invalid(&format!("there is a `/` too many; {FORM}")));
    }

    let mut sentinels = Vec::new();
    for host in hosts.split(',') {
        let (host, port) =
            host_and_port(host, PORT).ok_or_else(|| invalid(&format!("a host or a port cannot be read; {FORM}")))?;
        let place = Place::Tcp { host, port, tls };
        sentinels.push(Address { place, user: sentinel_user.clone(), password: sentinel_password.clone(), db: 0 });
    }
    let place = Place::Service { name: service, tls };
    let user = Some(user).filter(|user| !user.is_empty());
    Ok(Service { address: Address { place, user, password, db: i64::from(db) }, sentinels })
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/sentinel/url.rs"]
mod tests;
