//! Implements [`LockProcessor`] for pointers to a store.

use super::{
    AcquireOutcome, AcquireRequest, ExtendOutcome, ExtendRequest, Inbox, Inspection, LockProcessor, Outcome,
    PollOutcome, PollRequest, ProbeOutcome, ProbeRequest, ReleaseDone, ReleaseOutcome, ReleaseRequest, Request,
};
use crate::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// Forwards every method to the store behind the pointer. Only the last pointer closes the store: of several generators that
/// share it, the first one to end does not.
macro_rules! forward_to_target {
    ($($pointer:ident is_last: $is_last:expr),+ $(,)?) => { $(
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
                let is_last: fn(&Self) -> bool = $is_last;
                if is_last(self) {
                    (**self).close();
                }
            }
        }
    )+ };
}

forward_to_target!(Arc is_last: |this| Arc::strong_count(this) == 1, Box is_last: |_| true);
