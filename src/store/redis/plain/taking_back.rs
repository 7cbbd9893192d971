//! Takes back what a request has got and must not keep: a plain attempt, or a request that too few replicas have acknowledged.

use super::given_up::GivenUp;
use crate::error::Error;
use crate::port::{Claim, Outcome, Request};
use crate::store::redis::net::address::Address;
use std::time::{Duration, Instant};

/// What is needed to release a locker, and to remember it if that is not answered.
pub(crate) struct TakingBack<'a, S> {
    /// Knows which words must be hidden when an error of the server is shown.
    pub(crate) address: &'a Address,
    pub(crate) given_up: &'a GivenUp,
    /// Carries out one request by its script, within a limit.
    pub(crate) by_script: S,
}

impl<S: Fn(Request<'_>, Duration) -> Result<Outcome, Error>> TakingBack<'_, S> {
    /// Takes back what a request has got and must not keep, because of this error. Returns the error with which the request fails.
    pub(crate) fn undo(&self, claim: &Claim<'_>, error: Error, limit: Duration) -> Error {
        match self.take_back(claim, limit) {
            Ok(()) => self.address.hide(error),
            Err(Error::Backend { failure, message, source }) => {
                let message = format!("{}; its release is not answered: {message}", self.address.hide(error));
                Error::Backend { failure, message, source }
            }
            Err(other) => other,
        }
    }

    /// Removes whatever a plain attempt may have left in the store.
    pub(super) fn take_back(&self, claim: &Claim<'_>, limit: Duration) -> Result<(), Error> {
        let start = Instant::now();
        let mut result = (self.by_script)(Request::Release(claim.with_poller_gap(None)), limit).map(drop);
        if matches!(result, Err(Error::Conflict { .. })) {
            // The queue or the fence is of another type, so the release cannot hand over. A lease that ends at once frees the key.
            let ended = Claim::new(claim.key, claim.client, claim.locker, Duration::ZERO);
            result = (self.by_script)(Request::Extend(ended), limit.saturating_sub(start.elapsed())).map(drop);
        }
        match result {
            Ok(()) => Ok(()),
            Err(Error::ShutDown) => Err(Error::ShutDown),
            // Whatever the error is, the locker may hold the key, and a release may still be executed late.
            Err(error) => {
                self.given_up.add(claim.locker);
                Err(error.into_unknown())
            }
        }
    }
}
