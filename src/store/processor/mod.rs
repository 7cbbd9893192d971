//! Writing a store of locks: the trait [`LockProcessor`], its requests and its outcomes. Programs that only lock do not need this module.
//!
//! [`DLockGenerator::new`](crate::DLockGenerator::new) takes any [`LockProcessor`]. [`Error::backend`] and its siblings make the errors that a store
//! returns.
//!
//! A store keeps, for each lock key, a *holder* (a locker string with a lease), a *queue* of waiting tenures, and, for
//! all keys together, the *fence*, from which every tenure gets a number that is greater than all before it.
//! Everything that decides who holds a lock is one atomic operation of the store. The contracts below are what the
//! conformance suite (`tests/it/conformance`) checks, on every store alike.

mod inbox;
mod pointers;

use crate::error::{Error, LossCause};
use std::fmt;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

pub use inbox::{Inbox, InboxBreaker, Message};

/// Asks for a key, once for each locker: [`LockProcessor::acquire`].
#[derive(Clone, Copy, Debug)]
pub struct AcquireRequest<'a> {
    /// The lock's unique key.
    pub key: &'a str,
    /// A locker that was never sent before.
    pub locker: &'a str,
    /// How long the store keeps the key without an extension; whole milliseconds.
    pub lease: Duration,
    /// Whether to stand in the queue when the key is busy.
    pub wait: bool,
}

/// Asks again about a locker that was sent by an acquire, or as a release's next locker: [`LockProcessor::poll`].
#[derive(Clone, Copy, Debug)]
pub struct PollRequest<'a> {
    /// The lock's unique key.
    pub key: &'a str,
    /// The locker asked about.
    pub locker: &'a str,
    /// The lease it was sent with.
    pub lease: Duration,
}

/// Renews a lease: [`LockProcessor::extend`].
#[derive(Clone, Copy, Debug)]
pub struct ExtendRequest<'a> {
    /// The lock's unique key.
    pub key: &'a str,
    /// The locker of the tenure.
    pub locker: &'a str,
    /// The lease, counted anew from now.
    pub lease: Duration,
    /// Whether to fetch a range of unissued numbers, too.
    pub fresh_numbers: bool,
}

/// Gives a key back, or gives up waiting for it: [`LockProcessor::release`].
#[derive(Clone, Copy, Debug)]
pub struct ReleaseRequest<'a> {
    /// The lock's unique key.
    pub key: &'a str,
    /// The locker of the tenure that ends.
    pub locker: &'a str,
    /// The lease it was sent with (its entry in the queue is found by both).
    pub lease: Duration,
    /// A fresh locker that takes the key if nobody waits, and else stands at the queue's end; with its lease.
    pub next: Option<(&'a str, Duration)>,
    /// Whether to leave the key free for a while instead, if that was not done of late.
    pub gap: Option<Gap>,
}

/// A while in which a released key is free, but not for us: whoever knows no queue and only asks now and then whether
/// the key is free, as JVM DLock does, finds it so. Both are whole milliseconds, at least one.
///
/// Where waiters hand a key over to one another it is never free, and such a poller would starve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// How long the key stays free: a little more than a poller lets pass between two questions, so that one falls into it.
    pub length: Duration,
    /// How much time passes from the beginning of this gap to that of the key's next one, whoever asks for that.
    pub every: Duration,
}

/// Who holds a key in a gap: what is answered in place of a locker to those that have to wait for the gap's end.
pub(crate) const POLLERS: &str = "(free for pollers)";

/// Asks whether a key still carries a locker: [`LockProcessor::probe`].
#[derive(Clone, Copy, Debug)]
pub struct ProbeRequest<'a> {
    /// The lock's unique key.
    pub key: &'a str,
    /// The locker of the tenure.
    pub locker: &'a str,
}

/// The key is the asker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The fence number of this tenure: greater than every number issued before.
    pub number: u64,
    /// How many tenures wait in the queue.
    pub waiting: u64,
}

/// The key is somebody else's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// The holder's locker, of whatever shape; `(free for pollers)` in a [`Gap`].
    pub holder: String,
    /// When the holder's lease ends unless extended, or when the gap ends; `None` for a key without a time to live, and where
    /// the store did not look.
    pub remaining: Option<Duration>,
}

/// What [`LockProcessor::acquire`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// The key was free, nobody waited: it is the asker's now.
    Acquired(Grant),
    /// The key is somebody else's, or free in a [`Gap`]. With `wait`, the asker stands in the queue.
    Busy(Busy),
    /// The key is somebody else's. The asker wanted to wait, but it is not known to stand in the queue: the store has looked at
    /// nothing but the key, and the time was too short to ask for a place.
    Unqueued {
        /// Who holds the key.
        busy: Busy,
        /// Whether a request for a place was sent and had no answer: it may still be executed, and [`LockProcessor::poll`] tells
        /// what became of it. Else the store knows nothing of the locker.
        under_way: bool,
    },
}

