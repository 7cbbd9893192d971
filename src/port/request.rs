//! The requests to a store, the claims in them, which say what tenure a request concerns, and the outcomes that the store returns.

use super::{Break, BreakOutcome, Broken};
use crate::config::LONGEST_LOCK_DELAY;
use crate::error::{BackendFailure, Error, LossCause};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// A client's request to a store about one key: [`LockProcessor::run`](super::LockProcessor::run).
///
/// A request that a store does not know fails as [unsupported](Error::Unsupported).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request<'a> {
    /// Takes the key if it is free and nobody waits for it.
    ///
    /// A client acquires only once with each locker. If the outcome is unknown, a [`Poll`](Self::Poll) tells it. A repeated acquire could take
    /// the key a second time for a tenure that has ended.
    Acquire(Claim<'a>),
    /// Takes the key as [`Acquire`](Self::Acquire) does, or puts the locker at the end of the queue. Only for a store with a
    /// [queue](super::WaitQueue).
    ///
    /// If the store knows that the key is busy, it says so even if the limit ends before the locker is in the queue:
    /// [`AcquireOutcome::Unqueued`].
    Join(Claim<'a>),
    /// Tells whether a locker holds, waits or is unknown. Safe to repeat: for a locker that neither holds nor waits, the outcome is
    /// [`Gone`](PollOutcome::Gone), and nothing is changed. A store may [extend](Self::by_extension) the lease instead.
    Poll(Claim<'a>),
    /// Starts the lease again if the key still contains the locker. Otherwise it changes nothing. Safe to repeat.
    Extend(Claim<'a>),
    /// Extends as [`Extend`](Self::Extend) does, and fetches a range of numbers that no other tenure of the key was or will be given:
    /// [`Extension::numbers`]. Each number serves 1,024 holds of a tenure that is passed on among the threads of a process. Only for a
    /// store that has [`numbers`](super::StoreLimits::numbers).
    ExtendWithNumbers(Claim<'a>),
    /// Ends a tenure: frees the key if it contains the locker, or gives it to the first live waiter. Removes the locker from the queue, if
    /// there is one. Safe to repeat.
    Release(Claim<'a>),
    /// Ends the first tenure as [`Release`](Self::Release) does, for a client that wants the key again. It gives the key to the first live
    /// waiter and puts the locker of the second claim at the end of the queue. If nobody waits, it gives the key to that locker. The second
    /// claim is a fresh one of the same client and key. Only for a store with a [queue](super::WaitQueue).
    HandOver(Claim<'a>, Claim<'a>),
    /// Ends a tenure as [`Release`](Self::Release) does, but gives the key to nobody for a while. If the key contains the locker, or the
    /// order's [mark](ReleaseDelay::mark) already, it contains the mark afterwards, for the time of the order from now. Otherwise nothing is
    /// changed. This is one atomic step, and the queue stays as it is. A key with a mark counts as held by the mark: the end of the time is
    /// like the end of a lease, and a [`Break`](Self::Break) can name the mark. Safe to repeat. Only for a store with a
    /// [`longest_release_delay`](super::StoreLimits::longest_release_delay).
    DelayRelease(Claim<'a>, ReleaseDelay<'a>),
    /// Tells whether the key still contains the locker. The answer comes from the server that could grant the key to others, and never from a
    /// stale copy. A store may [extend](Self::by_extension) the lease instead.
    Probe(Claim<'a>),
    /// Tells who holds a key and how many wait. For people and logs: the outcome may be out of date when it is read.
    Inspect {
        /// The lock's unique key.
        key: &'a str,
    },
    /// Makes sure that no earlier request for this locker takes effect after the outcome is returned, and that the locker neither holds
    /// the key nor waits for it. If it held the key, the key is freed or handed over, as by a release. Safe to repeat. Only for a store
    /// that [settles](super::StoreLimits::settles).
    Settle(Claim<'a>),
    /// Takes the key from a locker if it contains exactly that locker, and gives it to the first live waiter, or frees it. Otherwise it changes
    /// nothing. This is one atomic step. The next number is greater, as after a release. The client of the locker gets a
    /// [`Message::Broken`](super::Message::Broken). Safe to repeat. Only for a store that [breaks](super::StoreLimits::breaks).
    Break(Break<'a>),
    /// Tells whether a hold of this locker was broken, by whom and why. The store must keep this for at least a minute, and at least until the
    /// broken lease would have ended. The client of the locker asks when it has found that the key does not contain the locker. The
    /// client that has broken the hold asks when it has lost the reply. Only for a store that [breaks](super::StoreLimits::breaks).
    Broken {
        /// The lock's unique key.
        key: &'a str,
        /// The locker that has lost it.
        locker: &'a str,
    },
}

/// The outcome of a [`Request`]. Each kind of outcome converts into this type, and this type converts into the kind that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The outcome of a [`Request::Acquire`] or a [`Request::Join`].
    Acquire(AcquireOutcome),
    /// The outcome of a [`Request::Poll`].
    Poll(PollOutcome),
    /// The outcome of a [`Request::Extend`] or a [`Request::ExtendWithNumbers`].
    Extend(ExtendOutcome),
    /// The outcome of a [`Request::Release`] or a [`Request::HandOver`].
    Release(ReleaseOutcome),
    /// The outcome of a [`Request::DelayRelease`].
    DelayRelease(DelayReleaseOutcome),
    /// The outcome of a [`Request::Probe`].
    Probe(ProbeOutcome),
    /// The outcome of a [`Request::Inspect`].
    Inspect(Inspection),
    /// The outcome of a [`Request::Settle`].
    Settle(()),
    /// The outcome of a [`Request::Break`].
    Break(BreakOutcome),
    /// The outcome of a [`Request::Broken`].
    Broken(Option<Broken>),
}

macro_rules! convert_outcomes {
    ($($kind:ident: $outcome:ty),+ $(,)?) => { $(
        impl From<$outcome> for Outcome {
            fn from(outcome: $outcome) -> Self {
                Self::$kind(outcome)
            }
        }

        /// Fails for an outcome of another kind.
        impl TryFrom<Outcome> for $outcome {
            type Error = Error;

            fn try_from(outcome: Outcome) -> Result<Self, Error> {
                match outcome {
                    Outcome::$kind(outcome) => Ok(outcome),
                    other => Err(other.misplaced()),
                }
            }
        }
    )+ };
}

convert_outcomes! {
    Acquire: AcquireOutcome,
    Poll: PollOutcome,
    Extend: ExtendOutcome,
    Release: ReleaseOutcome,
    DelayRelease: DelayReleaseOutcome,
    Probe: ProbeOutcome,
    Inspect: Inspection,
    Settle: (),
    Break: BreakOutcome,
    Broken: Option<Broken>,
}

impl Outcome {
    /// The error for an outcome that is not of the kind of its request.
    pub(crate) fn misplaced(&self) -> Error {
        Error::backend(BackendFailure::Unknown, format!("the store answered {self:?} to a request of another kind"))
    }
}

impl<'a> Request<'a> {
    /// Returns the key that the request is about.
    #[must_use]
    pub const fn key(&self) -> &'a str {
        match self {
            Self::Inspect { key } | Self::Broken { key, .. } => key,
            Self::Break(order) => order.key,
            Self::Acquire(claim)
            | Self::Join(claim)
            | Self::Poll(claim)
            | Self::Extend(claim)
            | Self::ExtendWithNumbers(claim)
            | Self::Release(claim)
            | Self::HandOver(claim, _)
            | Self::DelayRelease(claim, _)
            | Self::Probe(claim)
            | Self::Settle(claim) => claim.key,
        }
    }

    /// Returns the claim of a request by a tenure's own client. For a hand-over it is the claim of the tenure that ends.
    #[must_use]
    pub const fn claim(&self) -> Option<&Claim<'a>> {
        match self {
            Self::Acquire(claim)
            | Self::Join(claim)
            | Self::Poll(claim)
            | Self::Extend(claim)
            | Self::ExtendWithNumbers(claim)
            | Self::Release(claim)
            | Self::HandOver(claim, _)
            | Self::DelayRelease(claim, _)
            | Self::Probe(claim)
            | Self::Settle(claim) => Some(claim),
            Self::Inspect { .. } | Self::Break(_) | Self::Broken { .. } => None,
        }
    }

    /// Carries out an extension, a poll or a probe by an extension, for a store that can only compare and set. For a poll,
    /// [`Extension::number`] must be set.
    ///
    /// # Errors
    ///
    /// Those of the extension; [`Error::Unsupported`] for every other request.
    pub fn by_extension(
        &self,
        extend: impl FnOnce(&Claim<'a>) -> Result<ExtendOutcome, Error>,
    ) -> Result<Outcome, Error> {
        match self {
            Self::Extend(claim) => extend(claim).map(Outcome::Extend),
            Self::Poll(claim) => match extend(claim)? {
                ExtendOutcome::Extended(Extension { number: Some(number), waiting, .. }) => {
                    Ok(Outcome::Poll(PollOutcome::Acquired(Grant::new(number, waiting))))
                }
                ExtendOutcome::Extended(_) => {
                    Err(Error::unsupported("the store neither carries out a poll nor sets Extension::number"))
                }
                ExtendOutcome::NotOurs(_) => Ok(Outcome::Poll(PollOutcome::Gone)),
            },
            Self::Probe(claim) => Ok(Outcome::Probe(match extend(claim)? {
                ExtendOutcome::Extended(_) => ProbeOutcome::Ours,
                ExtendOutcome::NotOurs(other) => ProbeOutcome::NotOurs(other),
            })),
            other => Err(other.unsupported()),
        }
    }

    /// Returns the error of a store that does not know this request.
    #[must_use]
    pub fn unsupported(&self) -> Error {
        let lacking = match self {
            Self::Join(_) | Self::HandOver(..) => "a queue",
            Self::ExtendWithNumbers(_) => "ranges of numbers",
            Self::DelayRelease(..) => "delayed releases",
            Self::Settle(_) => "the certain end of a locker",
            Self::Break(_) | Self::Broken { .. } => "forced breaks",
            other => return Error::unsupported(format!("the store does not know the request {other:?}")),
        };
        Error::unsupported(format!("the store does not have {lacking}"))
    }
}

/// How long a store may take for requests, and which thread waits for them. The time includes the wait for other threads that use the store.
///
/// A client never sets more than [`StoreLimits::command`](super::StoreLimits::command), and may set zero. Other callers may set any time, even
/// [`Duration::MAX`]. A store whose library cannot be interrupted may exceed the limit until the library returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// A caller waits, and has set the limit, which may be very short.
    Call(Duration),
    /// A thread of the client waits, and will try again. If a request has no answer by then, a store behind a network drops the connection,
    /// so that the next attempt does not depend on it.
    Attempt(Duration),
}

impl Limit {
    /// Returns how long it is.
    #[must_use]
    pub const fn time(self) -> Duration {
        match self {
            Self::Call(time) | Self::Attempt(time) => time,
        }
    }

    /// Returns what is left of it if it began at this moment.
    #[must_use]
    pub fn left_since(self, begin: Instant) -> Self {
        let left = self.time().saturating_sub(begin.elapsed());
        match self {
            Self::Call(_) => Self::Call(left),
            Self::Attempt(_) => Self::Attempt(left),
        }
    }
}

/// Runs requests one after another, each within what is left of the limit, for a store that cannot send several together.
pub fn one_by_one<'a>(
    requests: &[Request<'a>],
    limit: Limit,
    mut run: impl FnMut(&Request<'a>, Limit) -> Result<Outcome, Error>,
) -> Vec<Result<Outcome, Error>> {
    let begin = Instant::now();
    requests.iter().map(|request| run(request, limit.left_since(begin))).collect()
}

// What a request says of the tenure that it concerns.

/// One tenure that a client has, or wants to have, of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claim<'a> {
    /// The lock's unique key: any text of at most [`LONGEST_KEY`](super::LONGEST_KEY) bytes.
    pub key: &'a str,
    /// The client to which the tenure belongs. Its inbox receives the messages about the tenure.
    pub client: &'a str,
    /// The locker of the tenure. No two tenures have the same one, whatever their keys. It begins with the client's id and a `-`.
    pub locker: &'a str,
    /// How long the store keeps the key without an extension: the lease, and the [lock-delay](crate::DLockConfig::with_lock_delay) after
    /// it. Every request for one tenure has the same lease, with one exception: the release of a grant that no thread wants may have a
    /// shorter one.
    pub lease: Duration,
    /// If set, clients that only poll must be given a chance: the release leaves the key free for this gap, even though others wait,
    /// unless the key had one recently. Until the gap is over, nobody is given the key by a request. Only for stores with
    /// [`StoreLimits::poller_gaps`](super::StoreLimits::poller_gaps).
    pub poller_gap: Option<Gap>,
    /// The asker and its reason, for people who look into the store. A store may ignore this.
    pub note: Note<'a>,
}

/// Text about a tenure for people, which a store may keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Note<'a> {
    /// The reason that the program gave, on one line: unprintable characters are escaped. See
    /// [`DLockConfig::with_reason`](crate::DLockConfig::with_reason).
    pub why: Option<&'a str>,
    /// The name of the thread that asks, as the program gave it; for a [`Hold`](crate::Hold) with a name of its own, that name, escaped.
    pub thread: Option<&'a str>,
    /// The name of the machine.
    pub host: Option<&'a str>,
}

impl<'a> Claim<'a> {
    /// Creates a claim without a note.
    #[must_use]
    pub const fn new(key: &'a str, client: &'a str, locker: &'a str, lease: Duration) -> Self {
        Self { key, client, locker, lease, poller_gap: None, note: Note { why: None, thread: None, host: None } }
    }

    /// Sets for how long, and how often, the key must be left free for clients that only poll.
    #[must_use]
    pub const fn with_poller_gap(mut self, gap: Option<Gap>) -> Self {
        self.poller_gap = gap;
        self
    }

    /// Sets what the store may keep for people to read.
    #[must_use]
    pub const fn with_note(mut self, note: Note<'a>) -> Self {
        self.note = note;
        self
    }

    /// Returns the [lock-delay](crate::DLockConfig::with_lock_delay) that the locker contains. It is a part of [`lease`](Self::lease). A
    /// store with its own lock-delay, such as Consul, uses it. It is zero for a locker that this crate has not made.
    #[must_use]
    pub fn lock_delay(&self) -> Duration {
        marks(self.locker).map_or(Duration::ZERO, |(delay, _)| delay)
    }
}

/// A period in which a released key is free, but not for clients that use the queue. A poller, which only asks at intervals
/// whether the key is free, as JVM DLock does, finds it free. Both fields are whole milliseconds, at least one.
///
/// Without gaps, waiters hand the key over to one another, the key is never free, and a poller starves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// How long the key stays free: a little longer than a poller's pause between two questions, so that one of its questions falls into
    /// the gap.
    pub length: Duration,
    /// The time from the beginning of this gap to the earliest beginning of the key's next gap, whichever client asks for that.
    pub every: Duration,
}

impl Gap {
    /// Creates a gap.
    #[must_use]
    pub const fn new(length: Duration, every: Duration) -> Self {
        Self { length, every }
    }
}

/// What a key contains after a [`Request::DelayRelease`](super::Request::DelayRelease), and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReleaseDelay<'a> {
    /// A text that is no locker, that names the tenure, and that no other tenure has. It is one line of at most 1024 bytes, and has a space.
    pub mark: &'a str,
    /// How long the key contains it. A store may keep it for longer, as it may keep a lease, but never for less.
    pub time: Duration,
}

impl<'a> ReleaseDelay<'a> {
    /// Creates the order.
    #[must_use]
    pub const fn new(mark: &'a str, time: Duration) -> Self {
        Self { mark, time }
    }
}

impl<'a> Note<'a> {
    /// Creates a note.
    #[must_use]
    pub const fn new(why: Option<&'a str>, thread: Option<&'a str>, host: Option<&'a str>) -> Self {
        Self { why, thread, host }
    }
}

/// Returns the lock-delay that a locker of this crate contains, and whether its tenure may linger. `None` for any other text.
pub(crate) fn marks(locker: &str) -> Option<(Duration, bool)> {
    let (_, end) = locker.rsplit_once('-')?;
    let (end, may_linger) = end.strip_suffix('L').map_or((end, false), |end| (end, true));
    let (count, delay) = end.split_once('D').unwrap_or((end, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let delay = Duration::from_millis(delay.parse().ok().filter(|_| is_number(count) && is_number(delay))?);
    (delay <= LONGEST_LOCK_DELAY).then_some((delay, may_linger))
}

// What a store answers to each kind of request.

/// The key belongs to the asker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The number of this tenure: greater than every number issued for the key earlier, by whichever process. From 1 to 2^53 - 1.
    pub number: u64,
    /// How many tenures wait in the queue; zero in a store without a queue.
    pub waiting: u64,
}

impl Grant {
    /// Creates a grant.
    #[must_use]
    pub const fn new(number: u64, waiting: u64) -> Self {
        Self { number, waiting }
    }
}

/// The key does not belong to the asker.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Busy {
    /// The holder's locker, in any format. `None` if the key has no holder, but the store gives it to nobody: it keeps it for clients that only
    /// poll ([`Claim::poller_gap`](super::Claim::poller_gap)), or the lock-delay of a dead holder is not over (Consul).
    pub holder: Option<String>,
    /// The time until the holder's lease ends if it is not extended, or until the store gives the free key away again. `None` for a key
    /// that never expires, or if the store does not know. A store that does not know how long it keeps a key free returns the time
    /// after which to ask again.
    pub remaining: Option<Duration>,
}

impl Busy {
    /// Describes a key that a locker holds.
    #[must_use]
    pub fn new(holder: impl Into<String>, remaining: Option<Duration>) -> Self {
        Self { holder: Some(holder.into()), remaining }
    }

    /// Describes a key that nobody holds, but that the store keeps free.
    #[must_use]
    pub const fn free(remaining: Option<Duration>) -> Self {
        Self { holder: None, remaining }
    }
}

/// The outcome of a [`Request::Acquire`](super::Request::Acquire) and of a [`Request::Join`](super::Request::Join).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireOutcome {
    /// The key was free and nobody waited: it now belongs to the asker.
    Acquired(Grant),
    /// The key does not belong to the asker. After a join, the asker is in the queue.
    Busy(Busy),
    /// Only after a join: the key belongs to another tenure, and the asker may not be in the queue. The store has read only the key, and
    /// there was too little time to ask for a place.
    Unqueued {
        /// The holder of the key.
        busy: Busy,
        /// Whether a request for a place was sent and had no reply. If so, it may still be executed, and
        /// [`Request::Poll`](super::Request::Poll) tells its outcome. If not, the store does not know the locker.
        under_way: bool,
    },
}

/// The outcome of a [`Request::Poll`](super::Request::Poll).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PollOutcome {
    /// The key belongs to the locker, since this call or an earlier one. The lease starts again. The number is not smaller than any that the
    /// store reported for this tenure before.
    Acquired(Grant),
    /// The locker is in the queue, so it was not granted the key before this reply. The queue is kept for at least twice this
    /// lease from now, and for at most three times if nobody polls. A waiter that stops polling is forgotten: a later poll returns `Gone`. A
    /// store that notices dead waiters by their leases ([`DeadWaiters::AfterLeases`](super::DeadWaiters::AfterLeases)) may forget each waiter
    /// one lease after its last poll.
    Waiting(Busy),
    /// The store does not know this locker, and this call changed nothing. Start again with a fresh locker.
    Gone,
}

