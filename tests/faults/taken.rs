//! A hold of a worker's thread, on one lock or on several at once.

use crate::history::Nanos;
use crate::worker::now;
use futures_lite::future::block_on;
use redis_dlock::{DLockGuard, DLockGuards, Error, Hold, Holds, Receiver, Term};
use std::thread;
use std::time::Duration;

/// The form in which a thread takes a lock.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    Guard,
    Hold,
    /// A [`Hold`] that a task awaits.
    Awaited,
}

/// A hold: see the module.
pub(crate) enum Taken<'a> {
    Guard(DLockGuard<'a>),
    Hold(Hold),
    Awaited(Hold),
    Term(Term),
    Guards(DLockGuards),
    Holds(Holds),
    AwaitedHolds(Holds),
}

impl Taken<'_> {
    /// Whether the hold belongs to the thread, and counts in its hold count.
    pub(crate) fn is_of_thread(&self) -> bool {
        matches!(self, Self::Guard(_) | Self::Guards(_))
    }

    /// Returns a token for each lock, in the order in which the locks were named.
    pub(crate) fn tokens(&self) -> Vec<u64> {
        match self {
            Self::Guard(guard) => vec![guard.fencing_token()],
            Self::Hold(hold) | Self::Awaited(hold) => vec![hold.fencing_token()],
            Self::Term(term) => vec![term.token()],
            Self::Guards(guards) => guards.fencing_tokens().collect(),
            Self::Holds(holds) | Self::AwaitedHolds(holds) => holds.fencing_tokens().collect(),
        }
    }

    fn remaining(&self) -> Duration {
        match self {
            Self::Guard(guard) => guard.remaining(),
            Self::Hold(hold) | Self::Awaited(hold) => hold.remaining(),
            Self::Term(term) => term.remaining(),
            Self::Guards(guards) => guards.remaining(),
            Self::Holds(holds) | Self::AwaitedHolds(holds) => holds.remaining(),
        }
    }

    pub(crate) fn lost(&self) -> Receiver<()> {
        match self {
            Self::Guard(guard) => guard.lost(),
            Self::Hold(hold) | Self::Awaited(hold) => hold.lost(),
            Self::Term(term) => term.lost(),
            Self::Guards(guards) => guards.lost(),
            Self::Holds(holds) | Self::AwaitedHolds(holds) => holds.lost(),
        }
    }

    /// Returns a moment, and the moment until which all locks are certainly held: 0 if one is lost.
    pub(crate) fn known(&self) -> (Nanos, Nanos) {
        let at = now();
        let remaining = u64::try_from(self.remaining().as_nanos()).unwrap();
        (now(), if remaining == 0 { 0 } else { at + remaining })
    }

    /// Unlocks. If this is a guard or a hold of one lock that no task awaited, nobody gets the lock before this delay is over.
    pub(crate) fn unlock_after(self, delay: Duration) -> Result<(), Error> {
        match self {
            Self::Guard(guard) => {
                let at_least = guard.held_for() + delay;
                guard.unlock_after(at_least).map(drop)
            }
            Self::Hold(hold) => {
                let at_least = hold.held_for() + delay;
                thread::spawn(move || hold.release_after(at_least)).join().unwrap().map(drop)
            }
            _ => self.unlock(),
        }
    }

    /// Unlocks. A hold that belongs to no thread is released by another thread.
    pub(crate) fn unlock(self) -> Result<(), Error> {
        match self {
            Self::Guard(guard) => guard.unlock(),
            Self::Hold(hold) => thread::spawn(move || hold.release()).join().unwrap(),
            Self::Awaited(hold) => block_on(hold.release_async()),
            Self::Term(term) => term.resign(),
            Self::Guards(guards) => guards.unlock(),
            Self::Holds(holds) => thread::spawn(move || holds.release()).join().unwrap(),
            Self::AwaitedHolds(holds) => block_on(holds.release_async()),
        }
    }
}
