//! The URL of a Cluster:
//!
//! ```text
//! redis+cluster://[[user]:password@]host[:6379][,host…][/0]
//! ```
//!
//! `rediss` in place of `redis` means TLS to all nodes. The hosts are nodes by which the client finds the other nodes. One host is enough
//! while it answers. A Cluster has only database 0. As with other URLs, only the scheme of a URL that cannot be used is shown.

use crate::error::Error;
use crate::store::redis::net::address::Address;
use crate::store::redis::net::url::{HostsUrl, Kind};

const KIND: Kind = Kind {
    schemes: ["redis+cluster", "rediss+cluster"],
    port: 6379,
    lone_password: false,
    form: "write redis+cluster://[user:password@]host[:6379][,host…]",
};

/// Returns `true` if the URL names nodes of a Cluster.
pub(crate) fn is_cluster(url: &str) -> bool {
    KIND.scheme_of(url).is_some()
}

/// Reads the URL of a Cluster. Returns its seeds, each with the login for all nodes; there is at least one.
///
/// # Errors
///
/// [`Error::InvalidConfig`], which shows nothing of the URL except its scheme.
pub(crate) fn parse(url: &str) -> Result<Vec<Address>, Error> {
    let url = HostsUrl::read(url, &KIND)?;
    if url.query.is_some() || url.fragment.is_some() {
        return Err(url.invalid("there is something after a `?` or `#`: leave it out"));
    }
    let db = url.path.trim_matches('/');
    if !db.is_empty() && db.parse() != Ok(0_u32) {
        let hint = "a Cluster has only the database 0: leave the database out";
        return Err(match db.parse::<u32>() {
            // A number behind the hosts is a database, and no part of a login.
            Ok(db) => Error::invalid_config("database", db.to_string(), hint),
            Err(_) => url.invalid(hint),
        });
    }
    let HostsUrl { user, password, hosts, .. } = url;
    let seed = |place| Address { place, user: user.clone(), password: password.clone(), db: 0 };
    Ok(hosts.into_iter().map(seed).collect())
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/cluster/url.rs"]
mod tests;
