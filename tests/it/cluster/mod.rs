//! A Redis Cluster, on real servers: who is found, how calls follow slots and nodes that move, and what is told meanwhile.

mod failing;
mod finding;
mod hanging;
mod limits;
mod lock;
mod many;
mod messages;
mod moving;
mod rights;
mod routing;
mod scripts;
mod slot_subscriptions;
mod successors;
#[cfg(feature = "tls")]
mod tls;
mod tokens;

use crate::support::cluster::{Cluster, client_of};
use crate::support::crew::{Member, eventually, spawn};
use crossbeam_channel::Receiver;
use redis_dlock::processor::{LockProcessor, WaitQueue};
use redis_dlock::{DLockConfig, DLockGenerator, DistributedReentrantLock, RedisLockProcessor};
use std::sync::Arc;
use std::time::Duration;

/// So long that neither a probe (lease/6) nor an extension comes within the time of a test.
const LEASE: Duration = Duration::from_secs(3600);

/// A client that knows one node.
fn generator(cluster: &Cluster) -> DLockGenerator {
    DLockGenerator::connect(&cluster.url(0)).unwrap()
}

/// The lock's target in the name that it has in the store.
fn lock_with(generator: &DLockGenerator, target: &str, lease: Duration) -> DistributedReentrantLock {
    generator.generate_with(DLockConfig::new("CLUSTER", target).with_lease(lease)).unwrap()
}

fn lock(generator: &DLockGenerator, target: &str) -> DistributedReentrantLock {
    lock_with(generator, target, LEASE)
}

/// A target of a lock whose key is on this node.
fn target_on(cluster: &Cluster, node: usize) -> String {
    let key = cluster.keys_on(node, |n| format!("DLOCK_CLUSTER_t{n}")).next().unwrap();
    key.strip_prefix("DLOCK_CLUSTER_").unwrap().to_owned()
}

/// How many connections a node has accepted. It is asked on a connection that was open before.
fn accepted(admin: &mut redis::Connection) -> u64 {
    let info: String = redis::cmd("INFO").arg("stats").query(admin).unwrap();
    info.lines().find_map(|line| line.strip_prefix("total_connections_received:")?.parse().ok()).unwrap()
}

/// A store that knows one node.
fn store(cluster: &Cluster) -> RedisLockProcessor {
    RedisLockProcessor::connect(&cluster.url(0)).unwrap()
}

/// A client whose store a test can ask what the client believes to hear.
struct Client {
    store: Arc<RedisLockProcessor>,
    generator: DLockGenerator,
    id: String,
}

impl Client {
    fn of(cluster: &Cluster) -> Self {
        Self::with(store(cluster))
    }

    fn with(store: RedisLockProcessor) -> Self {
        let store = Arc::new(store);
        let generator = DLockGenerator::new(Arc::clone(&store)).unwrap();
        let probe = lock(&generator, "whoami");
        let _held = probe.lock().unwrap();
        let id = client_of(&probe.inspect().unwrap().holder.unwrap().locker).to_owned();
        Self { store, generator, id }
    }

    fn queue(&self) -> &dyn WaitQueue {
        self.store.queue().unwrap()
    }

    /// Fails if the client believes to hear what it does not.
    #[track_caller]
    fn assert_hears<'a>(&self, cluster: &Cluster, targets: impl IntoIterator<Item = &'a String>) {
        let keys: Vec<_> = targets.into_iter().map(|target| format!("DLOCK_CLUSTER_{target}")).collect();
        cluster.assert_hears(&self.id, &keys, |key| self.queue().hears(&self.id, key));
    }
}

/// Threads that wait for one lock, each of another client. They stand in the store's queue in the order of the clients.
struct Queued {
    waiters: Vec<Member<()>>,
    served: Receiver<(usize, u64)>,
}

impl Queued {
    /// Has each wait for the lock, which somebody holds, do this while it holds it, and release it.
    fn of(target: &str, clients: &[Client], meanwhile: impl Fn() + Clone + Send + 'static) -> Self {
        let (sender, served) = crossbeam_channel::unbounded();
        let wait = |(n, client): (usize, &Client)| {
            let (lock, sender, meanwhile) = (lock(&client.generator, target), sender.clone(), meanwhile.clone());
            let seen = lock.clone();
            let waiter = spawn(move || {
                let guard = lock.lock_owned().unwrap();
                sender.send((n, guard.fencing_token())).unwrap();
                meanwhile();
                guard.unlock().unwrap();
            });
            eventually("it waits in the store's queue", || seen.inspect().unwrap().waiting == n as u64 + 1);
            waiter
        };
        Self { waiters: clients.iter().enumerate().map(wait).collect(), served }
    }

    /// Waits until all have had the lock. Returns who had it when, with their tokens, which must rise.
    #[track_caller]
    fn all_served(self) -> Vec<usize> {
        self.waiters.into_iter().for_each(Member::join);
        let (order, tokens): (Vec<_>, Vec<_>) = self.served.try_iter().unzip();
        assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?} in {order:?}");
        order
    }
}
