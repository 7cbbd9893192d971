//! One fresh store, and the clients that meet in it. The time of the embedded one is moved by hand.

use super::crew::{HANG, Member, eventually, spawn};
use super::time::Time;
use super::watched::{Watch, Watched};
use crate::conformance::suite::{RedisStore, Store, take};
use redis_dlock::processor::Operations;
use redis_dlock::{
    CancelToken, DLockConfig, DLockGenerator, DistributedReentrantLock, GeneratorBuilder, LockProcessor, ManualClock,
    MemoryLockProcessor, RedisLockProcessor,
};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// A stall of the machine that may cost a lease of a second, or a look at it.
pub(crate) const STALL: Duration = Duration::from_millis(100);

/// The environment variable with the URLs of the masters of a cluster that the tests of one process share, one test at a time.
pub(crate) const ON_CLUSTER: &str = "DLOCK_TEST_CLUSTER";

/// A store, and what a test may do with it beside locking.
pub(crate) struct Lab {
    store: Box<dyn Store>,
    pub(crate) time: Time,
}

impl Lab {
    pub(crate) fn memory() -> Self {
        let clock = Arc::new(ManualClock::new());
        let time = Time::by_hand(clock.clone());
        Self { store: Box::new(Memory(MemoryLockProcessor::with_clock(clock), time.clone())), time }
    }

    /// A server of its own; with [`ON_CLUSTER`], the masters of that cluster.
    pub(crate) fn redis() -> Self {
        let store = match std::env::var(ON_CLUSTER) {
            Ok(masters) => {
                let masters: Vec<_> = masters.split(',').map(str::to_owned).collect();
                let seed = masters[0].replace("redis://", "redis+cluster://");
                RedisStore::on_cluster(seed, masters)
            }
            Err(_) => RedisStore::start(),
        };
        Self { store: Box::new(store), time: Time::default() }
    }

    /// Another way to the store.
    pub(crate) fn processor(&self) -> Arc<dyn LockProcessor> {
        self.store.processor()
    }

    /// What all clients in this store have in common.
    pub(crate) fn builder(&self) -> GeneratorBuilder {
        self.time.set(builder())
    }

    /// Another way to the store, and what is asked on it.
    pub(crate) fn watched(&self) -> (Watched, Arc<Watch>) {
        Watched::by(self.time.clone(), self.store.processor())
    }

    /// A new client.
    pub(crate) fn generator(&self) -> DLockGenerator {
        self.builder().build(Watched::unseen(self.store.processor())).unwrap()
    }

    /// A new client, and what it asks of the store.
    pub(crate) fn watched_generator(&self) -> (DLockGenerator, Arc<Watch>) {
        let (processor, watch) = self.watched();
        (self.builder().build(processor).unwrap(), watch)
    }

    /// A new client that hears no grant and so never stands in the store's queue, and what it asks of the store.
    pub(crate) fn deaf_generator(&self) -> (DLockGenerator, Arc<Watch>) {
        let (processor, watch) = self.watched();
        (self.time.builder().listener(false).build(processor).unwrap(), watch)
    }

    /// A new client that hears of grants already, and what it asks of the store.
    pub(crate) fn listening_generator(&self) -> (DLockGenerator, Arc<Watch>) {
        let (processor, watch) = self.watched();
        let processor: Arc<dyn LockProcessor> = Arc::new(processor);
        let generator = self.builder().build(Arc::clone(&processor)).unwrap();
        let lock = generator.generate("TEST", "to begin with").unwrap();
        let _guard = lock.lock().unwrap();
        let (other, cancel) = (lock.clone(), CancelToken::new());
        let token = cancel.clone();
        let waiter = spawn(move || other.lock_cancellable(&token).unwrap().is_some());
        eventually("the inbox is open", || watch.listening() == 1);
        // On a cluster an inbox hears of a key from when it has got ready for it.
        let holder = self.holder(lock.key()).expect("it is held").holder;
        let (client, queue) = (holder.rsplit_once('-').unwrap().0, processor.queue().expect("a queue"));
        eventually("it hears of the key of these tests", || {
            queue.get_ready_to_hear(client, config("x", 1000).unique_key(), HANG).is_ok()
        });
        cancel.cancel();
        assert!(!waiter.join());
        (generator, watch)
    }

    /// Waits for the end of a thread that gets the lock when another client unlocks. It gets the lock by a message while the clock stands still.
    /// Without messages it asks, for which time must pass: slowly, because the threads that hold the lock meanwhile unlock in real time, and their
    /// leases end by the clock.
    #[track_caller]
    pub(crate) fn join<T>(&self, member: Member<T>) -> T {
        if !is_listener_on() {
            self.time.until_soon("the end of a thread", || {
                thread::sleep(Duration::from_millis(1));
                member.is_finished()
            });
        }
        member.join()
    }

    /// `DEL`, behind everybody's back.
    pub(crate) fn delete(&self, key: &str) {
        assert!(self.store.delete(key), "{key} is not there");
    }

    /// `SET key value PX lease`, behind everybody's back.
    pub(crate) fn overwrite(&self, key: &str, value: &str, lease: Duration) {
        self.store.overwrite(key, value, Some(lease));
    }