/// The outcome of a [`Request::Extend`](super::Request::Extend) and of a
/// [`Request::ExtendWithNumbers`](super::Request::ExtendWithNumbers).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtendOutcome {
    /// The lease starts again.
    Extended(Extension),
    /// The key does not belong to this locker; nothing was changed.
    NotOurs(NotOurs),
}

/// The details of a successful extension.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Extension {
    /// How many tenures wait in the queue; zero in a store without a queue.
    pub waiting: u64,
    /// The number of the tenure. A poll [by an extension](super::Request::by_extension) needs it; a store that polls without one may
    /// leave it out.
    pub number: Option<u64>,
    /// Numbers that no other tenure of this key was or will be given, at most 10,000. Only a
    /// [`Request::ExtendWithNumbers`](super::Request::ExtendWithNumbers) returns any. The lease also starts again if the store returns
    /// none.
    pub numbers: Option<RangeInclusive<u64>>,
}

impl Extension {
    /// Describes an extension of a tenure with this number, in a store without a queue.
    #[must_use]
    pub const fn of(number: u64) -> Self {
        Self { waiting: 0, number: Some(number), numbers: None }
    }

    /// Describes an extension while `waiting` tenures wait.
    #[must_use]
    pub const fn while_waiting(waiting: u64) -> Self {
        Self { waiting, number: None, numbers: None }
    }

