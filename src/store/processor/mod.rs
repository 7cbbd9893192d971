//! How to write a store of locks: the trait [`LockProcessor`], its requests and its outcomes. Programs that only lock do not
//! need this module.
//!
//! [`DLockGenerator::new`](crate::DLockGenerator::new) takes any [`LockProcessor`]. [`Error::backend`] and the functions beside
//! it create the errors that a store returns.
//!
//! A store keeps a *holder* (a locker string with a lease) and a *queue* of waiting tenures for each lock key. For all keys
//! together it keeps the *fence*, which gives every tenure a number greater than all earlier ones. Everything that decides who
//! holds a lock is one atomic operation of the store. The conformance suite (`tests/it/conformance`) checks the contracts below
//! on every store alike.

mod inbox;
mod pointers;

use crate::error::{Error, LossCause};
use std::fmt;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

pub use inbox::{Inbox, InboxBreaker, Message};

/// Asks for a key, once per locker: [`LockProcessor::acquire`].
#[derive(Clone, Copy, Debug)]
pub struct AcquireRequest<'a> {
    /// The lock's unique key.
    pub key: &'a str,
    /// A locker that was never sent before.
    pub locker: &'a str,
    /// How long the store keeps the key without an extension; whole milliseconds.
    pub lease: Duration,
    /// Whether to join the queue if the key is busy.
    pub wait: bool,
}

/// Asks again about a locker that was sent by an acquire, or as the next locker of a release: [`LockProcessor::poll`].
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
    /// The lease, which starts anew at this call.
    pub lease: Duration,
    /// Whether to fetch a range of unissued fence numbers, too.
    pub fresh_numbers: bool,
}

/// Gives a key back, or stops waiting for it: [`LockProcessor::release`].
#[derive(Clone, Copy, Debug)]
pub struct ReleaseRequest<'a> {
    /// The lock's unique key.
    pub key: &'a str,
    /// The locker of the tenure that ends.
    pub locker: &'a str,
    /// The lease it was sent with (the store finds its entry in the queue by both).
    pub lease: Duration,
    /// A fresh locker, with its lease, that takes the key if nobody waits, and otherwise joins the end of the queue.
    pub next: Option<(&'a str, Duration)>,
    /// If set, the key is left free for this gap instead, unless it had one recently.
    pub gap: Option<Gap>,
}

/// A period in which a released key is free, but not for clients that use the queue. A poller, which only asks now and then
/// whether the key is free, as JVM DLock does, finds it free. Both fields are whole milliseconds, at least one.
///
/// Where waiters hand a key over to one another, the key is never free, and such a poller would starve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// How long the key stays free: a little longer than a poller's pause between two questions, so that one falls into the
    /// gap.
    pub length: Duration,
    /// The time from the beginning of this gap to the earliest beginning of the key's next one, whoever asks for that.
    pub every: Duration,
}

/// The holder that the store reports for a key in a gap, in place of a locker, to clients that must wait for the gap's end.
pub(crate) const POLLERS: &str = "(free for pollers)";

/// Asks whether a key still contains a locker: [`LockProcessor::probe`].
#[derive(Clone, Copy, Debug)]
pub struct ProbeRequest<'a> {
    /// The lock's unique key.
    pub key: &'a str,
    /// The locker of the tenure.
    pub locker: &'a str,
}

/// The key belongs to the asker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The fence number of this tenure: greater than every number issued earlier.
    pub number: u64,
    /// How many tenures wait in the queue.
    pub waiting: u64,
}

/// The key belongs to somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// The holder's locker, in any format; `(free for pollers)` in a [`Gap`].
    pub holder: String,
    /// The time until the holder's lease ends if it is not extended, or until the gap ends. `None` for a key that never
    /// expires, and where the store did not check.
    pub remaining: Option<Duration>,
}

/// The outcome of [`LockProcessor::acquire`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// The key was free and nobody waited: it now belongs to the asker.
    Acquired(Grant),
    /// The key belongs to somebody else, or is free in a [`Gap`]. With `wait`, the asker is in the queue.
    Busy(Busy),
    /// The key belongs to somebody else. The asker wanted to wait, but may not be in the queue: the store has read nothing but
    /// the key, and there was too little time to ask for a place.
    Unqueued {
        /// The holder of the key.
        busy: Busy,
        /// Whether a request for a place was sent and had no reply. If so, it may still be executed, and
        /// [`LockProcessor::poll`] tells its outcome. If not, the store does not know the locker.
        under_way: bool,
    },
}

