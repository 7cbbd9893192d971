//! The public type of the store, and its builder.

use super::client::ConsulClient;
use super::scope::Scope;
use crate::public::{certificates, forward_to_store};
use crate::server::{Server, body};
use crate::settings::StoreSettings;
use crate::store::ConsensusStore;
use crate::timing::consul::SHORTEST;
use redis_dlock::Error;
use redis_dlock::port::{Directory, Limit, LockProcessor, Outcome, Request, StoreLimits, WaitQueue};
use std::sync::Arc;
use std::time::Duration;
use ureq::http::Method;

/// The names of the parameters of a URL.
const PARAMETERS: [&str; 4] = {
    let [datacenter, namespace, partition] = Scope::PARAMETERS;
    [datacenter, namespace, partition, SHARE_SESSIONS]
};
const SHARE_SESSIONS: &str = "share_sessions";

/// The port that Consul uses unless it is told another one.
const PORT: u16 = 8500;

/// A store on Consul 1.10 or newer (feature `consul`). A lock survives the death of a server for as long as a majority of them is alive.
///
/// The lock of a key is that of `consul lock dlock/{key}` and of `LockKey("dlock/{key}/.lock")` in Go's package `api`: both exclude each other.
/// Another program's lock is not in our queue; it gets the key when nobody of ours waits.
///
/// A lease is from 10 s (Consul's setting `session_ttl_min`) to 19 h. Consul frees the lock of a dead holder after up to two and a half leases: it
/// promises to keep a session for its time to live, and takes up to twice that time. Then the lock's
/// [lock-delay](redis_dlock::DLockConfig::with_lock_delay) begins. The sessions belong to the node `dlock` of the catalog, which the client
/// registers, and have no checks. So the death of an agent or a server ends none. A token needs the right to register that node; [the crate's
/// page](crate#the-sessions-of-consul) says what happens without it.
///
/// ```no_run
/// use dlock_consensus::ConsulLockProcessor;
/// use redis_dlock::{DLockConfig, DLockGenerator};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), redis_dlock::Error> {
/// // The servers have `session_ttl_min = "5s"`, so leases may be that short.
/// let servers = ConsulLockProcessor::builder("consul://h1,h2,h3/team")?.session_ttl_min(Duration::from_secs(5)).build()?;
/// let generator = DLockGenerator::new(servers)?;
/// let lock = generator.generate_with(DLockConfig::new("EXPORT", "nightly").with_lease(Duration::from_secs(5)))?;
/// lock.lock()?.unlock()
/// # }
/// ```
#[derive(Clone)]
pub struct ConsulLockProcessor {
    store: Arc<ConsensusStore>,
    builder: Arc<ConsulBuilder>,
}

impl ConsulLockProcessor {
    /// Makes a store on the servers or agents of a URL:
    /// `consul://[token@]host[:8500][,host[:8500]…][/prefix][?dc=…&ns=…&partition=…&share_sessions=…]`, or `consul+https://…` with the feature
    /// `tls`. In place of a host there may be the path of a Unix socket, with each `/` as `%2F`. The prefix is `dlock` unless the URL names
    /// another. The next server is asked if one does not answer. What is no letter or digit in a token is written as `%XX`.
    ///
    /// It connects with the first request, and does not block, but to read the platform's root certificates.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if the URL cannot be used.
    pub fn new(url: &str) -> Result<Self, Error> {
        Self::builder(url)?.build()
    }

    /// Returns a builder for a store on the servers of a URL.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if the URL cannot be used.
    pub fn builder(url: &str) -> Result<ConsulBuilder, Error> {
        let settings = StoreSettings::new(url, "consul", PORT, &PARAMETERS)?;
        if matches!(settings.url.login, Some((_, Some(_)))) {
            let hint = "write the token alone before the host: token@host";
            return Err(Error::invalid_config("URL", "consul://…", hint));
        }
        let scope = Scope::of(&settings.url.parameters);
        let given = settings.url.parameters.iter().find(|(name, _)| name == SHARE_SESSIONS);
        let count = |(_, value): &(String, String)| {
            let odd = |_| Error::invalid_config("URL", value.clone(), "share_sessions is a number of locks");
            value.parse().map_err(odd)
        };
        let most_own_sessions = given.map_or(Ok(usize::MAX), count)?;
        Ok(ConsulBuilder { settings, session_ttl_min: SHORTEST, most_own_sessions, scope })
    }

