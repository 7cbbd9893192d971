//! The URL of a service that Sentinels watch. Users of other clients know these forms:
//!
//! ```text
//! redis+sentinel://[user[:password]@]host[:26379][,host…]/service[/db][?sentinel_username=…&sentinel_password=…]
//! redis-sentinel://[password@]host[:26379][,host…][/db]?sentinelMasterId=service        (Lettuce; also #service)
//! ```
//!
//! `rediss` in place of `redis` means TLS to Sentinels and servers. User and password before the `@` are those of the servers. As with other URLs,
//! only the scheme of a URL that cannot be used is shown.

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
struct SentinelSettings {
    sentinel_user: Option<String>,
    sentinel_password: Option<String>,
    /// The name of the service, where it is no part of the path.
    service: Option<String>,
}

/// Returns `true` if the URL names Sentinels.
pub(crate) fn is_sentinel(url: &str) -> bool {
    [OURS, LETTUCE].iter().any(|kind| kind.scheme_of(url).is_some())
}

/// Reads the URL of a service. Fails with [`Error::InvalidConfig`], which shows nothing of the URL except its scheme.
pub(crate) fn parse(url: &str) -> Result<Service, Error> {
    let is_lettuce = LETTUCE.scheme_of(url).is_some();
    let url = HostsUrl::read(url, if is_lettuce { &LETTUCE } else { &OURS })?;
    let settings = SentinelSettings::read(&url, is_lettuce)?;
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

impl SentinelSettings {
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
#[path = "../../../../tests/white_box/store/redis/sentinel/url.rs"]
mod tests;