/// The outcome of [`LockProcessor::poll`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PollOutcome {
    /// The key belongs to the locker, since this call or an earlier one. Its lease starts anew.
    Acquired(Grant),
    /// The locker is in the queue, so it was not granted the key before this reply. The queue is kept for at least twice this
    /// lease from now. A waiter that stops polling is forgotten: a later poll returns `Gone`.
    Waiting(Busy),
    /// The store does not know this locker, and this call changed nothing. Start again with a fresh locker.
    Gone,
}

/// The outcome of [`LockProcessor::extend`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtendOutcome {
    /// The lease starts anew.
    Extended {
        /// How many tenures wait in the queue.
        waiting: u64,
        /// With `fresh_numbers`: numbers that no other tenure of this key was or will be given, at most 10,000. `None` also if
        /// the store has none at the moment; the lease starts anew nevertheless.
        numbers: Option<RangeInclusive<u64>>,
    },
    /// The key does not belong to this locker; nothing was changed.
    NotOurs(NotOurs),
}

/// The outcome of [`LockProcessor::release`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The key is free, in a [`Gap`] or because nobody waits, or it was given to the first live waiter.
    Released {
        /// How many tenures wait in the queue.
        waiting: u64,
    },
    /// Nobody waited: the key was given to the next locker.
    Passed(Grant),
    /// A waiter got the key, or it is free in a [`Gap`]. The next locker is at the end of the queue.
    Queued(Busy),
    /// The key did not belong to this locker. The locker is no longer in the queue. Nothing else was changed, and the store
    /// does not know the next locker.
    NotOurs(NotOurs),
}

/// The outcome of [`LockProcessor::probe`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// The key contains the locker.
    Ours,
    /// The key does not contain the locker.
    NotOurs(NotOurs),
}

/// What a key contains instead of the locker asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotOurs {
    /// The holder's locker; `None` if the key is free.
    pub holder: Option<String>,
}

impl From<NotOurs> for LossCause {
    fn from(other: NotOurs) -> Self {
        other.holder.map_or(Self::Deleted, |by| Self::TakenOver { by })
    }
}

/// What a store knows about a key, for people: [`LockProcessor::inspect`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The holder of the key; `None` if nobody holds it.
    pub holder: Option<Busy>,
    /// How many tenures wait in the queue.
    pub waiting: u64,
}

/// Any of the requests, for [`LockProcessor::batch`].
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
    /// The outcome of a [`Request::Acquire`].
    Acquire(AcquireOutcome),
    /// The outcome of a [`Request::Poll`].
    Poll(PollOutcome),
    /// The outcome of a [`Request::Extend`].
    Extend(ExtendOutcome),
    /// The outcome of a [`Request::Release`].
    Release(ReleaseOutcome),
    /// The outcome of a [`Request::Probe`].
    Probe(ProbeOutcome),
}

/// Receives the reply to a posted release: [`LockProcessor::post_release`]. It must not block.
pub type ReleaseDone = Box<dyn FnOnce(Result<ReleaseOutcome, Error>) + Send>;

