//! What the tests of the lock in `it` need on any store: a fresh part of it, and the clients that meet there. `it/support/lab.rs` has the embedded
//! store and Redis, and the other stores have a `lab.rs` each.

use crate::support::crew::{HANG, Member, eventually, spawn};
use crate::support::time::Time;
use crate::support::watched::{Watch, Watched};
use dlock_conformance::Store;
use redis_dlock::port::Operations;
use redis_dlock::{
    CancelToken, DLockConfig, DLockGenerator, DistributedReentrantLock, Error, GeneratorBuilder, LockProcessor,
    LossCause,
};
use std::sync::Arc;
use std::time::Duration;

/// A stall of the machine that may cost a lease of a second, or a look at it.
pub(crate) const STALL: Duration = Duration::from_millis(100);

/// Far more than anything takes.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// A store, and what a test may do with it beside locking.
pub(crate) struct Lab {
    store: Box<dyn Store>,
    pub(crate) time: Time,
}

impl Lab {
    /// A store by the time of its clients.
    pub(crate) fn on(store: impl Store + 'static, time: Time) -> Self {
        Self { store: Box::new(store), time }
    }

    /// Another way to the store.
    pub(crate) fn processor(&self) -> Arc<dyn LockProcessor> {
        self.time.keep_up(self.store.processor())
    }

    /// What all clients in this store have in common.
    pub(crate) fn builder(&self) -> GeneratorBuilder {
        self.time.set(builder())
    }

    /// Another way to the store, and what is asked on it.
    pub(crate) fn watched(&self) -> (Watched, Arc<Watch>) {
        Watched::by(self.time.clone(), self.processor())
    }

    /// A new client.
    pub(crate) fn generator(&self) -> DLockGenerator {
        self.builder().build(Watched::unseen(self.processor())).unwrap()
    }

    /// A new client, and what it asks of the store.
    pub(crate) fn watched_generator(&self) -> (DLockGenerator, Arc<Watch>) {
        let (processor, watch) = self.watched();
        (self.builder().build(processor).unwrap(), watch)
    }

    /// The lock of a new client, and what that asks of the store.
    pub(crate) fn watched_lock(&self, config: DLockConfig) -> (DistributedReentrantLock, Arc<Watch>) {
        let (generator, watch) = self.watched_generator();
        (generator.generate_with(config).unwrap(), watch)
    }

    /// A new client that hears no grant and so never stands in the store's queue, and what it asks of the store.
    pub(crate) fn deaf_generator(&self) -> (DLockGenerator, Arc<Watch>) {
        let (processor, watch) = self.watched();
        (self.time.builder().listener(false).build(processor).unwrap(), watch)
    }

    /// The lock of such a client, and what that asks of the store.
    pub(crate) fn deaf_lock(&self, config: DLockConfig) -> (DistributedReentrantLock, Arc<Watch>) {
        let (generator, watch) = self.deaf_generator();
        (generator.generate_with(config).unwrap(), watch)
    }

    /// A new client that hears of grants already, and what it asks of the store.
    pub(crate) fn listening_generator(&self) -> (DLockGenerator, Arc<Watch>) {
        let (processor, watch) = self.watched();
        let processor: Arc<dyn LockProcessor> = Arc::new(processor);
        let generator = self.builder().build(Arc::clone(&processor)).unwrap();
        let lock = generator.generate("TEST", "to begin with").unwrap();
        let _guard = lock.lock().unwrap();
        let cancel = CancelToken::new();
        let waiter = wait_with(&lock, &cancel, 1);
        eventually("the inbox is open", || watch.listening() == 1);
        // On a cluster an inbox hears of a key from when it has got ready for it, which the client's own store knows.
        let holder = self.holder(lock.key()).expect("it is held").holder;
        let (client, queue) = (holder.rsplit_once('-').unwrap().0, processor.queue().expect("a queue"));
        eventually("it hears of the key of these tests", || {
            queue.get_ready_to_hear(client, DLockConfig::new("TEST", "x").unique_key(), HANG).is_ok()
        });
        cancel.cancel();
        assert!(!waiter.join());
        (generator, watch)
    }

    /// The lock of a new client that hears of grants already, and what that asks of the store.
    pub(crate) fn listening_lock(&self, config: DLockConfig) -> (DistributedReentrantLock, Arc<Watch>) {
        let (generator, watch) = self.listening_generator();
        (generator.generate_with(config).unwrap(), watch)
    }

    /// Waits for the end of a thread that gets the lock when another client unlocks. It gets the lock by a message while the clock stands still.
    /// Without messages it asks, for which time must pass: slowly, because the threads that hold the lock meanwhile unlock in real time, and their
    /// leases end by the clock.
    #[track_caller]
    pub(crate) fn join<T>(&self, member: Member<T>) -> T {
        if !is_listener_on() {
            self.time.until_slowly("the end of a thread", || member.is_finished());
        }
        member.join()
    }

    /// Deletes the entry of a lock, behind everybody's back.
    pub(crate) fn delete(&self, key: &str) {
        assert!(self.store.delete(key), "{key} is not there");
    }

    /// Has another program hold a lock, behind everybody's back.
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

/// Who holds a key.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) holder: String,
    pub(crate) remaining: Option<Duration>,
}

/// Whether the clients of this run hear of grants: not with `DLOCK_TEST_LISTENER=off`.
pub(crate) fn is_listener_on() -> bool {
    std::env::var_os("DLOCK_TEST_LISTENER").is_none_or(|value| value != "off")
}

/// What all clients of these tests have in common.
pub(crate) fn builder() -> GeneratorBuilder {
    DLockGenerator::builder().listener(is_listener_on())
}

/// Starts a thread that waits for a lock with a token, as the client's waiter number `place`; tells whether it got the lock.
pub(crate) fn wait_with(lock: &DistributedReentrantLock, cancel: &CancelToken, place: usize) -> Member<bool> {
    let (other, cancel) = (lock.clone(), cancel.clone());
    let member = spawn(move || other.lock_cancellable(&cancel).unwrap().is_some());
    eventually("it waits", || lock.queue_length() == place);
    member
}

/// Why the lease was lost that this call tells of.
#[track_caller]
pub(crate) fn cause<T>(result: Result<T, Error>) -> LossCause {
    match result {
        Err(Error::LeaseLost(loss)) => loss.cause,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("no error"),
    }
}
