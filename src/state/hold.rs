//! The current hold of a key: owner, count, token and validity, readable without a mutex.
//!
//! The owner is a thread or a [`Hold`](crate::Hold). Reentry stays within the thread (as in `java.util.concurrent.locks.ReentrantLock` and
//! `parking_lot`'s reentrant mutex). Only a thread that finds its own number in `owner` may change the count, and no other owner can take its
//! place before it has left. A `Hold` has a number of its own, under which nobody enters again, and one thread at a time ends it.
//!
//! | field | written by | read by |
//! |---|---|---|
//! | `owner` | the thread that begins or ends a hold, or that notices its loss, under the key's mutex | all threads |
//! | `count` | the owner; the thread that begins or ends a hold, under the key's mutex, while `owner` is [`NOBODY`] | the owner; a thread that describes the hold to people |
//! | `token` | the thread that begins a hold, before it publishes `owner` | all threads |
//! | `deadline` | the thread that begins a hold or renews it, under the key's mutex | all threads |

use crate::clock::Moment;
use crate::state::machine::Taker;
use crate::state::owner::NOBODY;
use crate::state::tenure::Tenure;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The most holds of one thread, as in `java.util.concurrent`.
const MAX_COUNT: u32 = i32::MAX as u32;

/// The stored count of a hold that its thread may not enter again. One comparison, which wraps around, finds this count and a count at its limit, so
/// reentry takes no further step for it.
const ONCE: u32 = 0;

/// The bit of `owner` that says that the hold is lost. No owner has so great a number.
const LOST: u64 = 1 << 63;

/// The outcome of a reentrant call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reentry {
    /// The hold count was incremented.
    Entered,
    /// The caller holds the lock, but its lease is lost. The count is unchanged.
    Lost,
    /// The count is at its limit, and unchanged.
    TooMany,
    /// The hold began through a handle without reentry. The count is unchanged.
    Refused,
    /// The caller does not hold the lock.
    NotHeld,
}

/// What one unlock leaves of the thread's hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It still has the hold, with a count less by one.
    Inner,
    /// An inner unlock of a hold whose lease is lost.
    InnerLost,
    /// It has unlocked for the last time. The hold is to end, and nothing has changed yet.
    Last,
    /// It does not have that hold, and nothing has changed.
    NotHeld,
}

#[derive(Debug)]
pub(crate) struct CurrentHold {
    // ORDERING: `begin` stores `owner` last, with Release. A thread that finds its own number there (Acquire) sees the
    // token, the count and the deadline of its hold, even if another thread granted it. A thread that finds the bit `LOST` takes the key's mutex to
    // learn the cause.
    owner: AtomicU64,
    // ORDERING: Relaxed: only the owner loads it, and a thread that describes the hold to people. The value that `begin` stores is published with
    // `owner`.
    count: AtomicU32,
    // ORDERING: `begin` stores it first, and `is_valid` loads it last. What `is_valid` loads before (`owner`, `deadline`, with Acquire) was
    // stored with Release after the token of the same hold. So if any of it belongs to a later hold than the one asked about, the token that is
    // loaded then is not the one asked about either. For the token itself Relaxed is enough.
    token: AtomicU64,
    // ORDERING: pairs as `token` says.
    deadline: AtomicU64,
}

impl CurrentHold {
    pub(crate) const fn none() -> Self {
        Self {
            owner: AtomicU64::new(NOBODY),
            count: AtomicU32::new(0),
            token: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
        }
    }

    /// Returns the owner's number, or [`NOBODY`] if there is no hold.
    pub(crate) fn owner(&self) -> u64 {
        self.owner.load(Ordering::Acquire) & !LOST // ORDERING: pairs with `begin`.
    }

    #[inline]
    pub(crate) fn is_owned_by(&self, thread: u64) -> bool {
        self.owner() == thread
    }

    /// Increments the hold count if the calling thread, which has this number, holds the lock.
    #[inline]
    pub(crate) fn reenter(&self, thread: u64) -> Reentry {
        // ORDERING: Acquire pairs with `begin`, which publishes the hold. Relaxed: the owner's own count.
        let owner = self.owner.load(Ordering::Acquire);
        if owner != thread {
            return if owner == thread | LOST { Reentry::Lost } else { Reentry::NotHeld };
        }
        let count = self.count.load(Ordering::Relaxed);
        if count.wrapping_sub(1) >= MAX_COUNT - 1 {
            return if count == ONCE { Reentry::Refused } else { Reentry::TooMany };
        }
        self.count.store(count + 1, Ordering::Relaxed); // ORDERING: as above.
        Reentry::Entered
    }