    /// Sets the number of the tenure.
    #[must_use]
    pub const fn with_number(mut self, number: u64) -> Self {
        self.number = Some(number);
        self
    }

    /// Adds fresh numbers.
    #[must_use]
    pub const fn with_numbers(mut self, numbers: Option<RangeInclusive<u64>>) -> Self {
        self.numbers = numbers;
        self
    }
}

/// The outcome of a [`Request::Release`](super::Request::Release) and of a [`Request::HandOver`](super::Request::HandOver).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The key is free, or it was given to the first live waiter.
    Released {
        /// How many tenures wait in the queue.
        waiting: u64,
    },
    /// Only after a hand-over: nobody waited, and the key was given to the next tenure.
    Passed(Grant),
    /// Only after a hand-over: a waiter got the key, or it is kept free for clients that only poll. The next tenure is at the end of the
    /// queue.
    Queued(Busy),
    /// The key did not belong to this locker. The locker is no longer in the queue. Nothing else was changed, and the store does not
    /// know the next locker.
    NotOurs(NotOurs),
}

/// The outcome of a [`Request::DelayRelease`](super::Request::DelayRelease).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DelayReleaseOutcome {
    /// The key contains the mark, for the time of the order from now.
    Delayed,
    /// The key contained neither the locker nor the mark; nothing was changed.
    NotOurs(NotOurs),
}

