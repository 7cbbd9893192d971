//! A plain attempt may get a key that it must not keep, and too few replicas may acknowledge a request that got a key. A release takes the key back.
//! If the release is not answered, the locker is *given up*.
//!
//! The release may be executed late. If a poll found that such a locker holds the key, or an extension confirmed a grant that was heard, the hold
//! would end unnoticed. So a release is sent in place of the poll or the extension.

use crate::log;
use crate::port::{ExtendOutcome, NotOurs, Outcome, PollOutcome, Request};
use crate::store::redis::transport::KeyHash;
use crate::sync::Mutex;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The most lockers with an unanswered release that are kept: as many as the clean-up list takes.
const MOST: usize = 65_536;

/// Lockers that must not hold the key any more. When there are too many, the oldest is forgotten.
#[derive(Debug, Default)]
pub(crate) struct GivenUp {
    lockers: Mutex<Lockers>,
    /// Whether there are any. Every call reads this first, without the mutex.
    // ORDERING: it changes only under the mutex of `lockers`, with Release; `any` loads it with Acquire. A thread that asks about a given-up locker
    // has learned of it from the thread that added it, by the error that followed. So it sees the flag, and reads the list under the mutex.
    any: AtomicBool,
}

/// The same lockers in two orders: each poll looks one up by name, and the oldest must be found by age.
#[derive(Debug, Default)]
struct Lockers {
    by_name: HashMap<Arc<str>, u64>,
    by_age: BTreeMap<u64, Arc<str>>,
    next: u64,
}

impl GivenUp {
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire) // ORDERING: pairs with `add`: the list has a locker.
    }

    pub(crate) fn has(&self, locker: &str) -> bool {
        self.lockers.lock().by_name.contains_key(locker)
    }

    pub(crate) fn add(&self, locker: &str) {
        let mut lockers = self.lockers.lock();
        let forgotten = lockers.add(locker, MOST);
        self.any.store(true, Ordering::Release); // ORDERING: pairs with `any`.
        // The program's logger must run without the mutex.
        drop(lockers);
        if let Some(oldest) = forgotten {
            log::warn!(
                RELEASE,
                "more than {MOST} releases are unanswered; the oldest locker, {oldest:?}, is forgotten"
            );
        }
    }

    /// Begins the exchange of a request: decides what is sent for it.
    pub(crate) fn exchange<'a>(&self, request: &'a Request<'a>) -> Exchange<'a> {
        let sent = match request {
            // A lease of zero ends the tenure, too.
            Request::Poll(claim) | Request::Extend(claim) | Request::ExtendWithNumbers(claim)
                if self.any() && !claim.lease.is_zero() && self.has(claim.locker) =>
            {
                Cow::Owned(Request::Release(claim.with_poller_gap(None)))
            }
            _ => Cow::Borrowed(request),
        };
        let hash = KeyHash::of(sent.key());
        Exchange { request, sent, hash }
    }

    /// Returns the outcome of the request, from that of what was sent for it.
    pub(crate) fn end(&self, exchange: &Exchange<'_>, outcome: Outcome) -> Outcome {
        let Request::Release(claim) = &*exchange.sent else { return outcome };
        if self.any() {
            self.remove(claim.locker);
        }
        match exchange.request {
            Request::Poll(_) => Outcome::Poll(PollOutcome::Gone),
            Request::Extend(_) | Request::ExtendWithNumbers(_) => {
                Outcome::Extend(ExtendOutcome::NotOurs(NotOurs::new(None)))
            }
            _ => outcome,
        }
    }

    /// Removes a locker whose release was answered.
    pub(crate) fn remove(&self, locker: &str) {
        let mut lockers = self.lockers.lock();
        lockers.remove(locker);
        self.any.store(!lockers.by_name.is_empty(), Ordering::Release); // ORDERING: pairs with `any`.
    }
}

impl Lockers {
    /// Adds a locker as the youngest. Removes and returns the oldest if there are already `most` others.
    fn add(&mut self, locker: &str, most: usize) -> Option<Arc<str>> {
        self.remove(locker);
        let forgotten = if self.by_name.len() < most { None } else { self.by_age.pop_first() };
        let forgotten = forgotten.map(|(_, oldest)| oldest);
        if let Some(oldest) = &forgotten {
            self.by_name.remove(oldest);
        }
        let locker: Arc<str> = locker.into();
        self.by_name.insert(Arc::clone(&locker), self.next);
        self.by_age.insert(self.next, locker);
        self.next += 1;
        forgotten
    }

    fn remove(&mut self, locker: &str) {
        if let Some(age) = self.by_name.remove(locker) {
            self.by_age.remove(&age);
        }
    }
}

/// A request on its way to its outcome.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    request: &'a Request<'a>,
    /// What is sent: the request, or a release in its place.
    pub(crate) sent: Cow<'a, Request<'a>>,
    /// The hash of its key.
    pub(crate) hash: KeyHash,
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/plain/given_up.rs"]
mod tests;
