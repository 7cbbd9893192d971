//! The events that a generator delivers to the program: [`GeneratorBuilder::on_event`](crate::GeneratorBuilder::on_event).
//!
//! The manual's page [Events](crate::manual::events) says when each event comes, in which order, and which may be dropped.

use crate::config::DLockConfig;
use crate::error::{Error, LeaseLoss};
use std::sync::Arc;
use std::time::Duration;

/// Something that happened to a lock of a generator, or to its store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A thread has the lock. A reentry is no event.
    Acquired(Acquired),
    /// A thread no longer has the lock.
    Released(Released),
    /// The lease of a hold is lost. [`GeneratorBuilder::on_lost`](crate::GeneratorBuilder::on_lost) is called for the same losses.
    Lost(LeaseLoss),
    /// A lease was extended, but late.
    RenewedLate(RenewedLate),
    /// A thread waits long for a lock. [`GeneratorBuilder::on_slow_wait`](crate::GeneratorBuilder::on_slow_wait) is called for the same waits.
    SlowWait(SlowWait),
    /// A request to the store has failed, and the one before had not.
    StoreFailing(StoreFailing),
    /// The store answers again.
    StoreBack(StoreBack),
    /// Another server than before answers: the server was restarted, or a replica was promoted.
    NewServer(NewServer),
    /// Earlier events were dropped, because the function was too slow for them.
    Dropped(Dropped),
}

impl Event {
    /// Returns the key of the lock that the event concerns; `None` if it concerns the store, or the events themselves.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Acquired(Acquired { lock, .. })
            | Self::Released(Released { lock, .. })
            | Self::RenewedLate(RenewedLate { lock, .. }) => Some(lock.unique_key()),
            Self::Lost(loss) => Some(&loss.key),
            Self::SlowWait(wait) => Some(&wait.key),
            Self::StoreFailing(_) | Self::StoreBack(_) | Self::NewServer(_) | Self::Dropped(_) => None,
        }
    }

    /// Returns whether every lock causes such an event. All other events are rare, and have separate room in the queue.
    pub(crate) fn is_frequent(&self) -> bool {
        matches!(self, Self::Acquired(_) | Self::Released(_))
    }
}

/// A thread has the lock: [`Event::Acquired`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Acquired {
    /// The settings of the handle through which the thread locked: the name of the lock, its lease, its reason.
    pub lock: Arc<DLockConfig>,
    /// The fencing token of the hold.
    pub token: u64,
    /// How long the call that got the lock took.
    pub waited: Duration,
    /// How the thread got it.
    pub how: How,
}

/// How a thread got a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum How {
    /// The thread asked the store, and nobody held the lock.
    Free,
    /// The thread waited until the store granted the lock to this process.
    Granted,
    /// The thread waited until another thread of this process passed the lock on.
    PassedOn,
    /// The lock lingered in this process, and the thread took it up without asking the store.
    TakenUp,
}

impl How {
    /// Returns the kind as one word: `free`, `granted`, `passed_on` or `taken_up`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Granted => "granted",
            Self::PassedOn => "passed_on",
            Self::TakenUp => "taken_up",
        }
    }
}

/// A thread no longer has the lock: [`Event::Released`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Released {
    /// The settings of the holder's handle, as in [`Acquired::lock`].
    pub lock: Arc<DLockConfig>,
    /// The fencing token of the hold that has ended.
    pub token: u64,
    /// How long the thread held the lock.
    pub held: Duration,
    /// What became of the lock.
    pub end: HoldEnd,
}

/// What became of a lock whose hold has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HoldEnd {
    /// A waiting thread of this process has it.
    PassedOn,
    /// It lingers in this process.
    Lingers,
    /// The store has confirmed that it has the lock back, or that it keeps everybody from the lock for a while
    /// ([`unlock_after`](crate::DLockGuard::unlock_after)).
    GivenBack,
    /// The release was sent, and nobody waits for the reply. If the reply says that the lease was lost, [`Event::Lost`] follows.
    Sent,
    /// The release failed, or its outcome is unknown. It is repeated in the background.
    Unconfirmed,
    /// The lease was lost before the release.
    Lost,
}

impl HoldEnd {
    /// Returns the end as one word: `passed_on`, `lingers`, `given_back`, `sent`, `unconfirmed` or `lost`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PassedOn => "passed_on",
            Self::Lingers => "lingers",
            Self::GivenBack => "given_back",
            Self::Sent => "sent",
            Self::Unconfirmed => "unconfirmed",
            Self::Lost => "lost",
        }
    }
}

/// A lease was extended late: [`Event::RenewedLate`]. The settings leave some time between an extension and the end of the lease. When the
/// store answered, less than half of that time was left.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RenewedLate {
    /// The settings of the holder's handle, as in [`Acquired::lock`].
    pub lock: Arc<DLockConfig>,
    /// How much of the lease was left when the store answered.
    pub left: Duration,
}

/// A thread that has waited long for a lock, and still waits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SlowWait {
    /// The key that the thread waits for.
    pub key: String,
    /// How long it has waited.
    pub waited: Duration,
    /// The name of the waiting thread, if it has one.
    pub thread: Option<String>,
    /// What the lock is for, as set in its [config](crate::DLockConfig::with_reason).
    pub reason: Option<String>,
    /// The keys of a circle of waiting threads, of which the first is [`key`](Self::key). The thread that holds a key waits for the next key,
    /// and the waiting thread holds the last one. Empty if no circle of this generator's holds is known. A circle is reported after about one
    /// second, whatever the time after which waits count as slow.
    pub circle: Vec<String>,
    /// Why the last request about the lock has failed; `None` if it was answered, or if none has ended yet.
    pub error: Option<Error>,
}

/// The store began to fail: [`Event::StoreFailing`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoreFailing {
    /// The error of the first request that failed.
    pub error: Error,
}

/// The store answers again: [`Event::StoreBack`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreBack {
    /// The time from the end of the first failed request to this answer.
    pub after: Duration,
}

/// Another server answers than before: [`Event::NewServer`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewServer {
    /// The number of the server, which rises each time: [`on_new_server`](crate::LockProcessor::on_new_server).
    pub number: u64,
}

/// Earlier events were dropped: [`Event::Dropped`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dropped {
    /// How many, since the last event of this kind.
    pub count: u64,
}
