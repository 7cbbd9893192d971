//! The contract of a store, and the methods for each kind of request.

use super::{
    AcquireOutcome, Break, BreakOutcome, Broken, Claim, DelayReleaseOutcome, Directory, ExtendOutcome, Inspection,
    Limit, Outcome, PollOutcome, Posting, ProbeOutcome, ReleaseDelay, ReleaseOutcome, Request, StoreLimits, WaitQueue,
};
use crate::error::{BackendFailure, Error};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A store of locks (JVM: `DLockProcessor`). A store must implement [`run`](Self::run). Its callers use the methods of
/// [`Operations`](super::Operations), one for each request.
///
/// Any number of threads may call every method at once. Each method with a limit blocks until the store has replied or the limit is
/// over. The others do not block, except [`close`](Self::close). A store never *executes* a request twice: it sends a request again only
/// if it knows that the first one was not executed, or that the server recognises the second one. All methods fail with
///
/// * [`Error::Backend`], whose [`BackendFailure`](crate::BackendFailure) says what is known of the command (`Unknown` if the
///   limit ended while the command was in flight: it may still be executed later),
/// * [`Error::Denied`], [`Error::Conflict`] and [`Error::Unsupported`], which recur until somebody intervenes. They guarantee
///   that nothing was done for the locker: it holds, waits or is unknown as before. A request that failed after a part of it
///   was done is `Backend` with `Unknown`,
/// * [`Error::ShutDown`] after [`close`](Self::close).
pub trait LockProcessor: Send + Sync + fmt::Debug + 'static {
    /// Runs requests, and returns one result for each. A store behind a network sends the requests together; others run them [one by
    /// one](super::one_by_one). Each request is one atomic operation; all of them together are not. Requests about the same key are sent in their
    /// order, and run in it. The exception is a request that a server has not executed, because it does not know a script or gives the key to
    /// another server: the store may send it again behind the others.
    ///
    /// `limit` applies to all of them together. Requests that are not answered by then fail. The others keep their outcomes.
    fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>>;

    /// Returns whether the server of this key may keep a request waiting, because the server has not answered lately, or its replicas have not
    /// acknowledged lately. Only for a store with several servers. The client then asks about the key on a separate thread, so that other keys
    /// do not wait for it. An [attempt](Limit::Attempt) for other keys should not wait long for a server that does not answer. This method must
    /// be cheap. The default is `false`.
    fn keeps_waiting(&self, key: &str) -> bool {
        let _ = key;
        false
    }

    /// Returns whether an answer about this key, for which a task has waited since `since`, is expected sooner than a sleeping core can be woken, as
    /// from a server on the same machine. If so, the task is polled again at once, and otherwise when its answer is there. The store should yield
    /// the core to other threads ([`yield_now`](std::thread::yield_now)) before it returns `true`.
    ///
    /// The client calls this on threads that poll tasks, so it must be cheap, and must not block. The default is `false`. A store that wraps another
    /// store should forward the call.
    fn is_expected_soon(&self, key: &str, since: Instant) -> bool {
        let _ = (key, since);
        false
    }

    /// Does work that may wait until the client has the outcomes of a round of extensions and probes, such as work that makes the next rounds
    /// cheaper. The client calls it after each round, on the thread that makes the rounds. So it may block until the limit is over, and no longer.
    /// The limit may be a millisecond. The default does nothing. A store that wraps another store must forward the call.
    ///
    /// No outcome may rely on it. It is not called when the client is closed, nor after a round on servers that have fallen silent, nor after
    /// an extension that a thread of the program makes. Several clients of one store may call it at the same time, and it is not told whose round is
    /// over. A panic is logged, and the rest of the work is left undone.
    fn between_rounds(&self, limit: Duration) {
        let _ = limit;
    }

    /// Returns the limits of the store. The default is that of [`StoreLimits`].
    fn limits(&self) -> StoreLimits {
        StoreLimits::default()
    }

    /// Returns whether the store has ever answered. Until then a blocking `lock()` fails instead of waiting for the store, so that a wrong
    /// address or password is noticed at once. This method must be cheap. The default is `true`.
    fn has_answered(&self) -> bool {
        true
    }

    /// Takes a function to call whenever another server than before answers, which may lack data of the earlier one: it was
    /// restarted, restored from a backup, or promoted. The client then asks at once about every lock that it waits for, and checks every
    /// lock that it holds.
    ///
    /// The store passes a number that is greater than before. Before the store returns an answer of the other server, the function must have
    /// returned, or another thread must be calling it. The function does not block. The store may call it on any thread that holds no mutex
    /// of the store. Each client of the store gives one function, once. The default ignores it, for a store that cannot tell.
    fn on_new_server(&self, told: Box<dyn Fn(u64) + Send + Sync>) {
        drop(told);
    }

    /// Returns the inboxes of the queue, if the store has one for each key.
    fn queue(&self) -> Option<&dyn WaitQueue> {
        None
    }

    /// Returns the way to post a release, if the store has one.
    fn posting(&self) -> Option<&dyn Posting> {
        None
    }

    /// Returns the directory of the store's locks and clients, if the store has one.
    fn directory(&self) -> Option<&dyn Directory> {
        None
    }

    /// Releases sockets and other resources. Later calls fail with [`Error::ShutDown`]. It is called when no lock of the generator needs the
    /// store any more, and may be called again. It may wait, for a bounded time, until threads of the store have ended. The default does
    /// nothing: it is for a store that releases everything when it is dropped, and whose later calls need not fail. An [`Arc`](std::sync::Arc)
    /// forwards the call only if it is the last one, because other generators may share the store.
    fn close(&self) {}
}

/// The methods for each kind of [`Request`], for callers of a store. Every [`LockProcessor`] has these methods, and cannot replace them.
/// Each method runs its request, and blocks until the store has replied or the caller's limit is over.
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

    /// Runs a [`Request::DelayRelease`].
    fn delay_release(
        &self,
        claim: &Claim<'_>,
        delay: ReleaseDelay<'_>,
        limit: Duration,
    ) -> Result<DelayReleaseOutcome, Error> {
        ask(self, Request::DelayRelease(*claim, delay), limit)
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

/// Forwards every method to the store behind the pointer. The last pointer closes the store. So if several generators share a
/// store, the end of the first generator does not close it.
macro_rules! forward_to_target {
    ($($pointer:ident is_last: $is_last:expr),+ $(,)?) => { $(
        impl<P: LockProcessor + ?Sized> LockProcessor for $pointer<P> {
            fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
                (**self).run(requests, limit)
            }

            fn keeps_waiting(&self, key: &str) -> bool {
                (**self).keeps_waiting(key)
            }

            fn is_expected_soon(&self, key: &str, since: Instant) -> bool {
                (**self).is_expected_soon(key, since)
            }

            fn between_rounds(&self, limit: Duration) {
                (**self).between_rounds(limit);
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

#[cfg(test)]
#[path = "../../tests/white_box/port/lock_processor.rs"]
mod tests;
