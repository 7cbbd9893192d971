//! One request at a time, with an outcome of its own kind.

use super::{
    AcquireOutcome, Break, BreakOutcome, Broken, Claim, ExtendOutcome, Inspection, Limit, LockProcessor, Outcome,
    PollOutcome, ProbeOutcome, ReleaseOutcome, Request,
};
use crate::error::{BackendFailure, Error};
use std::time::Duration;

/// A method for each kind of [`Request`], for whoever asks a store. Every [`LockProcessor`] has them, and none can replace them: each runs
/// its request, and blocks until the store has replied or the caller's limit is over.
///
/// All methods fail as [`LockProcessor::run`] does, and with [`Error::Backend`] (unknown) if the store answers with an outcome of another
/// kind.
#[expect(clippy::missing_errors_doc, reason = "the trait says it once for all")]
pub trait Operations: LockProcessor {
    /// Runs one request.
    fn run_one(&self, request: Request<'_>, limit: Limit) -> Result<Outcome, Error> {
        let results = self.run(std::slice::from_ref(&request), limit);
        results.into_iter().next().unwrap_or_else(|| Err(unanswered()))
    }

    /// Runs a [`Request::Acquire`].
    fn acquire(&self, claim: &Claim<'_>, limit: Duration) -> Result<AcquireOutcome, Error> {
        ask(self, Request::Acquire(*claim), limit)
    }

    /// Runs a [`Request::Join`].
    fn join(&self, claim: &Claim<'_>, limit: Duration) -> Result<AcquireOutcome, Error> {
        ask(self, Request::Join(*claim), limit)
    }

    /// Runs a [`Request::Poll`].
    fn poll(&self, claim: &Claim<'_>, limit: Duration) -> Result<PollOutcome, Error> {
        ask(self, Request::Poll(*claim), limit)
    }

    /// Runs a [`Request::Extend`].
    fn extend(&self, claim: &Claim<'_>, limit: Duration) -> Result<ExtendOutcome, Error> {
        ask(self, Request::Extend(*claim), limit)
    }

    /// Runs a [`Request::ExtendWithNumbers`].
    fn extend_with_numbers(&self, claim: &Claim<'_>, limit: Duration) -> Result<ExtendOutcome, Error> {
        ask(self, Request::ExtendWithNumbers(*claim), limit)
    }

    /// Runs a [`Request::Release`].
    fn release(&self, claim: &Claim<'_>, limit: Duration) -> Result<ReleaseOutcome, Error> {
        ask(self, Request::Release(*claim), limit)
    }

    /// Runs a [`Request::HandOver`].
    fn hand_over(&self, claim: &Claim<'_>, next: &Claim<'_>, limit: Duration) -> Result<ReleaseOutcome, Error> {
        ask(self, Request::HandOver(*claim, *next), limit)
    }

    /// Runs a [`Request::Probe`].
    fn probe(&self, claim: &Claim<'_>, limit: Duration) -> Result<ProbeOutcome, Error> {
        ask(self, Request::Probe(*claim), limit)
    }

    /// Runs a [`Request::Inspect`].
    fn inspect(&self, key: &str, limit: Duration) -> Result<Inspection, Error> {
        ask(self, Request::Inspect { key }, limit)
    }

    /// Runs a [`Request::Settle`].
    fn settle(&self, claim: &Claim<'_>, limit: Duration) -> Result<(), Error> {
        ask(self, Request::Settle(*claim), limit)
    }

    /// Runs a [`Request::Break`].
    fn break_hold(&self, order: &Break<'_>, limit: Duration) -> Result<BreakOutcome, Error> {
        ask(self, Request::Break(*order), limit)
    }

    /// Runs a [`Request::Broken`].
    fn broken(&self, key: &str, locker: &str, limit: Duration) -> Result<Option<Broken>, Error> {
        ask(self, Request::Broken { key, locker }, limit)
    }
}

impl<P: LockProcessor + ?Sized> Operations for P {}

fn ask<P, T>(store: &P, request: Request<'_>, limit: Duration) -> Result<T, Error>
where
    P: LockProcessor + ?Sized,
    T: TryFrom<Outcome, Error = Error>,
{
    store.run_one(request, Limit::Call(limit))?.try_into()
}

/// The error for a request that has no result.
pub(crate) fn unanswered() -> Error {
    Error::backend(BackendFailure::Unknown, "the store returned fewer results than there were requests")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store that answers everything alike.
    #[derive(Debug)]
    struct Alike(Vec<Outcome>);

    impl LockProcessor for Alike {
        fn run(&self, _: &[Request<'_>], _: Limit) -> Vec<Result<Outcome, Error>> {
            self.0.iter().cloned().map(Ok).collect()
        }
    }

    #[test]
    fn an_outcome_of_another_kind_and_no_outcome_are_errors_that_leave_all_open() {
        let claim = Claim::new("key", "client", "client-1", Duration::from_secs(30));
        for outcomes in [vec![], vec![Outcome::Poll(PollOutcome::Gone)]] {
            let store = Alike(outcomes);
            let failure = store.acquire(&claim, Duration::ZERO).expect_err("no outcome of an acquire");
            assert!(matches!(failure, Error::Backend { failure: BackendFailure::Unknown, .. }), "{failure}");
            assert_eq!(store.poll(&claim, Duration::ZERO).is_ok(), !store.0.is_empty());
        }
    }
}