/// What [`LockProcessor::poll`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PollOutcome {
    /// The key is the locker's, since this call or since an earlier one; its lease counts anew.
    Acquired(Grant),
    /// The locker stands in the queue; so it was granted nothing before this answer. The queue lives twice this lease
    /// from now, or longer: a waiter that asks no more is forgotten, `Gone` then.
    Waiting(Busy),
    /// The store knows nothing of this locker, and this call changed nothing: start anew with a fresh one.
    Gone,
}

/// What [`LockProcessor::extend`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtendOutcome {
    /// The lease counts anew.
    Extended {
        /// How many tenures wait in the queue.
        waiting: u64,
        /// With `fresh_numbers`: numbers that no other tenure of this key was or will be given, at most 10,000. `None` also when the
        /// store has none for the moment: the lease counts anew all the same.
        numbers: Option<RangeInclusive<u64>>,
    },
    /// The key is not this locker's; nothing was changed.
    NotOurs(NotOurs),
}

/// What [`LockProcessor::release`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The key is free, in a [`Gap`] or because nobody waits; or it is with the first live waiter.
    Released {
        /// How many tenures wait in the queue.
        waiting: u64,
    },
    /// Nobody waited: the key is with the next locker.
    Passed(Grant),
    /// A waiter got the key, or it is free in a [`Gap`]; the next locker stands at the queue's end.
    Queued(Busy),
    /// The key was not this locker's. It stands in the queue no more; nothing else was changed, the next locker is unknown.
    NotOurs(NotOurs),
}

/// What [`LockProcessor::probe`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// The key carries the locker.
    Ours,
    /// It does not.
    NotOurs(NotOurs),
}

/// What a key carries instead of the locker asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotOurs {
    /// The holder's locker; `None` when the key is free.
    pub holder: Option<String>,
}

impl From<NotOurs> for LossCause {
    fn from(other: NotOurs) -> Self {
        other.holder.map_or(Self::Deleted, |by| Self::TakenOver { by })
    }
}

/// What a store knows of a key, for people: [`LockProcessor::inspect`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// Who holds the key.
    pub holder: Option<Busy>,
    /// How many tenures wait in the queue.
    pub waiting: u64,
}

