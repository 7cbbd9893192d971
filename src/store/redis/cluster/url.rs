//! The URL of a Cluster:
//!
//! ```text
//! redis+cluster://[[user]:password@]host[:6379][,host…][/0]
//! ```
//!
//! `rediss` in place of `redis` means TLS to all nodes. The hosts are nodes by which the client finds the others; one is enough while it
//! answers. A Cluster has one database. As with other URLs, nothing of one that cannot be used is shown, except its scheme.

use crate::error::Error;
use crate::store::redis::net::address::{Address, NOT_SHOWN, Place};
use crate::store::redis::net::hosts::{decode, host_and_port};

const PORT: u16 = 6379;

/// The schemes: whether each means TLS.
const SCHEMES: [(&str, bool); 2] = [("redis+cluster", false), ("rediss+cluster", true)];

const FORM: &str = "write redis+cluster://[user:password@]host[:6379][,host…]";

/// Returns `true` if the URL names nodes of a Cluster.
pub(crate) fn is_cluster(url: &str) -> bool {
    scheme_of(url).is_some()
}

fn scheme_of(url: &str) -> Option<(&'static str, bool)> {
    let (scheme, _) = url.split_once("://")?;
    SCHEMES.into_iter().find(|(name, _)| *name == scheme)
}

/// Reads the URL of a Cluster. Returns its seeds, each with the login for all nodes; there is at least one.
///
/// # Errors
///
/// [`Error::InvalidConfig`], which shows nothing of the URL except its scheme.
pub(crate) fn parse(url: &str) -> Result<Vec<Address>, Error> {
    let Some((scheme, tls)) = scheme_of(url) else {
        return Err(Error::invalid_config("URL", NOT_SHOWN, FORM));
    };
    let invalid = |hint: &str| Error::invalid_config("URL", format!("{scheme}://… {NOT_SHOWN}"), hint);
    if tls && cfg!(not(feature = "tls")) {
        return Err(invalid("for TLS enable the feature `tls` of the crate redis-dlock"));
    }
    let rest = &url[scheme.len() + "://".len()..];
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if path.contains('@') {
        return Err(invalid(
            "there is an `@` after a `/`, `?` or `#`: write %2F, %3F, %23 and %40 for those of a password",
        ));
    }
    if path.contains(['?', '#']) {
        return Err(invalid("there is something after a `?` or `#`: leave it out"));
    }
    let db = path.trim_matches('/');
    if !db.is_empty() && db.parse() != Ok(0_u32) {
        let hint = "a Cluster has only the database 0: leave the database out";
        return Err(match db.parse::<u32>() {
            // A number behind the hosts is a database, and no part of a login.
            Ok(db) => Error::invalid_config("database", db.to_string(), hint),
            Err(_) => invalid(hint),
        });
    }
    let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let decoded =
        |text: &str| decode(text).ok_or_else(|| invalid("there is a `%` that encodes no UTF-8: write %25 for a `%`"));
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (decoded(user)?, Some(decoded(password)?)),
        None => (decoded(login)?, None),
    };
    if password.is_none() && !user.is_empty() {
        return Err(invalid("there is a user without a password: write user:password@"));
    }
    let user = Some(user).filter(|user| !user.is_empty());
    let mut seeds = Vec::new();
    for host in hosts.split(',') {
        let (host, port) =
            host_and_port(host, PORT).ok_or_else(|| invalid(&format!("a host or a port cannot be read; {FORM}")))?;
        let place = Place::Tcp { host, port, tls };
        seeds.push(Address { place, user: user.clone(), password: password.clone(), db: 0 });
    }
    Ok(seeds)
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/cluster/url.rs"]
mod tests;
