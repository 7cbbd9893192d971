//! The requests of a store, and their outcomes.

use super::{
    AcquireOutcome, Break, BreakOutcome, Broken, Claim, ExtendOutcome, Extension, Grant, Inspection, PollOutcome,
    ProbeOutcome, ReleaseOutcome,
};
use crate::error::{BackendFailure, Error};
use std::time::{Duration, Instant};

/// What a client asks of a store about one key: [`LockProcessor::run`](super::LockProcessor::run).
///
/// A request that a store does not know fails as [unsupported](Error::Unsupported).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request<'a> {
    /// Takes the key if it is free and nobody waits for it.
    ///
    /// A client sends each locker only once. If the outcome is unknown, [`Poll`](Self::Poll) tells it. A repeated acquire could take the
    /// key a second time for a tenure that has ended.
    Acquire(Claim<'a>),
    /// Takes the key as [`Acquire`](Self::Acquire) does, and otherwise puts the locker at the end of the queue. Only for a store with a
    /// [queue](super::WaitQueue).
    ///
    /// If a store knows that the key is busy, it says so even when the limit ends before the asker is in the queue:
    /// [`AcquireOutcome::Unqueued`].
    Join(Claim<'a>),
    /// Tells what became of a locker. Safe to repeat: for a locker that neither holds nor waits, the outcome is
    /// [`Gone`](PollOutcome::Gone), and nothing is changed. A store may [extend](Self::by_extension) the lease instead.
    Poll(Claim<'a>),
    /// Starts the lease again if the key still contains the locker; otherwise changes nothing. Safe to repeat.
    Extend(Claim<'a>),
    /// Extends as [`Extend`](Self::Extend) does, and fetches a range of numbers that no other tenure of the key was or will be given:
    /// [`Extension::numbers`]. Each number serves 1,024 holds of a tenure that is passed on among the threads of a process. Only for a
    /// store that has [`numbers`](super::StoreLimits::numbers).
    ExtendWithNumbers(Claim<'a>),
    /// Ends a tenure: frees the key if it contains the locker, or gives it to the first live waiter. Removes the locker from the queue, if
    /// there is one. Safe to repeat.
    Release(Claim<'a>),
    /// Ends the first tenure as [`Release`](Self::Release) does, for a client that wants the key again: gives it to the first live waiter
    /// and puts the locker of the second claim at the end of the queue, or gives it to that locker if nobody waits. The second claim is a
    /// fresh one of the same client and key. Only for a store with a [queue](super::WaitQueue).
    HandOver(Claim<'a>, Claim<'a>),
    /// Tells whether the key still contains the locker, as known to the authority that would grant it to others (never a stale copy). A
    /// store may [extend](Self::by_extension) the lease instead.
    Probe(Claim<'a>),
    /// Tells who holds a key and how many wait. For people and logs: the outcome may be out of date when it is read.
    Inspect {
        /// The lock's unique key.
        key: &'a str,
    },
    /// Makes sure that no request sent for this locker earlier takes effect after the outcome is there, and that the locker neither holds
    /// the key nor waits for it. If it held the key, the key is free or handed over, as after a release. Safe to repeat. Only for a store
    /// that [settles](super::StoreLimits::settles).
    Settle(Claim<'a>),
    /// Takes the key from a locker if it contains that very locker, and gives it to the first live waiter, or frees it; otherwise changes
    /// nothing. It is one atomic step. The next number is greater, as after a release. The client of the locker gets a
    /// [`Message::Broken`](super::Message::Broken). Safe to repeat. Only for a store that [breaks](super::StoreLimits::breaks).
    Break(Break<'a>),
    /// Tells by whom a hold of this locker was broken, and why, if it was. The store must know it for a minute, and longer until the lease
    /// that was broken would have ended; it may forget it then. Asked when the client of the locker has found that the key does not
    /// contain it, and by whoever has broken the hold and has lost the reply. Only for a store that
    /// [breaks](super::StoreLimits::breaks).
    Broken {
        /// The lock's unique key.
        key: &'a str,
        /// The locker that has lost it.
        locker: &'a str,
    },
}

/// What came of a [`Request`]. Each kind of outcome converts into this, and this into the kind that was asked for.
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
            | Self::Probe(claim)
            | Self::Settle(claim) => claim.key,
        }
    }

    /// Returns the claim of a request of a tenure's own client: of a hand-over, that of the tenure that ends.
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
            Self::Settle(_) => "the certain end of a locker",
            Self::Break(_) | Self::Broken { .. } => "forced breaks",
            other => return Error::unsupported(format!("the store does not know the request {other:?}")),
        };
        Error::unsupported(format!("the store does not have {lacking}"))
    }
}

/// How long a store may take for requests, and who waits for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// A caller waits, and has set the limit, which may be as short as it likes.
    Call(Duration),
    /// A thread of the client waits, and will try again. If a request had no answer by then, the next attempt should not depend on
    /// whatever carried this one: a store behind a network drops the connection.
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
