//! The public type of the store, and its builder.

use super::client::{EtcdClient, Login};
use crate::public::{certificates, forward_to_store};
use crate::server::{Server, body};
use crate::settings::StoreSettings;
use crate::store::ConsensusStore;
use redis_dlock::Error;
use redis_dlock::port::{Directory, Limit, LockProcessor, Outcome, Request, StoreLimits, WaitQueue};
use std::sync::Arc;

/// The port that etcd uses unless it is told another one.
const PORT: u16 = 2379;

/// A store on etcd 3.4 or newer (feature `etcd`). A lock survives the death of a server for as long as a majority of them is alive.
///
/// The store talks JSON over HTTP to the client port of the servers. It keeps its entries below a prefix of its own, and touches nothing
/// else: locks of `etcdctl lock` and of the packages `concurrency` are others.
///
/// A lease is from 2 s up to the longest of the crate. A lock whose holder has died is free when its lease has ended, which etcd notices up
/// to a second later; the entry lives a quarter longer than the lease, in whole seconds. A new leader of the servers begins all leases again.
#[derive(Clone)]
pub struct EtcdLockProcessor {
    store: Arc<ConsensusStore>,
    settings: Arc<StoreSettings>,
}

impl EtcdLockProcessor {
    /// Makes a store on the servers of a URL: `etcd://[user:password@]host[:2379][,host[:2379]…][/prefix]`, or `etcd+https://…` with the
    /// feature `tls`. The prefix is `dlock` unless the URL names another. All servers are of one cluster; the next one is asked if one does not
    /// answer, or answers for another cluster. What is no letter or digit in a user or password is written as `%XX`.
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
    pub fn builder(url: &str) -> Result<EtcdBuilder, Error> {
        let settings = StoreSettings::new(url, "etcd", PORT, &[])?;
        if matches!(settings.url.login, Some((_, None))) {
            let hint = "write the password behind the user: user:password@host";
            return Err(Error::invalid_config("URL", "etcd://…", hint));
        }
        Ok(EtcdBuilder { settings })
    }

    /// Returns the prefix of all entries, with a slash at its end.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.settings.url.root
    }

    /// Returns the servers of the URL, each on connections of its own, for a tool that examines them. It does not connect.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] as [`EtcdBuilder::build`].
    pub fn servers(&self) -> Result<Vec<Server>, Error> {
        let server = |address: &String| {
            let client = client(&self.settings, std::slice::from_ref(address))?;
            let ask = move |path: &str, text: &str, deadline| {
                let answer = client.call(path, &body(text)?, true, deadline)?;
                Ok(answer.unwrap_or_default().to_string())
            };
            Ok(Server::new(address, ask))
        };
        self.settings.url.servers.iter().map(server).collect()
    }
}

/// Makes a client of some of the servers.
fn client(settings: &StoreSettings, servers: &[String]) -> Result<EtcdClient, Error> {
    let login = settings.url.login.clone();
    let login = login.and_then(|(user, password)| Some(Login { user, password: password? }));
    Ok(EtcdClient::new(settings.http_of(servers)?, login))
}

forward_to_store!(EtcdLockProcessor);

/// The settings of an [`EtcdLockProcessor`].
#[derive(Clone, Debug)]
pub struct EtcdBuilder {
    settings: StoreSettings,
}

impl EtcdBuilder {
    /// Makes the store. It connects with the first request. Does not block, but to read the platform's root certificates.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for certificates that cannot be used, and for certificates together with a URL that does not encrypt.
    pub fn build(self) -> Result<EtcdLockProcessor, Error> {
        let settings = Arc::new(self.settings);
        let client = Arc::new(client(&settings, &settings.url.servers)?);
        let store = Arc::new(ConsensusStore::new(Arc::new(client), &settings.url.root));
        Ok(EtcdLockProcessor { store, settings })
    }
}

certificates!(EtcdBuilder);
