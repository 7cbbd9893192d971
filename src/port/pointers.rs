//! Implements [`LockProcessor`] for pointers to a store.

use super::{Directory, Limit, LockProcessor, Outcome, Posting, Request, StoreLimits, WaitQueue};
use crate::error::Error;
use std::sync::Arc;

/// Forwards every method to the store behind the pointer. Only the last pointer closes the store: of several generators that
/// share it, the first one to end does not.
macro_rules! forward_to_target {
    ($($pointer:ident is_last: $is_last:expr),+ $(,)?) => { $(
        impl<P: LockProcessor + ?Sized> LockProcessor for $pointer<P> {
            fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
                (**self).run(requests, limit)
            }

            fn keeps_waiting(&self, key: &str) -> bool {
                (**self).keeps_waiting(key)
            }

            fn limits(&self) -> StoreLimits {
                (**self).limits()
            }

            fn has_answered(&self) -> bool {
                (**self).has_answered()
            }

            fn on_new_server(&self, told: Box<dyn Fn(u64) + Send + Sync>) {
                (**self).on_new_server(told);
            }

            fn queue(&self) -> Option<&dyn WaitQueue> {
                (**self).queue()
            }

            fn posting(&self) -> Option<&dyn Posting> {
                (**self).posting()
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