    /// Unlocks once, for the thread with this number, the hold with this token, if the thread has entered it more than once. Without a token it
    /// is whichever hold the thread has. It takes only a few steps, because callers use it in hot loops. If it returns `false`, nothing has
    /// changed: call [`leave`](Self::leave), which handles every case.
    #[inline]
    pub(crate) fn leave_inner(&self, thread: u64, token: Option<u64>) -> bool {
        // ORDERING: Acquire pairs with `begin`, which publishes the hold. Relaxed: the owner's own count.
        let (owner, count) = (self.owner.load(Ordering::Acquire), self.count.load(Ordering::Relaxed));
        let is_inner = owner == thread && token.is_none_or(|token| token == self.token()) && count > 1;
        if is_inner {
            self.count.store(count - 1, Ordering::Relaxed); // ORDERING: as above.
        }
        is_inner
    }

    /// Unlocks once, as [`leave_inner`](Self::leave_inner) does, in every case. After an exit that is not an inner one,
    /// [`Unlock`](crate::client::unlock::Unlock) does the rest.
    pub(crate) fn leave(&self, thread: u64, token: Option<u64>) -> Exit {
        // ORDERING: as in `leave_inner`.
        let (owner, count) = (self.owner.load(Ordering::Acquire), self.count.load(Ordering::Relaxed));
        if owner & !LOST != thread || token.is_some_and(|token| token != self.token()) {
            return Exit::NotHeld;
        }
        if count <= 1 {
            return Exit::Last;
        }
        self.count.store(count - 1, Ordering::Relaxed); // ORDERING: Relaxed: the owner's own count.
        if owner == thread { Exit::Inner } else { Exit::InnerLost }
    }

    /// Returns the hold count of a hold that has not ended. It may be out of date for any thread but the owner.
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed).max(1) // ORDERING: Relaxed: the owner's own count, or one to be shown.
    }

    /// Returns the token of the current hold, or else of the last one.
    #[inline]
    pub(crate) fn token(&self) -> u64 {
        self.token.load(Ordering::Relaxed) // ORDERING: Relaxed: see the field; nothing else is read through it.
    }

    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.owner.load(Ordering::Acquire) & LOST != 0 // ORDERING: pairs with `begin`: see `token`.
    }

    pub(crate) fn deadline(&self) -> Moment {
        // ORDERING: pairs with `begin` and `renew`: see `token`.
        Moment::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// Returns whether the hold with this token has not ended and is certainly ours.
    pub(crate) fn is_valid(&self, token: u64, now: Moment) -> bool {
        // ORDERING: pairs with `begin`. Read the token last: if another hold began in between, its token differs from the one asked about.
        let owner = self.owner.load(Ordering::Acquire);
        now < self.deadline() && owner != NOBODY && owner & LOST == 0 && self.token() == token
    }

    /// Begins the next hold of a tenure. Call it with the key's mutex held.
    pub(crate) fn begin(&self, to: Taker<'_>, tenure: &Tenure) {
        // ORDERING: the token comes before what pairs with `is_valid`, and `owner` after everything that it publishes
        // to `is_owned_by`. Relaxed: the stores with Release publish it.
        self.token.store(tenure.tokens.current(), Ordering::Relaxed);
        self.deadline.store(tenure.valid_until().as_nanos(), Ordering::Release);
        self.count.store(if to.settings.reentry { 1 } else { ONCE }, Ordering::Relaxed);
        self.owner.store(to.owner, Ordering::Release);
    }

    /// Ends a hold. Call it with the key's mutex held.
    pub(crate) fn end(&self) {
        // ORDERING: Relaxed: a thread that finds no owner reads nothing else without the key's mutex.
        self.owner.store(NOBODY, Ordering::Relaxed);
        self.count.store(0, Ordering::Relaxed);
    }

    /// Moves the deadline. Call it with the key's mutex held.
    pub(crate) fn renew(&self, deadline: Moment) {
        // ORDERING: pairs with `deadline` in `is_valid`. The mutex puts this after the `begin` of the same hold.
        self.deadline.store(deadline.as_nanos(), Ordering::Release);
    }

    /// Marks the hold lost, permanently, if there is one. Call it with the key's mutex held.
    pub(crate) fn lose(&self) {
        let owner = self.owner();
        if owner != NOBODY {
            // ORDERING: pairs with `begin`, because this replaces what `begin` has published.
            self.owner.store(owner | LOST, Ordering::Release);
        }
    }
}

#[cfg(test)]
#[path = "../../tests/white_box/state/hold.rs"]
mod tests;
