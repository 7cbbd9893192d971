//! What a program makes.

use super::client::{Client, Login};
use crate::error::Error;
use crate::store::processor::{
    AcquireOutcome, Claim, ExtendOutcome, Inspection, LockProcessor, Numbers, PollOutcome, ProbeOutcome,
    ReleaseOutcome, Settling, Status, StoreLimits, WaitQueue,
};
use crate::store::raft::store::RaftStore;
use crate::store::raft::url::StoreUrl;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The port that etcd uses unless it is told another one.
const PORT: u16 = 2379;

/// A store on etcd 3.4 or newer (feature `etcd`). A lock survives the death of a server for as long as a majority of them is alive.
///
/// The store talks JSON over HTTP to the client port of the servers. It keeps its entries below a prefix of its own, and touches nothing
/// else: locks of `etcdctl lock` and of the packages `concurrency` are others.
///
/// A lease is from 2 s up to the longest of the crate. A lock whose holder has died is free when its lease has ended, which etcd notices up
/// to a second later; the entry lives a quarter longer than the lease, in whole seconds. A new leader of the servers begins all leases anew.
#[derive(Clone)]
pub struct EtcdLockProcessor {
    store: Arc<RaftStore>,
}

impl EtcdLockProcessor {
    /// Makes a store on the servers of a URL: `etcd://[user:password@]host[:2379][,host[:2379]…][/prefix]`.
    /// The prefix is `dlock` unless the URL names another. All servers are of one cluster; the next one is asked if one does not
    /// answer. What is no letter or digit in a user or password is written as `%XX`.
    ///
    /// It connects with the first request, and does not block.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if the URL cannot be used.
    pub fn new(url: &str) -> Result<Self, Error> {
        let parsed = StoreUrl::parse(url, "etcd", PORT)?;
        let login = match parsed.login {
            Some((user, Some(password))) => Some(Login { user, password }),
            Some((_, None)) => {
                return Err(Error::invalid_config(
                    "URL",
                    "etcd://…",
                    "write the password behind the user: user:password@host",
                ));
            }
            None => None,
        };
        let client = Arc::new(Client::new(parsed.servers, login));
        Ok(Self { store: Arc::new(RaftStore::new(Arc::new(client), &parsed.root)) })
    }
}

impl fmt::Debug for EtcdLockProcessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdLockProcessor").field("store", &self.store).finish()
    }
}

impl LockProcessor for EtcdLockProcessor {
    fn acquire(&self, claim: &Claim<'_>, limit: Duration) -> Result<AcquireOutcome, Error> {
        self.store.acquire(claim, limit)
    }

    fn extend(&self, claim: &Claim<'_>, limit: Duration) -> Result<ExtendOutcome, Error> {
        self.store.extend(claim, limit)
    }

    fn release(&self, claim: &Claim<'_>, limit: Duration) -> Result<ReleaseOutcome, Error> {
        self.store.release(claim, limit)
    }

    fn inspect(&self, key: &str, limit: Duration) -> Result<Inspection, Error> {
        self.store.inspect(key, limit)
    }

    fn poll(&self, claim: &Claim<'_>, limit: Duration) -> Result<PollOutcome, Error> {
        self.store.poll(claim, limit)
    }

    fn probe(&self, claim: &Claim<'_>, limit: Duration) -> Result<ProbeOutcome, Error> {
        self.store.probe(claim, limit)
    }

    fn limits(&self) -> StoreLimits {
        self.store.limits()
    }

    fn status(&self) -> Status {
        self.store.status()
    }

    fn queue(&self) -> Option<&dyn WaitQueue> {
        self.store.queue()
    }

    fn numbers(&self) -> Option<&dyn Numbers> {
        self.store.numbers()
    }

    fn settling(&self) -> Option<&dyn Settling> {
        self.store.settling()
    }

    fn close(&self) {
        self.store.close();
    }
}
