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
mod tests {
    use super::*;

    fn read(url: &str) -> (String, Vec<String>) {
        let service = parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        let shown = |address: &Address| {
            let login = [&address.user, &address.password].map(|word| word.as_deref().unwrap_or("-")).join(":");
            format!("{login}@{address}/{}", address.db)
        };
        (shown(&service.address), service.sentinels.iter().map(shown).collect())
    }

    #[test]
    fn urls_are_read() {
        for (url, servers, sentinels) in [
            ("redis+sentinel://h1/dlock", "-:-@service dlock/0", &["-:-@h1:26379/0"][..]),
            (
                "redis+sentinel://ann:s%40crt@h1:7000,h2,[::1]:7002/my%20service/3?sentinel_username=s&sentinel_password=p%26w",
                "ann:s@crt@service my service/3",
                &["s:p&w@h1:7000/0", "s:p&w@h2:26379/0", "s:p&w@[::1]:7002/0"],
            ),
            ("redis+sentinel://:s3crt@[::1]/x/?sentinel_password=p", "-:s3crt@service x/0", &["-:p@[::1]:26379/0"]),
            (
                "redis-sentinel://s3crt@h1,h2:1/2?sentinelMasterId=x",
                "-:s3crt@service x/2",
                &["-:-@h1:26379/0", "-:-@h2:1/0"],
            ),
            ("redis-sentinel://h1,h2/1#x", "-:-@service x/1", &["-:-@h1:26379/0", "-:-@h2:26379/0"]),
            ("redis-sentinel://a:b@h1?sentinelMasterId=x", "a:b@service x/0", &["-:-@h1:26379/0"]),
        ] {
            let read = read(url);
            assert_eq!(
                (read.0.as_str(), read.1.as_slice()),
                (servers, sentinels.iter().map(ToString::to_string).collect::<Vec<_>>().as_slice()),
                "{url}"
            );
        }
    }

    #[test]
    fn of_an_unusable_url_only_the_scheme_is_shown_and_the_reason() {
        for (url, reason) in [
            ("redis+sentinel://", "host"),
            ("redis+sentinel://h1", "no service"),
            ("redis+sentinel://ann:s3crt@h1", "no service"),
            ("redis+sentinel://ann:s3crt@h1/", "no service"),
            ("redis+sentinel://ann:s3crt@h1:x/dlock", "port"),
            ("redis+sentinel://ann:s3crt@h1:0/dlock", "port"),
            ("redis+sentinel://ann:s3crt@h1,/dlock", "host"),
            ("redis+sentinel://ann:s3crt@[h1]/dlock", "host"),
            ("redis+sentinel://ann:s3crt@::1/dlock", "port"),
            ("redis+sentinel://ann:s3/crt@h1/dlock", "%2F"),
            ("redis+sentinel://ann:s3?crt@h1/dlock", "%2F"),
            ("redis+sentinel://ann:s3%crt@h1/dlock", "%25"),
            ("redis+sentinel://s3crt@h1/dlock", "without a password"),
            ("redis+sentinel://ann:s3crt@h1/dlock/x", "not a number"),
            ("redis+sentinel://ann:s3crt@h1/dlock/1/2", "too many"),
            ("redis+sentinel://ann:s3crt@h1/dlock?db=1", "not known"),
            ("redis+sentinel://h1/dlock?sentinel_password=s3crt&sentinel_password=s3crt", "twice"),
            ("redis+sentinel://h1/dlock?sentinel_username=s3crt", "sentinel_password"),
            ("redis+sentinel://h1/dlock#s3crt", "`#`"),
            ("redis-sentinel://s3crt@h1/1", "sentinelMasterId"),
            #[cfg(not(feature = "tls"))]
            ("rediss+sentinel://ann:s3crt@h1/dlock", "feature `tls`"),
        ] {
            let error = parse(url).expect_err(url).to_string();
            assert!(error.contains(reason), "{url}: {error}");
            assert!(!error.contains("s3") && !error.contains("ann:") && error.contains("sentinel"), "{url}: {error}");
        }
    }
}