/// One of the requests, for [`LockProcessor::batch`].
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// See [`LockProcessor::acquire`].
    Acquire(AcquireRequest<'a>),
    /// See [`LockProcessor::poll`].
    Poll(PollRequest<'a>),
    /// See [`LockProcessor::extend`].
    Extend(ExtendRequest<'a>),
    /// See [`LockProcessor::release`].
    Release(ReleaseRequest<'a>),
    /// See [`LockProcessor::probe`].
    Probe(ProbeRequest<'a>),
}

/// The outcome of one [`Request`], of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Of a [`Request::Acquire`].
    Acquire(AcquireOutcome),
    /// Of a [`Request::Poll`].
    Poll(PollOutcome),
    /// Of a [`Request::Extend`].
    Extend(ExtendOutcome),
    /// Of a [`Request::Release`].
    Release(ReleaseOutcome),
    /// Of a [`Request::Probe`].
    Probe(ProbeOutcome),
}

/// Takes the answer to a posted release: [`LockProcessor::post_release`]. It must not block.
pub type ReleaseDone = Box<dyn FnOnce(Result<ReleaseOutcome, Error>) + Send>;

/// A store of locks (JVM: `DLockProcessor`).
///
/// Every method may be called by any number of threads at once, blocks its caller until the store has answered or
/// `limit` is over, and never sends a request twice once it may have been executed. All of them fail with
///
/// * [`Error::Backend`] whose [`BackendFailure`](crate::BackendFailure) says what is known of the command (`Unknown` after a `limit` that ended
///   while it was under way: it may still be executed later),
/// * [`Error::Denied`], [`Error::Conflict`] and [`Error::Unsupported`], which repeat until somebody helps. They say that nothing was done
///   for the locker: it holds, waits or is unknown as before. A request that failed after a part of it was done is `Backend` with `Unknown`,
/// * [`Error::ShutDown`] after [`close`](Self::close).
pub trait LockProcessor: Send + Sync + fmt::Debug + 'static {
    /// Takes the key if it is free and nobody waits for it; one round trip. If it is free but others wait, the first
    /// live one is given it before this asker is looked at. In a [`Gap`] nobody is given it.
    ///
    /// A store that knows that the key is busy says so, also when the limit ends before the asker stands in the queue:
    /// [`AcquireOutcome::Unqueued`].
    ///
    /// Send each locker once: when the outcome is unknown, [`poll`](Self::poll) tells it. A repeated acquire could take
    /// the key a second time for a tenure that has ended.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn acquire(&self, request: &AcquireRequest<'_>, limit: Duration) -> Result<AcquireOutcome, Error>;

    /// Tells what became of a locker; gives a free key to the first live waiter, which may be this one, but not in a
    /// [`Gap`]. Safe to repeat: a locker that holds nothing and stands nowhere is answered `Gone` and changes nothing.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn poll(&self, request: &PollRequest<'_>, limit: Duration) -> Result<PollOutcome, Error>;

    /// Lets the lease count anew if the key still carries the locker; else changes nothing. Safe to repeat.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn extend(&self, request: &ExtendRequest<'_>, limit: Duration) -> Result<ExtendOutcome, Error>;

    /// Ends a tenure: gives the key, if it carries the locker, to the first live waiter, else to the next locker, else
    /// frees it. If it does not carry the locker, takes the locker from the queue and nothing else. Safe to repeat.
    ///
    /// With a [`Gap`] that is due, frees it instead, and leaves the queue as it is, but for the next locker at its end. Until
    /// the gap is over, the key is given to nobody by acquire, poll and release; then the next of them hands it over as ever.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn release(&self, request: &ReleaseRequest<'_>, limit: Duration) -> Result<ReleaseOutcome, Error>;

    /// Ends a tenure as [`release`](Self::release) does, but need not wait for the answer: that goes to `done`, at once or
    /// later, on whichever thread finds it. The request is on its way when this returns, or about to be, in order with what the same client sends about
    /// the key afterwards; it may block until then, at most `limit`. Whether the answer is still to come: then
    /// [`collect`](Self::collect) is to be called now and then.
    ///
    /// The default waits for the answer.
    fn post_release(&self, request: &ReleaseRequest<'_>, limit: Duration, done: ReleaseDone) -> bool {
        done(self.release(request, limit));
        false
    }

    /// Takes in the answers that have come for posted releases, without waiting for more; whether some are still
    /// missing. The default has none.
    fn collect(&self) -> bool {
        false
    }

    /// Tells whether the key still carries the locker, by the authority that would grant it to others (never a stale copy).
    ///
    /// # Errors
    ///
    /// See the trait.
    fn probe(&self, request: &ProbeRequest<'_>, limit: Duration) -> Result<ProbeOutcome, Error>;

    /// Tells who holds a key and how many wait. For people and logs: it may be over when it is read.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn inspect(&self, key: &str, limit: Duration) -> Result<Inspection, Error>;

    /// Runs many requests, in order, and returns as many results. A store behind a network sends them in one go; the
    /// default runs one after another.
    ///
    /// `limit` is for all of them together: requests that were not answered by then fail as in the single methods, those
    /// that were keep their answers. A store behind a network then drops the connection, so that the next attempt of a
    /// renewal goes on a fresh one.
    fn batch(&self, requests: &[Request<'_>], limit: Duration) -> Vec<Result<Outcome, Error>> {
        let begin = Instant::now();
        let left = || limit.saturating_sub(begin.elapsed());
        requests.iter().map(|request| run(self, request, left())).collect()
    }

    /// Opens the inbox of a client (the part of its lockers before the last `-`). When this returns, the store counts
    /// the client's waiting tenures as live and every later message is delivered.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error>;

    /// Sends one message to a client's own inbox, open or not. Called once before a client first asks for a lock, so that a
    /// missing right to send messages fails then and by name, and not as a waiter that is never told. The default does nothing.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn check_inbox(&self, _client: &str, _limit: Duration) -> Result<(), Error> {
        Ok(())
    }

    /// How long a single command may take when the caller sets no other limit. The default is one second.
    fn command_limit(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// The unit in which the store counts leases. A key may stay for one unit longer than [`Busy::remaining`] says. Defaults to 1 ms, as
    /// in Redis, where a key is gone when its last millisecond is over.
    fn tick(&self) -> Duration {
        Duration::from_millis(1)
    }

    /// Whether the store has ever answered; until then a blocking `lock()` fails instead of waiting out an outage, so
    /// that a wrong address or password is seen at once. The default is `true`.
    fn has_answered(&self) -> bool {
        true
    }

    /// Gives back sockets and other resources; later calls fail with [`Error::ShutDown`]. Called when no lock
    /// of the generator needs the store any more; may be called again. The default does nothing. Through an [`Arc`](std::sync::Arc) that
    /// is not the last one it is not called, because other generators may share the store.
    fn close(&self) {}
}

/// Sends one request by the method of its name.
pub(crate) fn run<P>(processor: &P, request: &Request<'_>, limit: Duration) -> Result<Outcome, Error>
where
    P: LockProcessor + ?Sized,
{
    match request {
        Request::Acquire(request) => processor.acquire(request, limit).map(Outcome::Acquire),
        Request::Poll(request) => processor.poll(request, limit).map(Outcome::Poll),
        Request::Extend(request) => processor.extend(request, limit).map(Outcome::Extend),
        Request::Release(request) => processor.release(request, limit).map(Outcome::Release),
        Request::Probe(request) => processor.probe(request, limit).map(Outcome::Probe),
    }
}
