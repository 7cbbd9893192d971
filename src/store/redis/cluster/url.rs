//! The URL of a Cluster:
//!
//! ```text
//! redis+cluster://[[user]:password@]host[:6379][,host…][/0]
//! ```
//!
//! `rediss` in place of `redis` means TLS to all nodes. The hosts are nodes by which the client finds the others; one is enough while it
//! answers. A Cluster has one database. As with other URLs, nothing of one that cannot be used is shown, except its scheme.

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
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        for (url, seeds) in [
            ("redis+cluster://h1", &["-:-@h1:6379"][..]),
            ("redis+cluster://h1/", &["-:-@h1:6379"]),
            ("redis+cluster://h1:7000,h2/0", &["-:-@h1:7000", "-:-@h2:6379"]),
            ("redis+cluster://ann:s%40crt@h1,[::1]:7001", &["ann:s@crt@h1:6379", "ann:s@crt@[::1]:7001"]),
            ("redis+cluster://:s3crt@[::1]", &["-:s3crt@[::1]:6379"]),
        ] {
            let shown = |address: &Address| {
                let login = [&address.user, &address.password].map(|word| word.as_deref().unwrap_or("-")).join(":");
                format!("{login}@{address}")
            };
            let read = parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(read.iter().map(shown).collect::<Vec<_>>(), seeds, "{url}");
        }
    }

    #[test]
    fn of_an_unusable_url_only_the_scheme_is_shown_and_the_reason() {
        for (url, reason) in [
            ("redis+cluster://", "host"),
            ("redis+cluster://ann:s3crt@h1,", "host"),
            ("redis+cluster://ann:s3crt@h1:x", "port"),
            ("redis+cluster://ann:s3crt@h1:0", "port"),
            ("redis+cluster://ann:s3crt@[h1]", "host"),
            ("redis+cluster://ann:s3/crt@h1", "%2F"),
            ("redis+cluster://ann:s3?crt@h1", "%2F"),
            ("redis+cluster://ann:s3%crt@h1", "%25"),
            ("redis+cluster://s3crt@h1", "without a password"),
            ("redis+cluster://ann:s3crt@h1/x1", "database 0"),
            ("redis+cluster://ann:s3crt@h1/x", "database 0"),
            ("redis+cluster://ann:s3crt@h1/0/1", "database 0"),
            ("redis+cluster://h1?s3crt=1", "leave it out"),
            ("redis+cluster://h1#s3crt", "leave it out"),
            #[cfg(not(feature = "tls"))]
            ("rediss+cluster://ann:s3crt@h1", "feature `tls`"),
        ] {
            let error = parse(url).expect_err(url).to_string();
            assert!(error.contains(reason), "{url}: {error}");
            assert!(!error.contains("s3") && !error.contains("ann:") && error.contains("cluster"), "{url}: {error}");
        }
    }

    #[test]
    fn a_database_is_named_by_its_number() {
        let error = parse("redis+cluster://ann:s3crt@h1,h2/15").expect_err("not 0").to_string();
        assert!(error.contains("database \"15\"") && error.contains("leave the database out"), "{error}");
        assert!(!error.contains("s3crt"), "{error}");
    }
}
