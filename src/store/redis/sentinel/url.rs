//! The URL of a service that Sentinels watch. Users of other clients know these forms:
//!
//! ```text
//! redis+sentinel://[user[:password]@]host[:26379][,host…]/service[/db][?sentinel_username=…&sentinel_password=…]
//! redis-sentinel://[password@]host[:26379][,host…][/db]?sentinelMasterId=service        (Lettuce; also #service)
//! ```
//!
//! `rediss` in place of `redis` means TLS to Sentinels and servers. User and password before the `@` are those of the servers. As with
//! other URLs, nothing of one that cannot be used is shown, except its scheme.

use crate::error::Error;
use crate::store::redis::net::address::{Address, Place};
use crate::store::redis::net::url::{HostsUrl, Kind};

/// The port of Sentinels.
const PORT: u16 = 26379;

const FORM: &str = "write redis+sentinel://[user:password@]host[:26379][,host…]/service[/db]";

const OURS: Kind =
    Kind { schemes: ["redis+sentinel", "rediss+sentinel"], port: PORT, lone_password: false, form: FORM };

const LETTUCE: Kind =
    Kind { schemes: ["redis-sentinel", "rediss-sentinel"], port: PORT, lone_password: true, form: FORM };

/// A service that Sentinels watch.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    /// Its name in the place of an address, with the login for its servers.
    pub(crate) address: Address,
    /// The configured Sentinels, with the login for them.
    pub(crate) sentinels: Vec<Address>,
}

/// What a URL sets behind the `?`, and behind the `#`.
#[derive(Default)]
struct Settings {
    sentinel_user: Option<String>,
    sentinel_password: Option<String>,
    /// The name of the service, where it is no part of the path.
    service: Option<String>,
}

/// Returns `true` if the URL names Sentinels.
pub(crate) fn is_sentinel(url: &str) -> bool {
    [OURS, LETTUCE].iter().any(|kind| kind.scheme_of(url).is_some())
}

/// Reads the URL of a service.
///
/// # Errors
///
/// [`Error::InvalidConfig`], which shows nothing of the URL except its scheme.
pub(crate) fn parse(url: &str) -> Result<Service, Error> {
    let is_lettuce = LETTUCE.scheme_of(url).is_some();
    let url = HostsUrl::read(url, if is_lettuce { &LETTUCE } else { &OURS })?;
    let settings = Settings::read(&url, is_lettuce)?;
    let path = url.path.trim_matches('/');
    let (name, db, missing) = if is_lettuce {
        (settings.service, path, "there is no sentinelMasterId after a `?`")
    } else {
        let (name, db) = path.split_once('/').unwrap_or((path, ""));
        (Some(url.decoded(name)?), db, "there is no service after the hosts")
    };
    let Some(name) = name.filter(|name| !name.is_empty()) else { return Err(url.misses(missing)) };
    if db.contains('/') {
        return Err(url.misses("there is a `/` too many"));
    }
    let db = if db.is_empty() { Ok(0) } else { db.parse::<u32>() };
    let db = i64::from(db.map_err(|_| url.invalid("the database is not a number"))?);
    let HostsUrl { user, password, hosts, tls, .. } = url;
    let sentinel = |place| Address {
        place,
        user: settings.sentinel_user.clone(),
        password: settings.sentinel_password.clone(),
        db: 0,
    };
    let sentinels = hosts.into_iter().map(sentinel).collect();
    Ok(Service { address: Address { place: Place::Service { name, tls }, user, password, db }, sentinels })
}

impl Settings {
    fn read(url: &HostsUrl<'_>, is_lettuce: bool) -> Result<Self, Error> {
        let mut read = Self::default();
        for setting in url.query.unwrap_or_default().split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let slot = match name {
                "sentinel_username" if !is_lettuce => &mut read.sentinel_user,
                "sentinel_password" if !is_lettuce => &mut read.sentinel_password,
                "sentinelMasterId" if is_lettuce => &mut read.service,
                _ => return Err(url.invalid("there is a setting after the `?` that is not known: leave it out")),
            };
            if slot.replace(url.decoded(value)?).is_some() {
                return Err(url.invalid("there is a setting twice after the `?`"));
            }
        }
        match url.fragment {
            Some(_) if !is_lettuce => return Err(url.invalid("there is something after a `#`: leave it out")),
            Some(fragment) if read.service.replace(url.decoded(fragment)?).is_some() => {
                return Err(url.invalid("the service is named twice"));
            }
            _ => {}
        }
        if read.sentinel_user.is_some() && read.sentinel_password.is_none() {
            return Err(url.invalid("there is a sentinel_username without a sentinel_password: give both, or neither"));
        }
        Ok(read)
    }
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
