//! The port: how to write a store of locks. Programs that only lock do not need this module.
//!
//! [`DLockGenerator::new`](crate::DLockGenerator::new) takes any [`LockProcessor`]. A store keeps a *holder* for each lock key: a locker
//! string, a lease, and a number that rises from tenure to tenure. Every operation that decides who holds a lock is atomic in the
//! store. A store must implement one method, [`run`](LockProcessor::run), which carries out [requests](Request) and returns an
//! [outcome](Outcome) for each.
//!
//! # The smallest store
//!
//! Any store that can compare and set a value, and lets it expire, can carry out the four requests that every client needs:
//! [`Acquire`](Request::Acquire), [`Extend`](Request::Extend), [`Release`](Request::Release) and [`Inspect`](Request::Inspect). Of the others,
//! [`by_extension`](Request::by_extension) carries out a poll and a probe, and refuses the rest. The client then polls for a busy key.
//!
//! ```
//! use redis_dlock::port::{
//!     AcquireOutcome, Busy, Claim, ExtendOutcome, Extension, Grant, Inspection, Limit, LockProcessor, NotOurs, Outcome, ReleaseOutcome,
//!     Request, one_by_one,
//! };
//! use redis_dlock::{DLockGenerator, Error};
//! use std::collections::HashMap;
//! use std::sync::{Mutex, PoisonError};
//! use std::time::Instant;
//!
//! struct Entry {
//!     locker: String,
//!     number: u64,
//!     until: Instant,
//! }
//!
//! /// The entries of the keys, and the last number.
//! #[derive(Default)]
//! struct Map(Mutex<(HashMap<String, Entry>, u64)>);
//! # impl std::fmt::Debug for Map {
//! #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("Map") }
//! # }
//!
//! impl Map {
//!     /// One atomic operation on the entry of a key.
//!     fn on<R>(&self, key: &str, act: impl FnOnce(&mut Option<Entry>, &mut u64, Instant) -> R) -> R {
//!         let (entries, last) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
//!         let now = Instant::now();
//!         let mut entry = entries.remove(key).filter(|entry| now < entry.until);
//!         let result = act(&mut entry, last, now);
//!         entries.extend(entry.map(|entry| (key.to_owned(), entry)));
//!         result
//!     }
//!
//!     fn acquire(&self, claim: &Claim<'_>) -> AcquireOutcome {
//!         self.on(claim.key, |entry, last, now| match entry {
//!             Some(entry) => AcquireOutcome::Busy(Busy::new(&*entry.locker, Some(entry.until - now))),
//!             None => {
//!                 *last += 1;
//!                 *entry = Some(Entry { locker: claim.locker.to_owned(), number: *last, until: now + claim.lease });
//!                 AcquireOutcome::Acquired(Grant::new(*last, 0))
//!             }
//!         })
//!     }
//!
//!     fn extend(&self, claim: &Claim<'_>) -> ExtendOutcome {
//!         self.on(claim.key, |entry, _, now| match entry {
//!             Some(ours) if ours.locker == claim.locker => {
//!                 ours.until = now + claim.lease;
//!                 ExtendOutcome::Extended(Extension::of(ours.number))
//!             }
//!             other => ExtendOutcome::NotOurs(NotOurs::new(other.as_ref().map(|other| other.locker.clone()))),
//!         })
//!     }
//!
//!     fn release(&self, claim: &Claim<'_>) -> ReleaseOutcome {
//!         self.on(claim.key, |entry, _, _| match entry.take_if(|entry| entry.locker == claim.locker) {
//!             Some(_) => ReleaseOutcome::Released { waiting: 0 },
//!             None => ReleaseOutcome::NotOurs(NotOurs::new(entry.as_ref().map(|other| other.locker.clone()))),
//!         })
//!     }
//!
//!     fn inspect(&self, key: &str) -> Inspection {
//!         self.on(key, |entry, _, now| match entry {
//!             Some(entry) => Inspection::held_by(&*entry.locker, Some(entry.until - now)),
//!             None => Inspection::free(),
//!         })
//!     }
//! }
//!
//! impl LockProcessor for Map {
//!     fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
//!         one_by_one(requests, limit, |request, _limit| match request {
//!             Request::Acquire(claim) => Ok(self.acquire(claim).into()),
//!             Request::Release(claim) => Ok(self.release(claim).into()),
//!             Request::Inspect { key } => Ok(self.inspect(key).into()),
//!             other => other.by_extension(|claim| Ok(self.extend(claim))),
//!         })
//!     }
//! }
//!
//! let lock = DLockGenerator::new(Map::default())?.generate("ORDER", "4711")?;
//! let guard = lock.lock()?;
//! // The first hold of tenure n has the token n × 1024.
//! assert_eq!((guard.fencing_token(), lock.is_locked()?), (1024, true));
//! # Ok::<_, Error>(())
//! ```
//!
//! # Rules for every request
//!
//! * *Time.* A lease begins when the store carries out the request, and may end late, but never early: the client counts it from the sending of
//!   the request, and regards it as over only 1 % (at least 2 ms) before its end. So a store counts leases in units that are small beside that
//!   1 %, and by a clock that nobody sets: its server's, or for the processes of one machine `CLOCK_BOOTTIME`. Each client counts by its own
//!   clock.
//! * *Numbers.* The number of a tenure is greater than those before it even after releases, ended leases, a crash of the store and a power
//!   failure, because the resource remembers them. So the number is durable before the reply, or comes from a clock that goes on. One counter
//!   may serve all keys.
//! * *Failures.* [`NotExecuted`](crate::BackendFailure::NotExecuted) if the store failed before it could commit, and
//!   [`Unknown`](crate::BackendFailure::Unknown) if the commit itself failed, or had no reply.
//! * *Names.* A key is any text of at most [`LONGEST_KEY`] bytes, with line breaks and NUL, too. Keys and lockers that differ in a single byte are
//!   different: in a database, compare them in binary order.
//! * *Waits.* Without a queue, a client asks for a busy key after a tenth of the lease, then every sixth of it, and when
//!   [`Busy::remaining`] is over. So locks of such a store should have short leases.
//!
//! `tests/examples/sqlite` in this repository is a complete store with the four requests: one `SQLite` file for the processes of a machine.
//!
//! # What to write next
//!
//! 1. The limits of the store: [`limits`](LockProcessor::limits) returns [`StoreLimits`]. If the settings of a lock exceed a limit, the lock
//!    is refused, and the error names the setting.
//! 2. The right errors: [`Error::backend`](crate::Error::backend) and the functions beside it create them, and
//!    [`BackendFailure`](crate::BackendFailure) says what is known of a command. [`has_answered`](LockProcessor::has_answered) tells a wrong
//!    address from an outage.
//! 3. Tests: the crate `dlock-conformance` has those that every store must pass. Tests of your own can call the methods of [`Operations`], one
//!    for each request.
//! 4. Optional capabilities, the most useful first:
//!
//! | a store that can … | says so by | and gets |
//! |---|---|---|
//! | send several requests together | its [`run`](LockProcessor::run) | one round trip for all renewals that are due |
//! | keep a queue for each key, and send messages | [`queue`](LockProcessor::queue) | hand-over without polling, order across processes, passing on inside a process, lingering |
//! | look at a key cheaply | carrying out [`Poll`](Request::Poll) and [`Probe`](Request::Probe) itself | fewer extensions |
//! | tell that another server answers | [`on_new_server`](LockProcessor::on_new_server) | immediate checks of all holds and waits |
//! | issue ranges of numbers | [`StoreLimits::numbers`] | tenures that are passed on more than 1,024 times |
//! | send a release without waiting for the reply | [`posting`](LockProcessor::posting) | dropped guards that do not wait |
//! | end a locker for certain | [`StoreLimits::settles`] | a clean-up after lost replies that ends with one answer |
//! | take a key from its holder by force | [`StoreLimits::breaks`] | [`break_lock`](crate::DLockGenerator::break_lock) |
//! | answer many extensions and probes by few requests | [`StoreLimits::asks_together`] | fewer requests: the client sends those of all tenures together |
//! | replace a holder by a text that ends later | [`StoreLimits::longest_release_delay`] | [`unlock_after`](crate::DLockGuard::unlock_after) |
//! | tell people about its locks | [`directory`](LockProcessor::directory) | `describe` and `list` |
//!
//! A store is `Send` and `Sync`: any thread may call any method at any time. Every type of this module is `Send` and `Sync`, too, except an
//! open [`Inbox`] and a [`ReleaseDone`], which are only `Send`: one thread at a time has them.
//!
//! The crate `dlock-consensus` has two stores (etcd and Consul) that use only this module.

mod breaking;
mod capabilities;
mod directory;
mod inbox;
mod limits;
mod lock_processor;
mod request;

pub use crate::config::LONGEST_KEY;
pub use breaking::{Break, BreakOutcome, Broken};
pub use capabilities::{Posting, WaitQueue};
pub use directory::{Directory, ListPage, Parties};
pub use inbox::{Inbox, InboxBreaker, KeyFilter, Message};
pub use limits::{DeadWaiters, StoreLimits};
pub(crate) use lock_processor::unanswered;
pub use lock_processor::{LockProcessor, Operations};
pub(crate) use request::marks;
pub use request::{
    AcquireOutcome, Busy, Claim, DelayReleaseOutcome, ExtendOutcome, Extension, Gap, Grant, Inspection, Limit, NotOurs,
    Note, Outcome, PollOutcome, ProbeOutcome, ReleaseDelay, ReleaseDone, ReleaseOutcome, Request, one_by_one,
};

pub use crate::sync::on_own_thread;
#[cfg(feature = "tls")]
pub use crate::tls::TlsSettings;
