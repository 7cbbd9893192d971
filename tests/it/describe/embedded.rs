//! The list of the embedded store, and a store that tells nothing.

use super::config;
use crate::conformance::minimal_store::MinimalProcessor;
use redis_dlock::port::{
    Directory, KeyFilter, Limit, ListPage, LockProcessor, Outcome, Parties, Request, StoreLimits, WaitQueue,
};
use redis_dlock::{DLockGenerator, Error, MemoryLockProcessor, SystemClock};
use std::sync::Arc;
use std::time::Duration;

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
