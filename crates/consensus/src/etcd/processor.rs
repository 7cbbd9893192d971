//! What a program makes.

use super::client::{Client, Login};
use crate::public::{certificates, forward_to_store};
use crate::settings::Settings;
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
}

impl EtcdLockProcessor {
    /// Makes a store on the servers of a URL: `etcd://[user:password@]host[:2379][,host[:2379]…][/prefix]`, or `etcd+https://…` with the
    /// feature `tls`. The prefix is `dlock` unless the URL names another. All servers are of one cluster; the next one is asked if one does not
    /// answer. What is no letter or digit in a user or password is written as `%XX`.
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
        let settings = Settings::new(url, "etcd", PORT)?;
        if matches!(settings.url.login, Some((_, None))) {
            let hint = "write the password behind the user: user:password@host";
            return Err(Error::invalid_config("URL", "etcd://…", hint));
        }
        Ok(EtcdBuilder { settings })
    }
}

forward_to_store!(EtcdLockProcessor);

/// The settings of an [`EtcdLockProcessor`].
#[derive(Clone, Debug)]
pub struct EtcdBuilder {
    settings: Settings,
}

impl EtcdBuilder {
    /// Makes the store. It connects with the first request. Does not block, but to read the platform's root certificates.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for certificates that cannot be used, and for certificates together with a URL that does not encrypt.
    pub fn build(self) -> Result<EtcdLockProcessor, Error> {
        let http = self.settings.http()?;
        let url = self.settings.url;
        let login = url.login.and_then(|(user, password)| Some(Login { user, password: password? }));
        let client = Arc::new(Client::new(http, login));
        Ok(EtcdLockProcessor { store: Arc::new(ConsensusStore::new(Arc::new(client), &url.root)) })
    }
}

certificates!(EtcdBuilder);
