//! The lockers that were taken back, and whose release has not been answered: of plain attempts, and of requests that too few replicas have
//! acknowledged.
//!
//! The release may be executed late. If a poll found such a locker holding, or an extension confirmed a grant that was heard, the hold would
//! end unnoticed. So a release is sent in place of both.

use crate::log;
use crate::store::processor::{ExtendOutcome, NotOurs, Outcome, PollOutcome, Request};
use crate::sync::Mutex;
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
    // ORDERING: it changes only under the mutex of `lockers`, with Release; `any` loads it with Acquire. Whoever asks about a locker that
    // was given up has learned of it from the thread that added it, by the error that followed, and so sees the flag. Then it reads the
    // list under the mutex.
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

    pub(super) fn add(&self, locker: &str) {
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

    /// Returns what is sent for a request.
    pub(crate) fn replacement<'a>(&self, request: &Request<'a>) -> Request<'a> {
        match *request {
            // A lease of zero ends the tenure, too.
            Request::Poll(claim) | Request::Extend(claim) | Request::ExtendWithNumbers(claim)
                if !claim.lease.is_zero() && self.has(claim.locker) =>
            {
                Request::Release(claim.with_poller_gap(None))
            }
            other => other,
        }
    }

    /// Returns the outcome of a request, from that of what was `sent` for it.
    pub(crate) fn outcome_of(&self, request: &Request<'_>, sent: &Request<'_>, outcome: Outcome) -> Outcome {
        let Request::Release(claim) = sent else { return outcome };
        self.remove(claim.locker);
        match request {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::processor::{Claim, ProbeOutcome, ReleaseOutcome};
    use std::time::Duration;

    #[test]
    fn a_locker_is_given_up_until_its_release_is_answered() {
        let given_up = GivenUp::default();
        assert!(!given_up.any() && !given_up.has("l-1"));
        given_up.add("l-1");
        given_up.add("l-2");
        given_up.add("l-2");
        given_up.remove("l-3");
        assert!(given_up.any() && given_up.has("l-1") && given_up.has("l-2"));
        given_up.remove("l-1");
        assert!(given_up.any() && !given_up.has("l-1") && given_up.has("l-2"));
        given_up.remove("l-2");
        assert!(!given_up.any() && !given_up.has("l-2"));
    }

    /// Shows: S1.
    #[test]
    fn a_locker_that_was_given_up_is_neither_found_nor_confirmed() {
        let given_up = GivenUp::default();
        let claim = |locker| Claim::new("k", "l", locker, Duration::from_secs(1));
        let (gone, other) = (claim("l-1"), claim("l-2"));
        let ended = Claim::new("k", "l", "l-1", Duration::ZERO);
        given_up.add("l-1");
        let requests = [
            Request::Poll(gone),
            Request::Extend(gone),
            Request::ExtendWithNumbers(gone),
            Request::Poll(other),
            Request::Extend(ended),
            Request::Probe(gone),
        ];
        let sent = requests.map(|request| given_up.replacement(&request));
        assert!(sent[..3].iter().all(|sent| matches!(sent, Request::Release(claim) if claim.locker == "l-1")));
        assert!(matches!(sent[3..], [Request::Poll(_), Request::Extend(_), Request::Probe(_)]), "{sent:?}");
        let released = || Outcome::Release(ReleaseOutcome::Released { waiting: 0 });
        let outcome = given_up.outcome_of(&requests[1], &sent[1], released());
        assert_eq!(outcome, Outcome::Extend(ExtendOutcome::NotOurs(NotOurs::new(None))));
        assert!(!given_up.any(), "its release is answered");
        let outcome = given_up.outcome_of(&requests[0], &sent[0], released());
        assert_eq!(outcome, Outcome::Poll(PollOutcome::Gone));
        let probed = Outcome::Probe(ProbeOutcome::Ours);
        assert_eq!(given_up.outcome_of(&requests[5], &sent[5], probed.clone()), probed);
    }

    #[test]
    fn at_the_cap_the_oldest_is_forgotten() {
        let mut lockers = Lockers::default();
        let mut add = |locker: &str| lockers.add(locker, 3).as_deref().map(str::to_owned);
        for (locker, forgotten) in [
            ("l-1", None),
            ("l-2", None),
            ("l-3", None),
            ("l-4", Some("l-1")),
            // It is given up once more, so it is the youngest from now on.
            ("l-2", None),
            ("l-5", Some("l-3")),
            ("l-6", Some("l-4")),
            ("l-7", Some("l-2")),
        ] {
            assert_eq!(add(locker).as_deref(), forgotten, "{locker}");
        }
        // The room that a removal made is used before anything is forgotten.
        lockers.remove("l-6");
        assert_eq!(lockers.add("l-8", 3), None);
        assert_eq!(lockers.add("l-9", 3).as_deref(), Some("l-5"));
        let left: Vec<_> = lockers.by_age.values().map(|locker| &**locker).collect();
        assert_eq!(left, ["l-7", "l-8", "l-9"]);
        assert!(lockers.by_name.len() == 3 && left.iter().all(|locker| lockers.by_name.contains_key(*locker)));
    }

    #[test]
    fn as_many_are_kept_as_the_clean_up_list_takes() {
        let given_up = GivenUp::default();
        let name = |n: usize| format!("l-{n}");
        (0..=MOST).for_each(|n| given_up.add(&name(n)));
        assert!(!given_up.has(&name(0)));
        assert!((1..=MOST).all(|n| given_up.has(&name(n))));
        assert_eq!(given_up.lockers.lock().by_age.len(), MOST);
    }
}
