//! The store of the URL, of any kind, and the connection to it.

use crate::message::say;
use crate::timing;
#[cfg(feature = "consul")]
use dlock_consensus::{ConsulBuilder, ConsulLockProcessor};
#[cfg(feature = "etcd")]
use dlock_consensus::{EtcdBuilder, EtcdLockProcessor};
use redis_dlock::port::{LockProcessor, Operations, StoreLimits};
use redis_dlock::{DLockGenerator, Error, GeneratorBuilder, RedisBuilder, RedisLockProcessor};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// A kind of store that this package does not know.
#[derive(Clone, Copy, Debug)]
pub struct OtherStore {
    /// The beginning of its URLs, up to the first `:` or `+`.
    pub scheme: &'static str,
    /// Makes a store from a URL. It need not connect.
    pub open: fn(url: &str) -> Result<Arc<dyn LockProcessor>, Error>,
}

/// The kinds that the program adds.
static OTHERS: OnceLock<&'static [OtherStore]> = OnceLock::new();

pub(crate) fn know(others: &'static [OtherStore]) {
    // A second call comes from nowhere.
    let _ = OTHERS.set(others);
}

/// Returns the kind of store with this scheme.
pub(crate) fn other(scheme: &str) -> Option<OtherStore> {
    OTHERS.get()?.iter().find(|other| other.scheme == scheme).copied()
}

/// The key of a lock that nobody has. A look at it shows whether a store answers.
const NOBODYS: &str = "DLOCK_dlock_hello";

/// The settings of a connection to a store.
#[derive(Clone, Debug)]
pub(crate) enum Builder {
    Redis(Box<RedisBuilder>),
    #[cfg(feature = "etcd")]
    Etcd(EtcdBuilder),
    #[cfg(feature = "consul")]
    Consul(ConsulBuilder),
    /// A kind of store and a URL, which may contain a password.
    Other(OtherStore, Secret),
}

/// A text that is not shown.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl Deref for Secret {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

/// A store that has answered.
#[derive(Debug)]
pub(crate) enum Store {
    Redis(RedisLockProcessor),
    #[cfg(feature = "etcd")]
    Etcd(EtcdLockProcessor),
    #[cfg(feature = "consul")]
    Consul(ConsulLockProcessor),
    Other(Arc<dyn LockProcessor>),
}

impl Builder {
    /// Connects once, and waits for the first answer.
    pub(crate) fn connect(&self) -> Result<Store, Error> {
        match self.clone() {
            Self::Redis(builder) => builder.connect().map(Store::Redis),
            #[cfg(feature = "etcd")]
            Self::Etcd(builder) => answering(builder.build()?).map(Store::Etcd),
            #[cfg(feature = "consul")]
            Self::Consul(builder) => answering(builder.build()?).map(Store::Consul),
            Self::Other(other, url) => answering((other.open)(&url)?).map(Store::Other),
        }
    }

    /// Connects. Waits for a server that is away, until `end` if there is one, and says so once.
    pub(crate) fn wait(&self, end: Option<Instant>) -> Result<Store, Error> {
        let mut pause = *timing::CONNECT_PAUSES.start();
        loop {
            let connected = self.connect();
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            match &connected {
                Err(error) if error.is_transient() && !left.is_zero() => {
                    if pause == *timing::CONNECT_PAUSES.start() {
                        say(&format!("{error}: waiting for the server"));
                    }
                    thread::sleep(pause.min(left));
                    pause = (pause * 2).min(*timing::CONNECT_PAUSES.end());
                }
                _ => return connected,
            }
        }
    }
}

fn answering<S: LockProcessor>(store: S) -> Result<S, Error> {
    store.inspect(NOBODYS, timing::ANSWERS_WITHIN).map(|_| store)
}

impl Store {
    /// Returns the limits of the store.
    pub(crate) fn limits(&self) -> StoreLimits {
        match self {
            Self::Redis(store) => store.limits(),
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => store.limits(),
            #[cfg(feature = "consul")]
            Self::Consul(store) => store.limits(),
            Self::Other(store) => store.limits(),
        }
    }

    /// Returns the store itself, for requests other than locks.
    pub(crate) fn shared(self) -> Arc<dyn LockProcessor> {
        match self {
            Self::Redis(store) => Arc::new(store),
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => Arc::new(store),
            #[cfg(feature = "consul")]
            Self::Consul(store) => Arc::new(store),
            Self::Other(store) => store,
        }
    }

    pub(crate) fn generator(self, builder: GeneratorBuilder) -> Result<DLockGenerator, Error> {
        builder.build(self.shared())
    }
}
