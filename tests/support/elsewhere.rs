//! What the tests of the lock in `it` need on a store whose time nobody moves: a fresh part of it, and the clients that meet there. The kit of these
//! tests in `it/support/lab.rs` has the embedded store and Redis.

use crate::support::crew::{Member, eventually, spawn};
use crate::support::time::Time;
use crate::support::watched::{Watch, Watched};
use dlock_conformance::Store;
use redis_dlock::port::Operations;
use redis_dlock::{CancelToken, DLockGenerator, DistributedReentrantLock, Error, LockProcessor, LossCause};
use std::sync::Arc;
use std::time::Duration;

/// A stall of the machine that may cost a lease, or a look at it.
pub(crate) const STALL: Duration = Duration::from_millis(100);

/// Far more than anything takes.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// A store, and what a test may do with it beside locking.
pub(crate) struct Lab {
    store: Box<dyn Store>,
    pub(crate) time: Time,
}

impl Lab {
    pub(crate) fn on(store: impl Store + 'static) -> Self {
        Self { store: Box::new(store), time: Time::default() }
    }

    /// Another way to the store.
    pub(crate) fn processor(&self) -> Arc<dyn LockProcessor> {
        self.store.processor()
    }

    /// What all clients in this store have in common.
    pub(crate) fn builder(&self) -> redis_dlock::GeneratorBuilder {
        DLockGenerator::builder()
    }

    /// Another way to the store, and what is asked on it.
    pub(crate) fn watched(&self) -> (Watched, Arc<Watch>) {
        Watched::new(self.store.processor())
    }

    /// A new client.
    pub(crate) fn generator(&self) -> DLockGenerator {
        DLockGenerator::new(Watched::unseen(self.store.processor())).unwrap()
    }

    /// A new client, and what it asks of the store.
    pub(crate) fn watched_generator(&self) -> (DLockGenerator, Arc<Watch>) {
        let (processor, watch) = Watched::new(self.store.processor());
        (DLockGenerator::new(processor).unwrap(), watch)
    }

    /// A new client that hears no grant and so never stands in the store's queue, and what it asks of the store.
    pub(crate) fn deaf_generator(&self) -> (DLockGenerator, Arc<Watch>) {
        let (processor, watch) = Watched::new(self.store.processor());
        (DLockGenerator::builder().listener(false).build(processor).unwrap(), watch)
    }

    /// A new client that hears of grants already, and what it asks of the store.
    pub(crate) fn listening_generator(&self) -> (DLockGenerator, Arc<Watch>) {
        let (generator, watch) = self.watched_generator();
        let lock = generator.generate("TEST", "to begin with").unwrap();
        let _guard = lock.lock().unwrap();
        let (other, cancel) = (lock.clone(), CancelToken::new());
        let token = cancel.clone();
        let waiter = spawn(move || other.lock_cancellable(&token).unwrap().is_some());
        eventually("the inbox is open", || watch.listening() == 1);
        cancel.cancel();
        assert!(!waiter.join());
        (generator, watch)
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

    /// Waits for the end of a thread that gets the lock when another client unlocks.
    #[track_caller]
    pub(crate) fn join<T>(&self, member: Member<T>) -> T {
        member.join()
    }

    /// How many stand in the store's queue for a key.
    pub(crate) fn waiting(&self, key: &str) -> u64 {
        let processor = self.store.processor();
        let waiting = processor.inspect(key, processor.limits().command).unwrap().waiting;
        processor.close();
        waiting
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

/// Whether the clients hear of grants.
pub(crate) fn is_listener_on() -> bool {
    true
}

/// What all clients of these tests have in common.
pub(crate) fn builder() -> redis_dlock::GeneratorBuilder {
    DLockGenerator::builder()
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
