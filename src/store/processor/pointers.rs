//! Implements [`LockProcessor`] for pointers to a store.

use super::{
    AcquireOutcome, Breaking, Claim, Directory, ExtendOutcome, Inspection, LockProcessor, Numbers, Outcome,
    PollOutcome, Posting, ProbeOutcome, ReleaseOutcome, Request, Settling, Status, StoreLimits, WaitQueue,
};
use crate::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// Forwards every method to the store behind the pointer. Only the last pointer closes the store: of several generators that
/// share it, the first one to end does not.
macro_rules! forward_to_target {
    ($($pointer:ident is_last: $is_last:expr),+ $(,)?) => { $(
        impl<P: LockProcessor + ?Sized> LockProcessor for $pointer<P> {
            fn acquire(&self, claim: &Claim<'_>, limit: Duration) -> Result<AcquireOutcome, Error> {
                (**self).acquire(claim, limit)
            }

            fn extend(&self, claim: &Claim<'_>, limit: Duration) -> Result<ExtendOutcome, Error> {
                (**self).extend(claim, limit)
            }

            fn release(&self, claim: &Claim<'_>, limit: Duration) -> Result<ReleaseOutcome, Error> {
                (**self).release(claim, limit)
            }

            fn inspect(&self, key: &str, limit: Duration) -> Result<Inspection, Error> {
                (**self).inspect(key, limit)
            }

            fn poll(&self, claim: &Claim<'_>, limit: Duration) -> Result<PollOutcome, Error> {
                (**self).poll(claim, limit)
            }

            fn probe(&self, claim: &Claim<'_>, limit: Duration) -> Result<ProbeOutcome, Error> {
                (**self).probe(claim, limit)
            }

            fn batch(&self, requests: &[Request<'_>], limit: Duration) -> Vec<Result<Outcome, Error>> {
                (**self).batch(requests, limit)
            }

            fn keeps_waiting(&self, key: &str) -> bool {
                (**self).keeps_waiting(key)
            }

            fn limits(&self) -> StoreLimits {
                (**self).limits()
            }

            fn status(&self) -> Status {
                (**self).status()
            }

            fn on_new_server(&self, told: Box<dyn Fn() + Send + Sync>) {
                (**self).on_new_server(told);
            }

            fn queue(&self) -> Option<&dyn WaitQueue> {
                (**self).queue()
            }

            fn numbers(&self) -> Option<&dyn Numbers> {
                (**self).numbers()
            }

            fn posting(&self) -> Option<&dyn Posting> {
                (**self).posting()
            }

            fn settling(&self) -> Option<&dyn Settling> {
                (**self).settling()
            }

            fn breaking(&self) -> Option<&dyn Breaking> {
                (**self).breaking()
            }

            fn directory(&self) -> Option<&dyn Directory> {
                (**self).directory()
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