    /// Returns the prefix of all entries, with a slash at its end.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.builder.settings.url.root
    }

    /// Returns the servers or agents of the URL, each on connections of its own, for a tool that examines them. It does not connect.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] as [`ConsulBuilder::build`].
    pub fn servers(&self) -> Result<Vec<Server>, Error> {
        let server = |address: &String| {
            let client = self.builder.client(std::slice::from_ref(address))?;
            let ask = move |path: &str, text: &str, deadline| {
                let method = if text.is_empty() { Method::GET } else { Method::PUT };
                let reply = client.call(method, path, &body(text)?, true, deadline)?;
                Ok(reply.map(|reply| reply.body).unwrap_or_default().to_string())
            };
            Ok(Server::new(address, ask))
        };
        self.builder.settings.url.servers.iter().map(server).collect()
    }
}

forward_to_store!(ConsulLockProcessor);

/// The settings of a [`ConsulLockProcessor`].
#[derive(Clone, Debug)]
pub struct ConsulBuilder {
    settings: StoreSettings,
    session_ttl_min: Duration,
    most_own_sessions: usize,
    scope: Scope,
}

impl ConsulBuilder {
    /// Sets what the servers have as `session_ttl_min`: the shortest lease. Defaults to 10 s, as Consul does.
    #[must_use]
    pub fn session_ttl_min(mut self, ttl: Duration) -> Self {
        self.session_ttl_min = ttl;
        self
    }

    /// Has long holds of a client share a session if more than `above` of them have the same lease and lock-delay: `share_sessions` in the URL. One
    /// request then renews them all. Defaults to `usize::MAX`, which is never: each lock has a session of its own.
    ///
    /// 8 is sensible, because the store renews as many sessions at once anyway. With 0 even a single lock is moved, which costs three writes and
    /// saves no request.
    ///
    /// [The crate's page](crate#locks-that-share-a-session) says what this costs. It is for programs that hold hundreds of locks for many leases.
    #[must_use]
    pub fn share_sessions(mut self, above: usize) -> Self {
        self.most_own_sessions = above;
        self
    }

    /// Sets the datacenter whose servers keep the locks: `dc` in the URL. Defaults to that of the agent or server that is asked.
    #[must_use]
    pub fn datacenter(mut self, name: impl Into<String>) -> Self {
        self.scope.datacenter = Some(name.into());
        self
    }

    /// Sets the namespace of the locks: `ns` in the URL. Only Consul Enterprise has namespaces; any other Consul refuses the first request, and the
    /// error says why. Defaults to that of the token.
    #[must_use]
    pub fn namespace(mut self, name: impl Into<String>) -> Self {
        self.scope.namespace = Some(name.into());
        self
    }

    /// Sets the admin partition of the locks: `partition` in the URL. Only Consul Enterprise has partitions, too. Defaults to that of the token.
    #[must_use]
    pub fn partition(mut self, name: impl Into<String>) -> Self {
        self.scope.partition = Some(name.into());
        self
    }

    /// Sets the token in place of that of the URL. A token from a file then needs no encoding for the URL, and appears nowhere that the URL is shown.
    /// Defaults to that of the URL, or to none. Consul treats a request without a token as one of its anonymous token.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.settings.url.login = Some((token.into(), None));
        self
    }

    /// Makes the store. It connects with the first request. Does not block, but to read the platform's root certificates.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for certificates that cannot be used, for certificates together with a URL that does not encrypt, and for a
    /// datacenter, namespace or partition that is no name.
    pub fn build(self) -> Result<ConsulLockProcessor, Error> {
        let client = Arc::new(self.client(&self.settings.url.servers)?);
        let store = Arc::new(ConsensusStore::new(Arc::new(client), &self.settings.url.root));
        Ok(ConsulLockProcessor { store, builder: Arc::new(self) })
    }

    /// Makes a client of some of the servers.
    fn client(&self, servers: &[String]) -> Result<ConsulClient, Error> {
        let token = self.settings.url.login.clone().map(|(token, _)| token);
        self.scope.check()?;
        let http = self.settings.http_of(servers)?;
        let mut client = ConsulClient::new(http, token, self.session_ttl_min, self.scope.clone());
        client.most_own_sessions = self.most_own_sessions;
        Ok(client)
    }
}

certificates!(ConsulBuilder);
