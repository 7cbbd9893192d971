//! How to write a store of locks: the trait [`LockProcessor`], its requests and its outcomes. Programs that only lock do not
//! need this module.
//!
//! [`DLockGenerator::new`](crate::DLockGenerator::new) takes any [`LockProcessor`]. [`Error::backend`](crate::Error::backend) and the
//! functions beside it create the errors that a store returns.
//!
//! A store keeps a *holder* for each lock key: a locker string, a lease, and a number that rises from tenure to tenure. Everything that
//! decides who holds a lock is one atomic operation of the store. A store that can compare and set a value, and lets it expire, needs
//! four methods: [`acquire`](LockProcessor::acquire), [`extend`](LockProcessor::extend), [`release`](LockProcessor::release) and
//! [`inspect`](LockProcessor::inspect). The client then polls for a busy key.
//!
//! Everything else is optional, and has a default that needs no support from the store:
//!
//! | a store that can … | returns it from | and gets |
//! |---|---|---|
//! | keep a queue for each key, and send messages | [`queue`](LockProcessor::queue) | hand-over without polling, order across processes, passing on inside a process, lingering |
//! | issue ranges of numbers | [`numbers`](LockProcessor::numbers) | tenures that are passed on more than 1,024 times |
//! | send a release without waiting for the reply | [`posting`](LockProcessor::posting) | dropped guards that do not wait |
//! | end a locker for certain | [`settling`](LockProcessor::settling) | a clean-up after lost replies that ends with one answer |
//! | take a key from its holder by force | [`breaking`](LockProcessor::breaking) | [`break_lock`](crate::DLockGenerator::break_lock) |
//! | tell people what it keeps | [`directory`](LockProcessor::directory) | `describe` and `list` |
//! | look at a key cheaply | [`poll`](LockProcessor::poll), [`probe`](LockProcessor::probe) | fewer extensions |
//! | send several requests together | [`batch`](LockProcessor::batch) | one round trip for all renewals that are due |
//!
//! [`StoreLimits`] says what the store can keep to; a lock whose settings exceed it is refused by name. The crate
//! `dlock-conformance` has the tests that every store must pass.
//!
//! A store is `Send` and `Sync`: any thread may call any method at any time. So is every type of this module except an open [`Inbox`] and
//! a [`ReleaseDone`], which are `Send` only: one thread at a time has them.

mod breaking;
mod capabilities;
mod claim;
mod directory;
mod inbox;
mod limits;
mod lock_processor;
mod outcome;
#[cfg(any(test, feature = "test-util"))]
mod owned;
mod pointers;
mod request;

pub use crate::config::LONGEST_KEY;
pub use breaking::{Break, BreakOutcome, Breaking, Broken};
pub use capabilities::{Numbers, Posting, Settling, WaitQueue};
pub(crate) use claim::marks;
pub use claim::{Claim, Gap, Note};
pub use directory::{Directory, ListPage, Parties};
pub use inbox::{Inbox, InboxBreaker, KeyFilter, Message};
pub use limits::{DeadWaiters, Status, StoreLimits};
pub use lock_processor::LockProcessor;
pub use outcome::{
    AcquireOutcome, Busy, ExtendOutcome, Extension, Grant, Inspection, NotOurs, PollOutcome, ProbeOutcome, ReleaseDone,
    ReleaseOutcome,
};
// Stores of tests that execute a request late use it.
#[cfg(any(test, feature = "test-util"))]
#[doc(hidden)]
pub use owned::OwnedRequest;
pub use request::{Outcome, Request};

#[cfg(feature = "tls")]
pub use crate::tls::TlsSettings;