/// The outcome of a [`Request::Probe`](super::Request::Probe).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProbeOutcome {
    /// The key contains the locker.
    Ours,
    /// The key does not contain the locker.
    NotOurs(NotOurs),
}

/// What a key contains instead of the locker of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotOurs {
    /// The holder's locker; `None` if the key is free.
    pub holder: Option<String>,
}

impl NotOurs {
    /// Describes a key that is free, or that this locker holds.
    #[must_use]
    pub const fn new(holder: Option<String>) -> Self {
        Self { holder }
    }
}

impl From<NotOurs> for LossCause {
    fn from(other: NotOurs) -> Self {
        other.holder.map_or(Self::Deleted, |by| Self::TakenOver { by })
    }
}

impl From<Broken> for LossCause {
    fn from(Broken { by, reason }: Broken) -> Self {
        Self::Broken { by, reason }
    }
}

/// A store's facts about a key, for people: [`Request::Inspect`](super::Request::Inspect).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The locker that holds the key; `None` if nobody holds it.
    pub holder: Option<String>,
    /// The time until the holder's lease ends if it is not extended. `None` for a key that never expires, or if the store does not know.
    pub remaining: Option<Duration>,
    /// How many tenures wait in the queue; zero in a store without a queue.
    pub waiting: u64,
}

impl Inspection {
    /// Describes a key that this locker holds.
    #[must_use]
    pub fn held_by(holder: impl Into<String>, remaining: Option<Duration>) -> Self {
        Self { holder: Some(holder.into()), remaining, waiting: 0 }
    }

    /// Describes a free key.
    #[must_use]
    pub const fn free() -> Self {
        Self { holder: None, remaining: None, waiting: 0 }
    }

    /// Sets how many tenures wait.
    #[must_use]
    pub const fn with_waiting(mut self, waiting: u64) -> Self {
        self.waiting = waiting;
        self
    }
}

/// Receives the reply to a posted release: [`Posting::post_release`](super::Posting::post_release). It must not block.
pub type ReleaseDone = Box<dyn FnOnce(Result<ReleaseOutcome, Error>) + Send>;
