//! A store with the required requests only, as somebody may write it over any store that compares and sets: no queue, no messages, no
//! ranges of numbers. The client polls.

use dlock_conformance::Store;
use parking_lot::Mutex;
use redis_dlock::processor::{
    AcquireOutcome, Busy, Claim, ExtendOutcome, Extension, Grant, Inspection, Limit, LockProcessor, NotOurs, Outcome,
    ReleaseOutcome, Request, one_by_one,
};
use redis_dlock::{Clock, Error, ManualClock, Moment};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What the store keeps for a key: a value that can be compared, and when it ends.
#[derive(Clone, Debug)]
struct Entry {
    locker: String,
    number: u64,
    until: Option<Moment>,
}

/// The processor.
#[derive(Clone, Debug)]
pub(crate) struct MinimalProcessor {
    clock: Arc<dyn Clock>,
    /// The entries, and the last number. A number serves all keys, so it rises for each.
    kept: Arc<Mutex<(HashMap<String, Entry>, u64)>>,
    extensions: Arc<AtomicUsize>,
}

impl MinimalProcessor {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, kept: Arc::default(), extensions: Arc::default() }
    }

    /// How many extensions were asked for.
    pub(crate) fn extensions(&self) -> usize {
        self.extensions.load(Ordering::SeqCst)
    }

    /// Loses a key.
    pub(crate) fn forget(&self, key: &str) {
        self.on(key, |entry, _, _| *entry = None);
    }

    /// Runs one atomic operation on the entry of a key.
    fn on<R>(&self, key: &str, act: impl FnOnce(&mut Option<Entry>, &mut u64, Moment) -> R) -> R {
        let mut kept = self.kept.lock();
        let now = self.clock.now();
        let mut entry = kept.0.remove(key).filter(|entry| entry.until.is_none_or(|until| now < until));
        let result = act(&mut entry, &mut kept.1, now);
        if let Some(entry) = entry {
            kept.0.insert(key.to_owned(), entry);
        }
        result
    }
}

fn not_ours(entry: &Option<Entry>) -> NotOurs {
    NotOurs::new(entry.as_ref().map(|entry| entry.locker.clone()))
}

impl LockProcessor for MinimalProcessor {
    fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        one_by_one(requests, limit, |request, _| match request {
            Request::Acquire(claim) => Ok(self.acquire(claim).into()),
            Request::Release(claim) => Ok(self.release(claim).into()),
            Request::Inspect { key } => Ok(self.inspect(key).into()),
            other => other.by_extension(|claim| Ok(self.extend(claim))),
        })
    }
}

impl MinimalProcessor {
    fn acquire(&self, claim: &Claim<'_>) -> AcquireOutcome {
        self.on(claim.key, |entry, last, now| match entry {
            Some(Entry { locker, until, .. }) => {
                AcquireOutcome::Busy(Busy::new(locker.clone(), until.map(|until| until.since(now))))
            }
            None => {
                *last += 1;
                *entry = Some(Entry { locker: claim.locker.to_owned(), number: *last, until: Some(now + claim.lease) });
                AcquireOutcome::Acquired(Grant::new(*last, 0))
            }
        })
    }

    fn extend(&self, claim: &Claim<'_>) -> ExtendOutcome {
        self.extensions.fetch_add(1, Ordering::SeqCst);
        self.on(claim.key, |entry, _, now| match entry {
            Some(ours) if ours.locker == claim.locker => {
                ours.until = Some(now + claim.lease);
                ExtendOutcome::Extended(Extension::of(ours.number))
            }
            other => ExtendOutcome::NotOurs(not_ours(other)),
        })
    }

    fn release(&self, claim: &Claim<'_>) -> ReleaseOutcome {
        self.on(claim.key, |entry, _, _| match entry.take_if(|entry| entry.locker == claim.locker) {
            Some(_) => ReleaseOutcome::Released { waiting: 0 },
            None => ReleaseOutcome::NotOurs(not_ours(entry)),
        })
    }

    fn inspect(&self, key: &str) -> Inspection {
        self.on(key, |entry, _, now| match entry {
            Some(Entry { locker, until, .. }) => {
                Inspection::held_by(locker.clone(), until.map(|until| until.since(now)))
            }
            None => Inspection::free(),
        })
    }
}

/// The store of the conformance tests: time stands still until a test moves it.
pub(crate) struct MinimalStore {
    clock: Arc<ManualClock>,
    processor: MinimalProcessor,
}

impl MinimalStore {
    pub(crate) fn start() -> Self {
        let clock = Arc::new(ManualClock::new());
        Self { processor: MinimalProcessor::new(clock.clone()), clock }
    }
}

impl Store for MinimalStore {
    fn processor(&self) -> Arc<dyn LockProcessor> {
        Arc::new(self.processor.clone())
    }

    fn delete(&self, key: &str) -> bool {
        self.processor.on(key, |entry, _, _| entry.take().is_some())
    }

    fn overwrite(&self, key: &str, holder: &str, lease: Option<Duration>) {
        self.processor.on(key, |entry, _, now| {
            *entry = Some(Entry { locker: holder.to_owned(), number: 0, until: lease.map(|lease| now + lease) });
        });
    }

    fn flush(&self) {
        self.processor.kept.lock().0.clear();
    }

    fn pass_time(&self, time: Duration) {
        self.clock.advance(time);
    }

    fn leftovers(&self) -> Vec<String> {
        let now = self.clock.now();
        let is_kept = |entry: &Entry| entry.until.is_none_or(|until| now < until);
        self.processor.kept.lock().0.iter().filter(|(_, entry)| is_kept(entry)).map(|(key, _)| key.clone()).collect()
    }
}
