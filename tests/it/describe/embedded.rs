//! The same on the embedded store, and on a store that tells nothing.

use super::{config, description, holder};
use crate::conformance::minimal_store::MinimalProcessor;
use redis_dlock::port::{
    Directory, KeyFilter, Limit, ListPage, LockProcessor, Outcome, Parties, Request, StoreLimits, WaitQueue,
};
use redis_dlock::{DLockGenerator, Error, MemoryLockProcessor, SystemClock};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

#[test]
fn clients_of_one_process_are_described() {
    let store = MemoryLockProcessor::new();
    let [one, two, asker] = [(); 3].map(|()| DLockGenerator::new(store.clone()).unwrap());
    let [first, second] =
        [(&one, "first"), (&two, "second")].map(|(generator, why)| generator.generate_with(config("x", why)).unwrap());
    let guard = first.lock().unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| drop(second.lock().unwrap()));
        }
        let found = description(&asker, "x", |found| {
            let waits = |party: &redis_dlock::Party| party.told.as_ref().is_some_and(|told| told.waiting_threads == 2);
            found.waiting.first().is_some_and(waits)
                && found.holder.as_ref().is_some_and(|holder| holder.told.is_some())
        });
        assert_eq!(found.waiting[0].told.as_ref().unwrap().reason.as_deref(), Some("second"));
        assert_eq!(found.holder.unwrap().told.unwrap().reason.as_deref(), Some("first"));
        let listed: Vec<_> = asker.list("DESCRIBE_?").map(Result::unwrap).collect();
        assert_eq!((listed.len(), listed[0].waiting), (1, 1));
        guard.unlock().unwrap();
    });
    // Its own lock is described without a message.
    let _guard = first.lock().unwrap();
    let own = holder(&one, "x", |holder| holder.client.is_some());
    assert!(own.is_local && own.told.unwrap().hold_count == 1);
}

/// Of one process more threads wait than an answer names.
#[test]
fn waiting_threads_are_named_with_their_times_up_to_a_bound() {
    let store = MemoryLockProcessor::new();
    let [one, asker] = [(); 2].map(|()| DLockGenerator::new(store.clone()).unwrap());
    let lock = one.generate_with(config("x", "why")).unwrap();
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let wait = |n: usize| {
            let waits = || drop(lock.lock().unwrap());
            thread::Builder::new().name(format!("waiter {n}")).spawn_scoped(scope, waits).unwrap();
            crate::support::crew::eventually("it waits", || lock.queue_length() == n + 1);
        };
        (0..3).for_each(wait);
        for asker in [&one, &asker] {
            let told = holder(asker, "x", |holder| holder.told.is_some()).told.unwrap();
            let names: Vec<_> = told.waiters.iter().map(|waiter| waiter.thread.as_deref().unwrap()).collect();
            assert_eq!(names, ["waiter 0", "waiter 1", "waiter 2"]);
            assert!(told.waiters.iter().all(|waiter| waiter.thread_id.is_some()));
            assert!(told.waiters.is_sorted_by_key(|waiter| std::cmp::Reverse(waiter.waits_for)), "{told:?}");
            assert_eq!(told.waiters[0].waits_for.as_millis(), told.first_waits_for.unwrap().as_millis());
        }
        (3..20).for_each(wait);
        for asker in [&one, &asker] {
            let told = holder(asker, "x", |holder| holder.told.is_some()).told.unwrap();
            assert_eq!((told.waiters.len(), told.waiting_threads), (16, 20));
        }
        guard.unlock().unwrap();
    });
}

#[test]
fn a_lock_that_lingers_says_so() {
    let store = MemoryLockProcessor::new();
    let [one, asker] = [(); 2].map(|()| DLockGenerator::new(store.clone()).unwrap());
    let lingers = config("x", "why").with_linger(super::LEASE);
    let lock = one.generate_with(lingers).unwrap();
    let lingering = || {
        drop(lock.lock().unwrap());
        let found = asker.describe("DESCRIBE", "x").unwrap().holder;
        found.and_then(|holder| holder.told).is_some_and(|told| told.lingering && told.held_for.is_none())
    };
    crate::support::crew::eventually("it lingers", lingering);
}

#[test]
fn many_pages_are_all_locks() {
    let generator = DLockGenerator::new(MemoryLockProcessor::new()).unwrap();
    let locks: Vec<_> = (0..2500).map(|n| generator.generate_with(config(&n.to_string(), "r")).unwrap()).collect();
    let guards: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
    let mut keys: Vec<_> = generator.list("*").map(|lock| lock.unwrap().key).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), guards.len());
}

#[test]
fn a_store_that_tells_nothing_says_so() {
    let generator = DLockGenerator::new(MinimalProcessor::new(Arc::new(SystemClock))).unwrap();
    assert!(matches!(generator.describe("A", "b"), Err(Error::Unsupported { .. })));
    assert!(matches!(generator.list("*").next(), Some(Err(Error::Unsupported { .. }))));
}

/// A store that returns fewer client records than it is asked for.
#[derive(Debug)]
struct Forgetful(MemoryLockProcessor);

impl LockProcessor for Forgetful {
    fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        self.0.run(requests, limit)
    }

    fn limits(&self) -> StoreLimits {
        self.0.limits()
    }

    fn queue(&self) -> Option<&dyn WaitQueue> {
        self.0.queue()
    }

    fn directory(&self) -> Option<&dyn Directory> {
        Some(self)
    }
}

impl Directory for Forgetful {
    fn parties(&self, key: &str, limit: Duration) -> Result<Parties, Error> {
        self.0.parties(key, limit)
    }

    fn list(&self, keys: &KeyFilter, from: Option<&str>, limit: Duration) -> Result<ListPage, Error> {
        self.0.list(keys, from, limit)
    }

    fn put_record(&self, client: &str, text: &str, life: Duration, limit: Duration) -> Result<(), Error> {
        self.0.put_record(client, text, life, limit)
    }

    fn remove_record(&self, client: &str, limit: Duration) -> Result<(), Error> {
        self.0.remove_record(client, limit)
    }

    fn records(&self, _clients: &[&str], _limit: Duration) -> Result<Vec<Option<String>>, Error> {
        Ok(Vec::new())
    }

    fn say(&self, client: &str, key: &str, text: &str, limit: Duration) -> Result<bool, Error> {
        self.0.say(client, key, text, limit)
    }
}

#[test]
fn a_client_whose_record_a_store_does_not_return_is_described_without_it() {
    let generator = DLockGenerator::new(Forgetful(MemoryLockProcessor::new())).unwrap();
    let lock = generator.generate_with(config("x", "why")).unwrap();
    let _guard = lock.lock().unwrap();
    let holder = generator.describe("DESCRIBE", "x").unwrap().holder.unwrap();
    assert!(holder.is_local && holder.client.is_none());
    assert_eq!(holder.told.unwrap().reason.as_deref(), Some("why"));
}
