//! Lock + unlock of tasks with this crate, and with each peer as its own documentation does it; a lease of 30 s.

use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::RedisLockProvider;
use redis::aio::MultiplexedConnection;
use redis_lock::LockAcrossOptions;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

const LEASE: Duration = Duration::from_secs(30);

/// A lock crate for tasks; what clones share is what its documentation shares.
pub trait Asynchronous: Clone + Send + Sync + 'static {
    fn pair(&self, key: &str) -> impl Future<Output = ()> + Send;
}

pub fn redlock(manager: &redlock::RedLock, key: &str) {
    let lock = manager.lock(key.as_bytes(), LEASE.as_millis() as usize).unwrap().expect("nobody else has the key");
    manager.unlock(&lock);
}

/// This crate, for tasks.
#[derive(Clone)]
pub struct Ours {
    pub generator: redis_dlock::DLockGenerator,
    /// Whether a task awaits the end of its hold, or drops the hold.
    pub awaits_release: bool,
}

impl Asynchronous for Ours {
    async fn pair(&self, key: &str) {
        let hold = self.generator.generate("BENCH", key).unwrap().hold_async().await.unwrap();
        if self.awaits_release { hold.release_async().await.unwrap() } else { drop(hold) }
    }
}

#[derive(Clone)]
pub struct Rslock(rslock::LockManager);

impl Rslock {
    pub async fn new(url: &str) -> Self {
        Self(rslock::LockManager::new(vec![url.to_owned()]))
    }
}

impl Asynchronous for Rslock {
    async fn pair(&self, key: &str) {
        let key = format!("rslock-{key}");
        let lock = self.0.lock(key.as_str(), LEASE).await.unwrap();
        self.0.unlock(&lock).await;
    }
}

#[derive(Clone)]
pub struct RedisLock(Arc<Mutex<MultiplexedConnection>>);

impl RedisLock {
    pub async fn new(url: &str) -> Self {
        let client = redis::Client::open(url).unwrap();
        Self(Arc::new(Mutex::new(client.get_multiplexed_async_connection().await.unwrap())))
    }
}

impl Asynchronous for RedisLock {
    async fn pair(&self, key: &str) {
        let options = LockAcrossOptions { ttl: LEASE, ..LockAcrossOptions::default() };
        redis_lock::lock_across(&[Arc::clone(&self.0)], key, async {}, options).await.unwrap();
    }
}

#[derive(Clone)]
pub struct Dist(Arc<RedisLockProvider>);

impl Dist {
    pub async fn new(url: &str) -> Self {
        Self(Arc::new(RedisLockProvider::new(url).await.unwrap()))
    }
}

impl Asynchronous for Dist {
    async fn pair(&self, key: &str) {
        let handle = self.0.create_lock(key).acquire(None).await.unwrap();
        handle.release().await.unwrap();
    }
}
