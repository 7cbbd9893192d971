//! A tenure asks.

use redis_dlock::port::{
    AcquireOutcome, Busy, Claim, ExtendOutcome, Extension, Gap, Grant, LockProcessor, NotOurs, Operations, PollOutcome,
    ProbeOutcome, ReleaseOutcome,
};
use redis_dlock::{BackendFailure, Error};
use std::sync::Arc;
use std::time::Duration;

/// How long anything may take that must happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// One locker. Each method sends one request; a method named after an outcome panics on any other.
#[derive(Debug)]
pub struct Tenure {
    pub(super) processor: Arc<dyn LockProcessor>,
    /// The lock's unique key.
    pub key: String,
    pub(super) client: String,
    /// The locker.
    pub locker: String,
    /// The lease with which the tenure asks.
    pub lease: Duration,
}

impl Tenure {
    /// The processor that the tenure's client asks.
    pub fn processor(&self) -> &dyn LockProcessor {
        &*self.processor
    }

    /// What the tenure tells the store of itself.
    pub fn claim(&self) -> Claim<'_> {
        Claim::new(&self.key, &self.client, &self.locker, self.lease)
    }

    fn try_ask(&self, wait: bool) -> Result<AcquireOutcome, Error> {
        if wait {
            self.processor.join(&self.claim(), PATIENCE)
        } else {
            self.processor.acquire(&self.claim(), PATIENCE)
        }
    }

    fn try_release(&self, next: Option<&Tenure>, gap: Option<Gap>) -> Result<ReleaseOutcome, Error> {
        let claim = self.claim().with_poller_gap(gap);
        match next {
            Some(next) => self.processor.hand_over(&claim, &next.claim(), PATIENCE),
            None => self.processor.release(&claim, PATIENCE),
        }
    }

    /// Asks once; with `wait`, for a place in the queue, too.
    pub fn ask(&self, wait: bool) -> AcquireOutcome {
        self.try_ask(wait).unwrap()
    }

    /// Takes the key without waiting.
    pub fn acquire(&self) -> Grant {
        match self.ask(false) {
            AcquireOutcome::Acquired(grant) => grant,
            other => panic!("{self:?}: {other:?}"),
        }
    }

    /// Finds the key busy, without waiting.
    pub fn fail(&self) -> Busy {
        match self.ask(false) {
            AcquireOutcome::Busy(busy) => busy,
            other => panic!("{self:?}: {other:?}"),
        }
    }

    /// Finds the key busy and stands in the queue.
    pub fn wait(&self) -> Busy {
        match self.ask(true) {
            AcquireOutcome::Busy(busy) => busy,
            other => panic!("{self:?}: {other:?}"),
        }
    }

    /// Asks while something is denied.
    pub fn ask_denied(&self, wait: bool) {
        let outcome = self.try_ask(wait);
        assert!(matches!(outcome, Err(Error::Denied { .. })), "{self:?}: {outcome:?}");
    }

    /// Polls while something is denied.
    pub fn poll_denied(&self) {
        let outcome = self.processor.poll(&self.claim(), PATIENCE);
        assert!(matches!(outcome, Err(Error::Denied { .. })), "{self:?}: {outcome:?}");
    }

    /// Releases the tenure while something is denied, which must fail.
    pub fn release_denied(&self, next: Option<&Tenure>) {
        let outcome = self.try_release(next, None);
        assert!(matches!(outcome, Err(Error::Denied { .. })), "{self:?}: {outcome:?}");
    }

    /// Releases the tenure while something is denied, and what would undo the operation, too. Returns whether the outcome is unknown;
    /// otherwise it must be denied.
    pub fn releases_unknown(&self) -> bool {
        match self.try_release(None, None) {
            Err(Error::Backend { failure: BackendFailure::Unknown, .. }) => true,
            Err(Error::Denied { .. }) => false,
            outcome => panic!("{self:?}: {outcome:?}"),
        }
    }

    /// Asks what became of the tenure.
    pub fn poll(&self) -> PollOutcome {
        self.processor.poll(&self.claim(), PATIENCE).unwrap()
    }

    /// Polls, and expects to hold the key.
    pub fn poll_acquired(&self) -> Grant {
        match self.poll() {
            PollOutcome::Acquired(grant) => grant,
            other => panic!("{self:?}: {other:?}"),
        }
    }

    /// Polls, and expects to wait.
    pub fn poll_waiting(&self) -> Busy {
        match self.poll() {
            PollOutcome::Waiting(busy) => busy,
            other => panic!("{self:?}: {other:?}"),
        }
    }

    /// Polls, and expects to be unknown.
    pub fn poll_gone(&self) {
        assert_eq!(self.poll(), PollOutcome::Gone, "{self:?}");
    }

    /// Renews the lease.
    pub fn extend(&self) -> ExtendOutcome {
        self.processor.extend(&self.claim(), PATIENCE).unwrap()
    }

    /// Renews the lease of a tenure that holds its key.
    pub fn extended(&self) -> Extension {
        match self.extend() {
            ExtendOutcome::Extended(extension) => extension,
            other => panic!("{self:?}: {other:?}"),
        }
    }

    /// Renews the lease, and asks for fresh numbers if the store issues ranges of them.
    pub fn extend_fresh(&self) -> ExtendOutcome {
        if self.processor.limits().numbers {
            self.processor.extend_with_numbers(&self.claim(), PATIENCE).unwrap()
        } else {
            self.extend()
        }
    }

    /// Releases the key.
    pub fn release(&self) -> ReleaseOutcome {
        self.try_release(None, None).unwrap()
    }

    /// Releases the key, and asks for it again for `next`.
    pub fn release_to(&self, next: &Tenure) -> ReleaseOutcome {
        self.try_release(Some(next), None).unwrap()
    }

    /// Asks, with the release, that the key be left free for pollers.
    pub fn release_with(&self, next: Option<&Tenure>, gap: Gap) -> ReleaseOutcome {
        self.try_release(next, Some(gap)).unwrap()
    }

    /// Asks whether the key still contains the locker.
    pub fn probe(&self) -> ProbeOutcome {
        self.processor.probe(&self.claim(), PATIENCE).unwrap()
    }

    /// Returns whether the key still contains the locker.
    pub fn holds(&self) -> bool {
        self.probe() == ProbeOutcome::Ours
    }

    /// What everybody else hears while this tenure holds its key.
    pub fn not_yours(&self) -> NotOurs {
        NotOurs::new(Some(self.locker.clone()))
    }
}
