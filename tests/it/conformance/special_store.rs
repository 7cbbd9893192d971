//! The embedded store with the two optional parts that it does not have itself: posted releases, whose replies wait to be collected, and the
//! certain end of a locker.

use super::suite::MemoryStore;
use dlock_conformance::Store;
use parking_lot::Mutex;
use redis_dlock::Error;
use redis_dlock::processor::{
    AcquireOutcome, Claim, ExtendOutcome, Inspection, LockProcessor, Numbers, PollOutcome, Posting, ProbeOutcome,
    ReleaseDone, ReleaseOutcome, Settling, StoreLimits, WaitQueue,
};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The processor.
struct Special {
    inner: Arc<dyn LockProcessor>,
    /// The outcomes that nobody has collected yet.
    replies: Mutex<Vec<(ReleaseDone, Result<ReleaseOutcome, Error>)>>,
}

impl fmt::Debug for Special {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Special").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl LockProcessor for Special {
    fn acquire(&self, claim: &Claim<'_>, limit: Duration) -> Result<AcquireOutcome, Error> {
        self.inner.acquire(claim, limit)
    }

    fn extend(&self, claim: &Claim<'_>, limit: Duration) -> Result<ExtendOutcome, Error> {
        self.inner.extend(claim, limit)
    }

    fn release(&self, claim: &Claim<'_>, limit: Duration) -> Result<ReleaseOutcome, Error> {
        self.inner.release(claim, limit)
    }

    fn inspect(&self, key: &str, limit: Duration) -> Result<Inspection, Error> {
        self.inner.inspect(key, limit)
    }

    fn poll(&self, claim: &Claim<'_>, limit: Duration) -> Result<PollOutcome, Error> {
        self.inner.poll(claim, limit)
    }

    fn probe(&self, claim: &Claim<'_>, limit: Duration) -> Result<ProbeOutcome, Error> {
        self.inner.probe(claim, limit)
    }

    fn limits(&self) -> StoreLimits {
        self.inner.limits()
    }

    fn queue(&self) -> Option<&dyn WaitQueue> {
        self.inner.queue()
    }

    fn numbers(&self) -> Option<&dyn Numbers> {
        self.inner.numbers()
    }

    fn posting(&self) -> Option<&dyn Posting> {
        Some(self)
    }

    fn settling(&self) -> Option<&dyn Settling> {
        Some(self)
    }
}

impl Posting for Special {
    fn post_release(&self, claim: &Claim<'_>, limit: Duration, done: ReleaseDone) -> bool {
        let outcome = self.inner.release(claim, limit);
        self.replies.lock().push((done, outcome));
        true
    }

    fn collect(&self) -> bool {
        let replies = std::mem::take(&mut *self.replies.lock());
        replies.into_iter().for_each(|(done, outcome)| done(outcome));
        false
    }
}

/// No request to the embedded store is ever late, so a release ends a locker for certain.
impl Settling for Special {
    fn settle(&self, claim: &Claim<'_>, limit: Duration) -> Result<(), Error> {
        self.inner.release(claim, limit).map(drop)
    }
}

/// The store of the conformance tests.
pub(crate) struct SpecialStore(MemoryStore);

impl SpecialStore {
    pub(crate) fn start() -> Self {
        Self(MemoryStore::start())
    }
}

impl Store for SpecialStore {
    fn processor(&self) -> Arc<dyn LockProcessor> {
        Arc::new(Special { inner: self.0.processor(), replies: Mutex::default() })
    }

    fn delete(&self, key: &str) -> bool {
        self.0.delete(key)
    }

    fn overwrite(&self, key: &str, holder: &str, lease: Option<Duration>) {
        self.0.overwrite(key, holder, lease);
    }

    fn flush(&self) {
        self.0.flush();
    }

    fn pass_time(&self, time: Duration) {
        self.0.pass_time(time);
    }

    fn leftovers(&self) -> Vec<String> {
        self.0.leftovers()
    }

    fn take(&self, key: &str, holder: &str, lease: Duration) -> bool {
        self.0.take(key, holder, lease)
    }

    fn pass_time_of_gaps(&self, key: &str, time: Duration) {
        self.0.pass_time_of_gaps(key, time);
    }
}