/// A store of locks (JVM: `DLockProcessor`).
///
/// Any number of threads may call every method at once. Each method blocks until the store has replied or `limit` is over. It
/// never sends a request again if the request may have been executed. All methods fail with
///
/// * [`Error::Backend`], whose [`BackendFailure`](crate::BackendFailure) says what is known of the command (`Unknown` after a
///   `limit` that ended while the command was in flight: it may still be executed later),
/// * [`Error::Denied`], [`Error::Conflict`] and [`Error::Unsupported`], which recur until somebody intervenes. They guarantee
///   that nothing was done for the locker: it holds, waits or is unknown as before. A request that failed after a part of it
///   was done is `Backend` with `Unknown`,
/// * [`Error::ShutDown`] after [`close`](Self::close).
pub trait LockProcessor: Send + Sync + fmt::Debug + 'static {
    /// Takes the key if it is free and nobody waits for it, in one round trip. If the key is free but others wait, the first
    /// live waiter gets it before this asker is considered. In a [`Gap`] nobody gets it.
    ///
    /// If a store knows that the key is busy, it says so even when the limit ends before the asker is in the queue:
    /// [`AcquireOutcome::Unqueued`].
    ///
    /// Send each locker only once. If the outcome is unknown, [`poll`](Self::poll) tells it. A repeated acquire could take the
    /// key a second time for a tenure that has ended.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn acquire(&self, request: &AcquireRequest<'_>, limit: Duration) -> Result<AcquireOutcome, Error>;

    /// Returns what became of a locker. Gives a free key to the first live waiter, which may be this one, but not in a [`Gap`].
    /// Safe to repeat: for a locker that neither holds nor waits, it returns `Gone` and changes nothing.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn poll(&self, request: &PollRequest<'_>, limit: Duration) -> Result<PollOutcome, Error>;

    /// Starts the lease anew if the key still contains the locker; otherwise changes nothing. Safe to repeat.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn extend(&self, request: &ExtendRequest<'_>, limit: Duration) -> Result<ExtendOutcome, Error>;

    /// Ends a tenure. If the key contains the locker, gives it to the first live waiter, or else to the next locker, or else
    /// frees it. If not, only removes the locker from the queue. Safe to repeat.
    ///
    /// If a [`Gap`] is due, frees the key instead, and leaves the queue unchanged except for the next locker at its end. Until
    /// the gap is over, acquire, poll and release give the key to nobody. The first of them after it hands the key over as
    /// usual.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn release(&self, request: &ReleaseRequest<'_>, limit: Duration) -> Result<ReleaseOutcome, Error>;

    /// Ends a tenure as [`release`](Self::release) does, but need not wait for the reply, which goes to `done`, at once or
    /// later, on whichever thread finds it. When this returns, the request has been sent or is about to be, before whatever the
    /// same client sends about the key afterwards. It may block until then, for at most `limit`. Returns `true` if the reply is
    /// still outstanding; the caller must then call [`collect`](Self::collect) periodically.
    ///
    /// The default waits for the reply and returns `false`.
    fn post_release(&self, request: &ReleaseRequest<'_>, limit: Duration, done: ReleaseDone) -> bool {
        done(self.release(request, limit));
        false
    }

    /// Processes the replies to posted releases that have arrived, without waiting for more. Returns `true` if some are still
    /// outstanding. The default returns `false`.
    fn collect(&self) -> bool {
        false
    }

    /// Returns whether the key still contains the locker, as known to the authority that would grant it to others (never a
    /// stale copy).
    ///
    /// # Errors
    ///
    /// See the trait.
    fn probe(&self, request: &ProbeRequest<'_>, limit: Duration) -> Result<ProbeOutcome, Error>;

    /// Returns who holds a key and how many wait. For people and logs: the answer may be out of date when it is read.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn inspect(&self, key: &str, limit: Duration) -> Result<Inspection, Error>;

    /// Runs several requests in order, and returns one result for each. A store behind a network sends them together; the
    /// default runs one after another.
    ///
    /// `limit` applies to all of them together. Requests that were not answered by then fail as in the single methods; those
    /// that were keep their outcomes. A store behind a network then drops the connection, so that the next attempt of a renewal
    /// uses a new one.
    fn batch(&self, requests: &[Request<'_>], limit: Duration) -> Vec<Result<Outcome, Error>> {
        let begin = Instant::now();
        let left = || limit.saturating_sub(begin.elapsed());
        requests.iter().map(|request| run(self, request, left())).collect()
    }

    /// Opens the inbox of a client (the part of its lockers before the last `-`). When this returns, the store counts the
    /// client's waiting tenures as live and delivers every later message.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error>;

    /// Sends one message to a client's own inbox, open or not. Called once before a client first asks for a lock, so that a
    /// missing right to send messages is reported then, by name, and does not leave a waiter without its message. The default
    /// does nothing.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn check_inbox(&self, _client: &str, _limit: Duration) -> Result<(), Error> {
        Ok(())
    }

    /// Returns how long a single command may take if the caller sets no other limit. The default is one second.
    fn command_limit(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Returns the unit in which the store counts leases. A key may stay for one unit longer than [`Busy::remaining`] says. The
    /// default is 1 ms, as in Redis, where a key is gone when its last millisecond is over.
    fn tick(&self) -> Duration {
        Duration::from_millis(1)
    }

    /// Returns `true` if the store has ever answered. Until then a blocking `lock()` fails instead of waiting for the store, so
    /// that a wrong address or password is noticed at once. The default is `true`.
    fn has_answered(&self) -> bool {
        true
    }

    /// Releases sockets and other resources; later calls fail with [`Error::ShutDown`]. Called when no lock of the generator
    /// needs the store any more; may be called again. The default does nothing. An [`Arc`](std::sync::Arc) that is not the last
    /// one does not forward the call, because other generators may share the store.
    fn close(&self) {}
}

/// Runs one request with the method of the same name.
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
