//! The protocol between clients and store: one lock key, and what each operation does to it.
//!
//! This is the executable specification of the scripts of the Redis store (`scripts/*.lua`). The embedded store runs it, so the
//! conformance suite holds it against the scripts. The model of the protocol (`tests/model`) explores it.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | what an operation needs, what it tells, and its outcomes |
//! | `key.rs` | [`KeyState`]: the state of one key, and the operations |
//!
//! The state is plain data. An operation changes it as the script of the same name does. It makes the calls of the script that write, in
//! the same order, and each may be refused. Everything else comes from the caller, through an [`Environment`]: the time, which clients
//! listen, the fence numbers. The specification leaves out calls that only read, keys of another type, and how the fence follows the clock.

pub(crate) mod key;

pub(crate) use key::KeyState;

/// A moment or a length of time, in units of the caller's choice. Moments count from an origin of the caller's choice.
pub(crate) type Ticks = u64;

/// Why an operation ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// This command was refused. Nothing was done for the locker: it holds, waits or is unknown as before.
    Refused(&'static str),
    /// A refused call was to be undone, and that was refused, too. What was done for the locker is unknown.
    Raised,
}

/// A locker as an operation gets it. It is compared with what the key keeps, and copied only to be kept.
pub(crate) trait LockerRef<L>: Copy + Into<L> + PartialEq<L> {}

impl<L, N: Copy + Into<L> + PartialEq<L>> LockerRef<L> for N {}

/// A locker with its lease, as it is sent and as it stands in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Claimant<L> {
    pub(crate) locker: L,
    /// The length of its lease.
    pub(crate) lease: Ticks,
}

impl<N> Claimant<N> {
    /// Compares both, as in Redis, where an entry of the queue is found by its whole text.
    fn is<L>(&self, waiter: &Claimant<L>) -> bool
    where
        N: PartialEq<L>,
    {
        self.locker == waiter.locker && self.lease == waiter.lease
    }
}

impl<L: Clone> Claimant<L> {
    /// The key as busy when this waiter was just given it.
    fn busy(&self) -> BusyReason<L> {
        BusyReason::Held { by: self.locker.clone(), left: Some(self.lease) }
    }
}

/// Who holds a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyHolder<L> {
    pub(crate) locker: L,
    /// When its lease ends. `None` for a key without a lease: only an administrator leaves such a key.
    pub(crate) until: Option<Ticks>,
}

/// A period in which a released key is free for clients that only poll.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollingGap {
    /// How long the key stays free.
    pub(crate) length: Ticks,
    /// The time from the beginning of this gap to the earliest beginning of the next one.
    pub(crate) every: Ticks,
}

/// The key belongs to the locker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumberedGrant {
    /// The fence number of the tenure.
    pub(crate) number: u64,
    /// How many wait in the queue.
    pub(crate) waiting: u64,
}

/// Why the key was not given to the locker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BusyReason<L> {
    /// Another locker holds it.
    Held {
        by: L,
        /// What is left of its lease; `None` for a key without a lease.
        left: Option<Ticks>,
    },
    /// The key is free for pollers.
    Gap {
        /// What is left of the gap.
        left: Ticks,
    },
}

/// A message to the client of a locker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice<L> {
    /// The locker was given the key.
    Granted {
        locker: L,
        /// Its number, and how many wait behind it.
        grant: NumberedGrant,
    },
    /// Others wait for the key, which the locker holds.
    Contended { locker: L },
    /// The key was taken from the locker by force.
    Broken { locker: L },
}

/// What an operation needs to know in addition to the key's state.
pub(crate) trait Environment<L> {
    /// Returns the time of the operation.
    fn now(&self) -> Ticks;

    /// Returns whether the client of this locker has an open inbox.
    fn hears(&mut self, locker: &L) -> bool;

    /// Returns how long a waiter whose client has none keeps its place.
    fn keep(&self) -> Ticks;

    /// Asks whether a call that writes is allowed, by its Redis command in capital letters. The operation then does what the call does. Fails
    /// with any [`Stop`] if it is not, usually with [`Stop::Refused`].
    fn call(&mut self, command: &'static str) -> Result<(), Stop>;

    /// Issues a fence number, greater than every number before it. The call for it is already allowed.
    fn issue(&mut self) -> u64;

    /// Sends a message. Nothing that an operation does after it is refused.
    fn tell(&mut self, message: Notice<L>);
}

/// The outcome of [`KeyState::acquire`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AcquireEffect<L> {
    /// The key belongs to the locker.
    Acquired(NumberedGrant),
    /// It does not. With `wait`, the locker is in the queue.
    Busy(BusyReason<L>),
}

/// The outcome of [`KeyState::poll`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PollEffect<L> {
    /// The key belongs to the locker. Its lease starts again.
    Acquired(NumberedGrant),
    /// The locker is in the queue.
    Waiting(BusyReason<L>),
    /// The locker is unknown; nothing was changed.
    Gone,
}

/// The outcome of [`KeyState::extend`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExtendEffect<L> {
    /// The lease starts again.
    Extended {
        /// How many wait in the queue.
        waiting: u64,
    },
    /// The key belongs to this locker, or to nobody; nothing was changed.
    NotOurs(Option<L>),
}

/// The outcome of [`KeyState::release`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseEffect<L> {
    /// The key is free, or was given to the first waiter that is heard.
    Released {
        /// How many wait in the queue.
        waiting: u64,
    },
    /// Nobody was heard: the key was given to the next locker.
    Passed(NumberedGrant),
    /// The key was given to a waiter, or is free for pollers. The next locker is at the end of the queue.
    Queued(BusyReason<L>),
    /// The key belonged to this locker, or to nobody. The released locker is not in the queue any more.
    NotOurs(Option<L>),
}

/// The outcome of [`KeyState::delay_release`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DelayEffect<L> {
    /// The key contains the mark.
    Delayed,
    /// The key contained neither the locker nor the mark; nothing was changed.
    NotOurs(Option<L>),
}

/// The outcome of [`KeyState::break_hold`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BreakEffect<L> {
    /// The key was the locker's.
    Broken {
        /// Who holds it now.
        next: Option<L>,
        /// How many wait in the queue.
        waiting: u64,
    },
    /// The key belonged to this locker, or to nobody; nothing was changed.
    NotHeldBy(Option<L>),
}
