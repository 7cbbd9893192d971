//! What a store answers.

use super::Broken;
use crate::error::{Error, LossCause};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The key belongs to the asker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The number of this tenure: greater than every number issued for the key earlier. From 1 to 2^53 - 1.
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
    /// The holder's locker, in any format. `None` if nobody holds the key, but the store keeps it free: for clients that only poll
    /// ([`Claim::poller_gap`](super::Claim::poller_gap)), or after the death of a holder that asked for that (Consul's lock-delay).
    pub holder: Option<String>,
    /// The time until the holder's lease ends if it is not extended, or until the store gives the free key away again. `None` for a key
    /// that never expires, and where the store does not know. A store that does not know how long it keeps a key free names the time
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
    /// Only after a join: the key belongs to somebody else. The asker may not be in the queue: the store has read nothing but the key,
    /// and there was too little time to ask for a place.
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
    /// The key belongs to the locker, since this call or an earlier one. Its lease starts again. The number is not smaller than any that
    /// the store reported for this tenure before.
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
    /// [`Request::ExtendWithNumbers`](super::Request::ExtendWithNumbers) returns any. Without them the lease starts again
    /// nevertheless.
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

/// The outcome of a [`Request::Probe`](super::Request::Probe).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProbeOutcome {
    /// The key contains the locker.
    Ours,
    /// The key does not contain the locker.
    NotOurs(NotOurs),
}

/// What a key contains instead of the locker asked about.
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

/// What a store knows about a key, for people: [`Request::Inspect`](super::Request::Inspect).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The locker that holds the key; `None` if nobody holds it.
    pub holder: Option<String>,
    /// The time until the holder's lease ends if it is not extended. `None` for a key that never expires, and where the store does not
    /// know.
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
