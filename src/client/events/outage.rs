//! Whether the store fails now, as far as the results of requests say.

use super::metrics::{Sample, unix_seconds};
use crate::clock::Moment;
use crate::error::Error;
use crate::event::{Event, StoreBack, StoreFailing};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::timing;

#[derive(Default)]
pub(super) struct Outage {
    /// Whether `failing` has anything. While the store answers, a request looks at no more than this.
    is_failing: AtomicBool,
    /// Each change is an event, which is queued under this mutex. So the events are in order.
    failing: Mutex<Option<Failing>>,
}

/// A store that fails.
struct Failing {
    since: Moment,
    /// The same, in seconds of the unix time, for people.
    unix_since: u64,
    /// When a request failed last, and the key that it was about.
    last: Moment,
    key: String,
}

impl Outage {
    /// Notes how a request about a key ended, and calls `queue` if that is an event. In a store of several servers, some may fail while others
    /// answer: so the store counts as back when a request about the same key is answered, or any request after a time without failures.
    pub(super) fn note<R>(
        &self,
        key: &str,
        error: Option<&Error>,
        now: impl FnOnce() -> Moment,
        queue: impl FnOnce(&Event, Sample) -> R,
    ) -> Option<R> {
        let error = error.filter(|error| matches!(error, Error::Backend { .. }));
        if error.is_none() && !self.is_failing.load(Ordering::SeqCst) {
            return None;
        }
        let mut outage = self.failing.lock();
        match (error, &mut *outage) {
            (Some(_), Some(failing)) => {
                failing.last = now();
                key.clone_into(&mut failing.key);
                None
            }
            (Some(error), none) => {
                let since = now();
                let unix_since = unix_seconds();
                *none = Some(Failing { since, unix_since, last: since, key: key.to_owned() });
                self.is_failing.store(true, Ordering::SeqCst);
                Some(queue(
                    &Event::StoreFailing(StoreFailing { error: error.clone() }),
                    Sample::StoreFailing { since: unix_since },
                ))
            }
            (None, Some(Failing { since, unix_since, last, key: failed })) => {
                let now = now();
                if failed != key && now.since(*last) < timing::STORE_QUIET {
                    return None;
                }
                let (after, unix_since) = (now.since(*since), *unix_since);
                *outage = None;
                self.is_failing.store(false, Ordering::SeqCst);
                Some(queue(&Event::StoreBack(StoreBack { after }), Sample::StoreBack { since: unix_since }))
            }
            (None, None) => None,
        }
    }

    /// Forgets the outage, at the end of the client. Returns the unix time of its beginning.
    #[cfg(feature = "metrics")]
    pub(super) fn end(&self) -> Option<u64> {
        self.failing.lock().take().map(|failing| failing.unix_since)
    }
}
