//! Short ways to ask a store directly.

use redis_dlock::Error;
use redis_dlock::processor::{AcquireOutcome, Claim, ExtendOutcome, Inbox, LockProcessor, Operations, ReleaseOutcome};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The claim of a locker, whose client is the part before its last `-`.
pub(crate) fn claim<'a>(key: &'a str, locker: &'a str, lease: Duration) -> Claim<'a> {
    let client = locker.rsplit_once('-').map_or(locker, |(client, _)| client);
    Claim::new(key, client, locker, lease)
}

/// The optional requests, for a store that has them all.
pub(crate) trait Asking: LockProcessor {
    /// Asks for a key; with `wait`, for a place in the queue, too.
    fn ask(&self, claim: &Claim<'_>, wait: bool, limit: Duration) -> Result<AcquireOutcome, Error> {
        if wait { self.join(claim, limit) } else { self.acquire(claim, limit) }
    }

    /// Ends a tenure; the next locker, if there is one, gets the key or stands in the queue.
    fn end_with(&self, claim: &Claim<'_>, next: Option<&Claim<'_>>, limit: Duration) -> Result<ReleaseOutcome, Error> {
        match next {
            Some(next) => self.hand_over(claim, next, limit),
            None => self.release(claim, limit),
        }
    }

    /// Extends a lease, and asks for fresh numbers.
    fn extend_fresh(&self, claim: &Claim<'_>, limit: Duration) -> Result<ExtendOutcome, Error> {
        self.extend_with_numbers(claim, limit)
    }

    /// Opens an inbox.
    fn open(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error> {
        self.queue().expect("a queue").open_inbox(client, limit)
    }
}

impl<P: LockProcessor + ?Sized> Asking for P {}

/// The number of the last server of which a store has told since; zero if it has told of none.
pub(crate) fn last_server(store: &dyn LockProcessor) -> Arc<AtomicU64> {
    let last = Arc::new(AtomicU64::new(0));
    let noted = Arc::clone(&last);
    store.on_new_server(Box::new(move |number| noted.store(number, Ordering::SeqCst)));
    last
}
