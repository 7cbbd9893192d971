//! The contract of a store.

use super::{Directory, Limit, Outcome, Posting, Request, StoreLimits, WaitQueue};
use crate::error::Error;
use std::fmt;

/// A store of locks (JVM: `DLockProcessor`). [`run`](Self::run) is what it must do; whoever asks it has a method for each request:
/// [`Operations`](super::Operations).
///
/// Any number of threads may call every method at once. Each method with a limit blocks until the store has replied or the limit is
/// over; the others do not block, except [`close`](Self::close). A store never *executes* a request twice: it sends a request again only
/// if it knows that the first one was not executed, or that the server recognises the second one. All methods fail with
///
/// * [`Error::Backend`], whose [`BackendFailure`](crate::BackendFailure) says what is known of the command (`Unknown` after a
///   limit that ended while the command was in flight: it may still be executed later),
/// * [`Error::Denied`], [`Error::Conflict`] and [`Error::Unsupported`], which recur until somebody intervenes. They guarantee
///   that nothing was done for the locker: it holds, waits or is unknown as before. A request that failed after a part of it
///   was done is `Backend` with `Unknown`,
/// * [`Error::ShutDown`] after [`close`](Self::close).
pub trait LockProcessor: Send + Sync + fmt::Debug + 'static {
    /// Runs requests in order, and returns one result for each. A store behind a network sends them together; others run them
    /// [one by one](super::one_by_one). Each request is one atomic operation; all of them together are not.
    ///
    /// `limit` applies to all of them together. Requests that were not answered by then fail; those that were keep their outcomes.
    fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>>;

    /// Returns whether the server of this key may keep a request waiting, while the store has others that will not: it has not answered
    /// lately, or its replicas have not acknowledged lately. The client then asks about the key on a thread of its own, so that other keys
    /// do not wait for it. An [attempt](Limit::Attempt) without such keys should not wait long for a server that does not answer. It must be
    /// cheap. The default is `false`.
    fn keeps_waiting(&self, key: &str) -> bool {
        let _ = key;
        false
    }

    /// Returns what the store can keep to. The default is that of [`StoreLimits`].
    fn limits(&self) -> StoreLimits {
        StoreLimits::default()
    }

    /// Returns whether the store has ever answered. Until then a blocking `lock()` fails instead of waiting for the store, so that a wrong
    /// address or password is noticed at once. It must be cheap. The default is `true`.
    fn has_answered(&self) -> bool {
        true
    }

    /// Takes a function to call whenever another server than before answers, one that may not know what the earlier one knew: it was
    /// restarted, restored from a backup, or promoted. The client then asks at once about every lock that it waits for, and checks every
    /// one that it holds.
    ///
    /// The function is given a number that has risen. It must have returned, or another thread must be calling it, before an answer of the
    /// other server is returned. It does not block; the store may call it on any thread, while it holds no mutex. Each client of the
    /// store gives one, once. The default ignores it, for a store that cannot tell.
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

    /// Returns what the store can tell people of its locks and clients, if it can.
    fn directory(&self) -> Option<&dyn Directory> {
        None
    }

    /// Releases sockets and other resources; later calls fail with [`Error::ShutDown`]. Called when no lock of the generator
    /// needs the store any more; may be called again. It may wait, for a bounded time, until threads of the store have ended. The
    /// default does nothing. An [`Arc`](std::sync::Arc) that is not the last one does not forward the call, because other generators
    /// may share the store.
    fn close(&self) {}
}