    /// Who holds a key, by a client that knows nothing else.
    pub(crate) fn holder(&self, key: &str) -> Option<Held> {
        let processor = self.store.processor();
        let found = processor.inspect(key, processor.limits().command).unwrap();
        processor.close();
        Some(Held { holder: found.holder?, remaining: found.remaining })
    }

    /// How many stand in the store's queue for a key.
    pub(crate) fn waiting(&self, key: &str) -> u64 {
        let processor = self.store.processor();
        let waiting = processor.inspect(key, processor.limits().command).unwrap().waiting;
        processor.close();
        waiting
    }

    /// How many keys have ended with their leases until now, as far as the store counts them.
    pub(crate) fn expirations(&self) -> u64 {
        self.store.expirations()
    }

    /// The store's name, for reports.
    pub(crate) fn name(&self) -> &'static str {
        self.store.name()
    }

    /// What the store keeps: nothing when no lock is held or waited for.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        self.store.leftovers()
    }
}

/// Whether the clients of this run hear of grants: not with `DLOCK_TEST_LISTENER=off`.
pub(crate) fn is_listener_on() -> bool {
    std::env::var_os("DLOCK_TEST_LISTENER").is_none_or(|value| value != "off")
}

/// A new client of the server at `url`.
pub(crate) fn connect(url: &str) -> DLockGenerator {
    builder().build(RedisLockProcessor::connect(url).unwrap()).unwrap()
}

/// What all clients of these tests have in common.
pub(crate) fn builder() -> GeneratorBuilder {
    DLockGenerator::builder().listener(is_listener_on())
}

/// Settings of a lock of these tests.
pub(crate) fn config(target: &str, lease_ms: u64) -> DLockConfig {
    DLockConfig::new("TEST", target).with_lease(Duration::from_millis(lease_ms))
}

/// Who holds a key.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) holder: String,
    pub(crate) remaining: Option<Duration>,
}

/// Starts a thread that waits for a lock with a token, as the client's waiter number `place`; tells whether it got the lock.
pub(crate) fn wait_with(lock: &DistributedReentrantLock, cancel: &CancelToken, place: usize) -> Member<bool> {
    let (other, cancel) = (lock.clone(), cancel.clone());
    let member = spawn(move || other.lock_cancellable(&cancel).unwrap().is_some());
    eventually("it waits", || lock.queue_length() == place);
    member
}

struct Memory(MemoryLockProcessor, Time);

impl Store for Memory {
    fn processor(&self) -> Arc<dyn LockProcessor> {
        Arc::new(self.0.clone())
    }

    fn delete(&self, key: &str) -> bool {
        self.0.delete(key)
    }

    fn overwrite(&self, key: &str, holder: &str, lease: Option<Duration>) {
        self.0.overwrite(key, holder, lease);
    }

    fn take(&self, key: &str, holder: &str, lease: Duration) -> bool {
        take(&self.0, key, holder, lease)
    }

    fn deny(&self, commands: &[&'static str]) -> bool {
        self.0.deny(commands);
        true
    }

    fn flush(&self) {
        self.0.flush();
    }

    fn pass_time(&self, time: Duration) {
        self.1.pass(time);
    }

    fn leftovers(&self) -> Vec<String> {
        self.0.keys()
    }

    fn name(&self) -> &'static str {
        "memory"
    }
}

/// Runs tests on every store: `on_both_stores!(a, b)` makes `memory::a`, `redis::a`, `memory::b` and `redis::b`.
macro_rules! on_both_stores {
    ($($name:ident),+ $(,)?) => {
        mod memory {
            $(#[test] fn $name() { super::$name(&crate::support::lab::Lab::memory()); })+
        }
        mod redis {
            $(#[test] fn $name() { super::$name(&crate::support::lab::Lab::redis()); })+
        }
    };
}

/// As [`on_both_stores!`], for tests of leases: one that fails while the machine stands still is played again.
macro_rules! running_on_both_stores {
    ($($name:ident),+ $(,)?) => {
        mod memory {
            $(#[test] fn $name() { super::$name(&crate::support::lab::Lab::memory()); })+
        }
        mod redis {
            $(#[test] fn $name() {
                crate::support::stalls::on_a_running_machine(crate::support::lab::STALL, || {
                    super::$name(&crate::support::lab::Lab::redis());
                });
            })+
        }
    };
}

/// As [`on_both_stores!`], each test in a process of its own.
macro_rules! alone_on_both_stores {
    ($($name:ident),+ $(,)?) => {
        mod memory {
            $(#[test] fn $name() {
                let path = concat!(module_path!(), "::", stringify!($name));
                crate::support::process::alone(path, || super::$name(&crate::support::lab::Lab::memory()));
            })+
        }
        mod redis {
            $(#[test] fn $name() {
                let path = concat!(module_path!(), "::", stringify!($name));
                crate::support::process::alone(path, || super::$name(&crate::support::lab::Lab::redis()));
            })+
        }
    };
}

pub(crate) use {alone_on_both_stores, on_both_stores, running_on_both_stores};
