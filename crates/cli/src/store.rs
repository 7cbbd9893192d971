//! The store where the locks are, of whichever kind the URL says, and the connection to it.

use crate::status::say;
use crate::timing;
#[cfg(feature = "consul")]
use dlock_consensus::{ConsulBuilder, ConsulLockProcessor};
#[cfg(feature = "etcd")]
use dlock_consensus::{EtcdBuilder, EtcdLockProcessor};
#[cfg(any(feature = "consul", feature = "etcd"))]
use redis_dlock::port::Operations;
use redis_dlock::port::{LockProcessor, StoreLimits};
use redis_dlock::{DLockGenerator, Error, GeneratorBuilder, RedisBuilder, RedisLockProcessor};
use std::thread;
use std::time::{Duration, Instant};

/// The name of a lock that nobody has. To look at it shows whether a store answers.
#[cfg(any(feature = "consul", feature = "etcd"))]
const NOBODYS: &str = "DLOCK_dlock_hello";

/// How a store is reached.
#[derive(Clone, Debug)]
pub(crate) enum Builder {
    Redis(Box<RedisBuilder>),
    #[cfg(feature = "etcd")]
    Etcd(EtcdBuilder),
    #[cfg(feature = "consul")]
    Consul(ConsulBuilder),
}

/// A store that has answered.
#[derive(Debug)]
pub(crate) enum Store {
    Redis(RedisLockProcessor),
    #[cfg(feature = "etcd")]
    Etcd(EtcdLockProcessor),
    #[cfg(feature = "consul")]
    Consul(ConsulLockProcessor),
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
        }
    }

    /// Connects. A server that is away may come back, so it is waited for, until the end if there is one, and that is said once.
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

#[cfg(any(feature = "consul", feature = "etcd"))]
fn answering<S: LockProcessor>(store: S) -> Result<S, Error> {
    store.inspect(NOBODYS, timing::ANSWERS_WITHIN).map(|_| store)
}

impl Store {
    /// What the store can keep to.
    pub(crate) fn limits(&self) -> StoreLimits {
        match self {
            Self::Redis(store) => store.limits(),
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => store.limits(),
            #[cfg(feature = "consul")]
            Self::Consul(store) => store.limits(),
        }
    }

    pub(crate) fn generator(self, builder: GeneratorBuilder) -> Result<DLockGenerator, Error> {
        match self {
            Self::Redis(store) => builder.build(store),
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => builder.build(store),
            #[cfg(feature = "consul")]
            Self::Consul(store) => builder.build(store),
        }
    }
}
