//! The contract of a store.

use super::{
    AcquireOutcome, Breaking, Claim, Directory, ExtendOutcome, Extension, Grant, Inspection, Numbers, Outcome,
    PollOutcome, Posting, ProbeOutcome, ReleaseOutcome, Request, Settling, Status, StoreLimits, WaitQueue,
};
use crate::error::Error;
use std::fmt;
use std::time::{Duration, Instant};

/// A store of locks (JVM: `DLockProcessor`).
///
/// Any number of threads may call every method at once. Each method with a `limit` blocks until the store has replied or the limit is
/// over; the others do not block, except [`close`](Self::close). A store never *executes* a request twice: it sends a request again only
/// if it knows that the first one was not executed, or that the server recognises the second one. All methods fail with
///
/// * [`Error::Backend`], whose [`BackendFailure`](crate::BackendFailure) says what is known of the command (`Unknown` after a
///   `limit` that ended while the command was in flight: it may still be executed later),
/// * [`Error::Denied`], [`Error::Conflict`] and [`Error::Unsupported`], which recur until somebody intervenes. They guarantee
///   that nothing was done for the locker: it holds, waits or is unknown as before. A request that failed after a part of it
///   was done is `Backend` with `Unknown`,
/// * [`Error::ShutDown`] after [`close`](Self::close).
pub trait LockProcessor: Send + Sync + fmt::Debug + 'static {
    /// Takes the key if it is free and nobody waits for it.
    ///
    /// A client sends each locker only once. If the outcome is unknown, [`poll`](Self::poll) tells it. A repeated acquire could take the
    /// key a second time for a tenure that has ended.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn acquire(&self, claim: &Claim<'_>, limit: Duration) -> Result<AcquireOutcome, Error>;

    /// Starts the lease anew if the key still contains the locker; otherwise changes nothing. Safe to repeat.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn extend(&self, claim: &Claim<'_>, limit: Duration) -> Result<ExtendOutcome, Error>;

    /// Ends a tenure: frees the key if it contains the locker. Removes the locker from the queue, if there is one. Safe to repeat.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn release(&self, claim: &Claim<'_>, limit: Duration) -> Result<ReleaseOutcome, Error>;

    /// Returns who holds a key and how many wait. For people and logs: the answer may be out of date when it is read.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn inspect(&self, key: &str, limit: Duration) -> Result<Inspection, Error>;

    /// Returns what became of a locker. Safe to repeat: for a locker that neither holds nor waits, it returns `Gone` and changes nothing.
    ///
    /// The default extends the lease, for which [`Extension::number`] must be set.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn poll(&self, claim: &Claim<'_>, limit: Duration) -> Result<PollOutcome, Error> {
        match self.extend(claim, limit)? {
            ExtendOutcome::Extended(Extension { number: Some(number), waiting, .. }) => {
                Ok(PollOutcome::Acquired(Grant::new(number, waiting)))
            }
            ExtendOutcome::Extended(_) => {
                Err(Error::unsupported("the store neither implements poll nor sets Extension::number"))
            }
            ExtendOutcome::NotOurs(_) => Ok(PollOutcome::Gone),
        }
    }

    /// Returns whether the key still contains the locker, as known to the authority that would grant it to others (never a
    /// stale copy). The default extends the lease.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn probe(&self, claim: &Claim<'_>, limit: Duration) -> Result<ProbeOutcome, Error> {
        Ok(match self.extend(claim, limit)? {
            ExtendOutcome::Extended(_) => ProbeOutcome::Ours,
            ExtendOutcome::NotOurs(other) => ProbeOutcome::NotOurs(other),
        })
    }

    /// Runs several requests in order, and returns one result for each. A store behind a network sends them together; the
    /// default runs one after another.
    ///
    /// `limit` applies to all of them together. Requests that were not answered by then fail as in the single methods; those
    /// that were keep their outcomes. If a request of a batch had no answer, the next attempt of a renewal should not depend on whatever
    /// carried this one: a store behind a network drops the connection.
    fn batch(&self, requests: &[Request<'_>], limit: Duration) -> Vec<Result<Outcome, Error>> {
        let begin = Instant::now();
        let left = || limit.saturating_sub(begin.elapsed());
        requests.iter().map(|request| request.send(self, left())).collect()
    }

    /// Returns whether the server of this key may keep a request waiting, while the store has others that will not: it has not answered
    /// lately, or its replicas have not acknowledged lately. The client then asks about the key on a thread of its own, so that other keys
    /// do not wait for it. A [`batch`](Self::batch) without such keys should not wait long for a server that does not answer. It must be
    /// cheap. The default is `false`.
    fn keeps_waiting(&self, key: &str) -> bool {
        let _ = key;
        false
    }

    /// Returns what the store can keep to. The default is that of [`StoreLimits`].
    fn limits(&self) -> StoreLimits {
        StoreLimits::default()
    }

    /// Returns how the store is. It is asked after requests that lock, renew or poll, so it must be cheap. The default is [`Status::answering`].
    fn status(&self) -> Status {
        Status::answering()
    }

    /// Takes a function to call after each rise of [`Status::server`], so that the client looks at once and not only after its next request.
    /// The function does not block; the store may call it on any thread, while it holds no mutex. Each client of the store gives one, once.
    /// The default ignores it.
    fn on_new_server(&self, told: Box<dyn Fn() + Send + Sync>) {
        drop(told);
    }

    /// Returns the queue, if the store has one for each key.
    fn queue(&self) -> Option<&dyn WaitQueue> {
        None
    }

    /// Returns the source of ranges of numbers, if the store has one.
    fn numbers(&self) -> Option<&dyn Numbers> {
        None
    }

    /// Returns the way to post a release, if the store has one.
    fn posting(&self) -> Option<&dyn Posting> {
        None
    }

    /// Returns the way to end a locker for certain, if the store has one.
    fn settling(&self) -> Option<&dyn Settling> {
        None
    }

    /// Returns the way to take a key from its holder by force, if the store has one.
    fn breaking(&self) -> Option<&dyn Breaking> {
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

impl Request<'_> {
    /// Sends this request to a store, by the method of the same name, and blocks as that method does, for at most `limit`.
    ///
    /// # Errors
    ///
    /// See [`LockProcessor`]; [`Error::Unsupported`] for a request that needs a capability that the store does not have.
    pub fn send<P>(&self, store: &P, limit: Duration) -> Result<Outcome, Error>
    where
        P: LockProcessor + ?Sized,
    {
        match self {
            Self::Acquire(claim) => store.acquire(claim, limit).map(Outcome::Acquire),
            Self::Join(claim) => {
                let queue = store.queue().ok_or_else(|| lacks("a queue"))?;
                queue.join(claim, limit).map(Outcome::Acquire)
            }
            Self::Poll(claim) => store.poll(claim, limit).map(Outcome::Poll),
            Self::Extend(claim) => store.extend(claim, limit).map(Outcome::Extend),
            Self::ExtendWithNumbers(claim) => {
                let numbers = store.numbers().ok_or_else(|| lacks("ranges of numbers"))?;
                numbers.extend_with_numbers(claim, limit).map(Outcome::Extend)
            }
            Self::Release(claim) => store.release(claim, limit).map(Outcome::Release),
            Self::HandOver(claim, next) => {
                let queue = store.queue().ok_or_else(|| lacks("a queue"))?;
                queue.hand_over(claim, next, limit).map(Outcome::Release)
            }
            Self::Probe(claim) => store.probe(claim, limit).map(Outcome::Probe),
        }
    }
}

fn lacks(capability: &str) -> Error {
    Error::unsupported(format!("the store does not have {capability}"))
}
