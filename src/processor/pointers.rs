//! Pointers to a store.

use super::{
    AcquireOutcome, AcquireRequest, ExtendOutcome, ExtendRequest, Inbox, Inspection, LockProcessor, Outcome,
    PollOutcome, PollRequest, ProbeOutcome, ProbeRequest, ReleaseDone, ReleaseOutcome, ReleaseRequest, Request,
};
use crate::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// A pointer to a store is that store. A shared one is not closed by the first of its generators that ends: it closes what it
/// has when the last pointer is dropped.
macro_rules! forward_to_target {
    ($($pointer:ident closes: $closes:expr),+ $(,)?) => { $(
        impl<P: LockProcessor + ?Sized> LockProcessor for $pointer<P> {
            fn acquire(&self, request: &AcquireRequest<'_>, limit: Duration) -> Result<AcquireOutcome, Error> {
                (**self).acquire(request, limit)
            }

            fn poll(&self, request: &PollRequest<'_>, limit: Duration) -> Result<PollOutcome, Error> {
                (**self).poll(request, limit)
            }

            fn extend(&self, request: &ExtendRequest<'_>, limit: Duration) -> Result<ExtendOutcome, Error> {
                (**self).extend(request, limit)
            }

            fn release(&self, request: &ReleaseRequest<'_>, limit: Duration) -> Result<ReleaseOutcome, Error> {
                (**self).release(request, limit)
            }

            fn post_release(&self, request: &ReleaseRequest<'_>, limit: Duration, done: ReleaseDone) -> bool {
                (**self).post_release(request, limit, done)
            }

            fn collect(&self) -> bool {
                (**self).collect()
            }

            fn probe(&self, request: &ProbeRequest<'_>, limit: Duration) -> Result<ProbeOutcome, Error> {
                (**self).probe(request, limit)
            }

            fn inspect(&self, key: &str, limit: Duration) -> Result<Inspection, Error> {
                (**self).inspect(key, limit)
            }

            fn batch(&self, requests: &[Request<'_>], limit: Duration) -> Vec<Result<Outcome, Error>> {
                (**self).batch(requests, limit)
            }

            fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error> {
                (**self).open_inbox(client, limit)
            }

            fn check_inbox(&self, client: &str, limit: Duration) -> Result<(), Error> {
                (**self).check_inbox(client, limit)
            }

            fn command_limit(&self) -> Duration {
                (**self).command_limit()
            }

            fn tick(&self) -> Duration {
                (**self).tick()
            }

            fn has_answered(&self) -> bool {
                (**self).has_answered()
            }

            fn close(&self) {
                if $closes {
                    (**self).close();
                }
            }
        }
    )+ };
}

forward_to_target!(Arc closes: false, Box closes: true);
