//! The embedded store with the two optional parts that it does not have itself: posted releases, whose replies wait to be collected, and the
//! certain end of a locker.

use super::suite::MemoryStore;
use dlock_conformance::Store;
use parking_lot::Mutex;
use redis_dlock::Error;
use redis_dlock::processor::{
    Claim, Limit, LockProcessor, Operations, Outcome, Posting, ReleaseDone, ReleaseOutcome, Request, StoreLimits,
    WaitQueue,
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
    fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        let run = |request: &Request<'_>| match request {
            // No request to the embedded store is ever late, so a release ends a locker for certain.
            Request::Settle(claim) => self.inner.run_one(Request::Release(*claim), limit).map(|_| Outcome::Settle(())),
            other => self.inner.run_one(*other, limit),
        };
        requests.iter().map(run).collect()
    }

    fn limits(&self) -> StoreLimits {
        let mut limits = self.inner.limits();
        (limits.settles, limits.breaks) = (true, false);
        limits
    }

    fn queue(&self) -> Option<&dyn WaitQueue> {
        self.inner.queue()
    }

    fn posting(&self) -> Option<&dyn Posting> {
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
