//! What a program makes.

use super::client::Client;
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

/// The port that Consul uses unless it is told another one.
const PORT: u16 = 8500;

/// The shortest time to live of a session that Consul accepts by default: its setting `session_ttl_min`.
const SHORTEST: Duration = Duration::from_secs(10);

/// A store on Consul 1.10 or newer (feature `consul`). A lock survives the death of a server for as long as a majority of them is alive.
///
/// The lock of a key is that of `consul lock dlock/{key}` and of `LockKey("dlock/{key}/.lock")` in Go's package `api`: both exclude each other.
/// Another program's lock is not in our queue; it gets the key when nobody of ours waits.
///
/// A lease is from 10 s (Consul's setting `session_ttl_min`) to 19 h. Consul frees a lock whose holder has died after up to two and a half
/// leases: it promises to keep a session for its time to live, and takes twice that time. The sessions have no lock-delay and no checks of
/// the node. Whoever takes the node of the agent or server that created a session out of the catalog ends the session, and the holder is told;
/// [the manual](crate::manual::stores) says when Consul does so by itself.
#[derive(Clone)]
pub struct ConsulLockProcessor {
    store: Arc<RaftStore>,
}

impl ConsulLockProcessor {
    /// Makes a store on the servers or agents of a URL: `consul://[token@]host[:8500][,host[:8500]…][/prefix]`.
    /// The prefix is `dlock` unless the URL names another. The next one is asked if one does not answer. What is no letter
    /// or digit in a token is written as `%XX`.
    ///
    /// It connects with the first request, and does not block.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if the URL cannot be used.
    pub fn new(url: &str) -> Result<Self, Error> {
        Self::with_session_ttl_min(url, SHORTEST)
    }

    /// Makes a store on servers with another setting `session_ttl_min`, which allows shorter leases.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_session_ttl_min(url: &str, session_ttl_min: Duration) -> Result<Self, Error> {
        let parsed = StoreUrl::parse(url, "consul", PORT)?;
        let token = match parsed.login {
            Some((_, Some(_))) => {
                return Err(Error::invalid_config(
                    "URL",
                    "consul://…",
                    "write the token alone before the host: token@host",
                ));
            }
            Some((token, None)) => Some(token),
            None => None,
        };
        let client = Arc::new(Client::new(parsed.servers, token, session_ttl_min));
        Ok(Self { store: Arc::new(RaftStore::new(Arc::new(client), &parsed.root)) })
    }
}

impl fmt::Debug for ConsulLockProcessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsulLockProcessor").field("store", &self.store).finish()
    }
}

impl LockProcessor for ConsulLockProcessor {
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
