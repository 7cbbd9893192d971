//! A distributed reentrant lock over Redis, etcd or Consul, for threads and async tasks.
//!
//! One thread at a time holds a lock, among all threads of all processes that use the same server and lock name. The lock is a *lease*:
//! the server keeps it for a limited time, a thread of this crate renews it for as long as it is held, and it expires when
//! its holder dies. The crate is a port of Baidu's DLock for the JVM. Rust and JVM processes exclude each other on the same
//! key.
//!
//! # Quick start
//!
//! ```
//! use redis_dlock::{DLockConfig, DLockGenerator, MemoryLockProcessor};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), redis_dlock::Error> {
//! // One generator for a program. On Redis: DLockGenerator::connect("redis://127.0.0.1")?
//! let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
//! let lock = generator.generate_with(DLockConfig::new("ORDER", "4711").with_lease(Duration::from_secs(10)))?;
//!
//! let guard = lock.lock()?;
//! // … the work …
//! match guard.unlock() { // or drop it; unlock() returns the error that a drop can only log
//!     Err(error) if error.is_lost() => return Err(error), // another holder may have been inside
//!     _ => {}
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `unlock()` returns an error *after* the work is done. [`Error::LeaseLost`] means that the work may have run beside another holder.
//! [`Error::Backend`] and [`Error::Denied`] mean only that the store has not confirmed the release: the work was exclusive, and
//! the client repeats the release in the background. A `?` there would report finished work as failed.
//! [`lock.with(work)`](DistributedReentrantLock::with) makes this distinction for you: it returns the result of `work` unless the lease was
//! lost.
//!
//! A *generator* is what other texts call a client, and a *processor* is a store: the names are those of JVM DLock.
//!
//! A lock is named by a *type* (`ORDER`) and a *target* (`4711`); its key in Redis is `DLOCK_ORDER_4711`. All handles of a key
//! that one [`DLockGenerator`] made are the same lock: a thread that locked through one handle reenters through another.
//! [`MemoryLockProcessor`] is an embedded store with the same rules, for tests and for single-process programs.
//! [`RedisLockProcessor`] is the store for Redis 7.0 or newer. The crate `dlock-consensus` has the stores on etcd and Consul, and
//! `dlock-mongodb` that on `MongoDB`, which is experimental ([Stores](manual::stores) compares all).
//!
//! All public types are `Send` and `Sync`, except guards and two types of stores. Guards are `Sync` only, because the thread that locked must
//! unlock. An open inbox and a `ReleaseDone` of a store are `Send` only. A [`Hold`] belongs to no thread: a task or a session may keep it. **In
//! async code** the owner of a guard is the thread, not the task. With the feature `async` a task awaits a `Hold` instead, and blocks no
//! thread: see [Tasks and thread pools](manual::tasks_and_pools).
//!
//! # Where to find what
//!
//! * [The manual](manual) lists its pages, one for each topic. The first to read are [waiting](manual::waiting), [leases](manual::leases),
//!   [failure](manual::failure) (with [what is not guaranteed](manual::failure#what-is-not-guaranteed)), [tasks and thread
//!   pools](manual::tasks_and_pools) and [testing your code](manual::testing). [Which lock](manual::which_lock) compares this crate with other
//!   kinds of locks, and the [run book](manual::run_book) says what to do when something goes wrong.
//! * The README has the guarantees by number.
//! * [`port`] is for those who write a store. The crate `dlock-conformance` has the tests that every store must pass.
//!
//! # Features and MSRV
//!
//! | feature | default | gives |
//! |---|---|---|
//! | `redis` | yes | [`RedisLockProcessor`] and [`DLockGenerator::connect`]. Without it the crate has the embedded store, takes any [`LockProcessor`], and does not depend on `redis`, `socket2` or `itoa` |
//! | `async` | no | holds that a task awaits: the methods whose names contain `async` ([tasks and thread pools](manual::tasks_and_pools)) |
//! | `metrics` | no | figures for the recorder of the facade `metrics` that the program has installed: [the table](manual::metrics) |
//! | `test-util` | no | for tests, in `[dev-dependencies]`: [`ManualClock`], and the methods of [`MemoryLockProcessor`] that only tests need |
//! | `tls` | no | encrypted connections (`rediss://`), with rustls, ring and the platform's root certificates |
//!
//! The crate needs Rust 1.88 or newer. A higher minimum is a minor release.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Without these features, some links point to items that do not exist.
#![cfg_attr(not(all(feature = "redis", feature = "test-util")), allow(rustdoc::broken_intra_doc_links))]

mod backoff;
#[cfg(any(test, fuzzing))]
#[path = "../tests/white_box/check/mod.rs"]
mod check;
mod client;
mod clock;
mod config;
mod description;
mod error;
pub mod event;
mod fields;
mod lock;
mod log;
#[cfg(doc)]
pub mod manual;
mod one_line;
pub mod port;
mod process;
mod state;
mod store;
mod sync;
mod timing;
#[cfg(feature = "tls")]
mod tls;

#[cfg(all(fuzzing, feature = "redis"))]
#[doc(hidden)]
pub use check::fuzz::check as fuzz;
pub use client::wait_limit::CancelToken;
#[cfg(any(test, feature = "test-util"))]
pub use clock::ManualClock;
pub use clock::{Clock, Moment, SystemClock};
pub use config::{DEFAULT_LEASE, DLockConfig, MAX_LEASE, MIN_LEASE};
/// The channel of [`DLockGuard::lost`] and [`CancelToken::cancelled`], for `crossbeam_channel::select!`. It is that of the crate
/// `crossbeam-channel` 0.5.
#[doc(no_inline)]
pub use crossbeam_channel::Receiver;
pub use description::{ClientRecord, DelayedRelease, Description, ListedLock, Party, Told, WaitingThread};
pub use error::{BackendFailure, Cause, Error, LeaseLoss, LossCause};
pub use event::{Event, SlowWait};
pub use lock::{
    DLockGenerator, DLockGuard, DLockGuards, DistributedReentrantLock, GeneratorBuilder, Hold, Holder, Holds, Leader,
    ListedLocks, LockState, OwnedDLockGuard, Term, UnguardedLock,
};
#[cfg(feature = "async")]
pub use lock::{HoldAllFuture, HoldFuture, LossFuture, ReleaseFuture, TryHoldFuture};
pub use store::memory::MemoryLockProcessor;
// The name of the port in 0.1.0.
#[doc(hidden)]
pub use port as processor;
pub use port::BreakOutcome;
#[doc(no_inline)]
pub use port::LockProcessor;
// Only implementors of stores need these, and they find them in `port`. Code written against 0.1.0 finds them here.
#[doc(hidden)]
pub use port::{
    AcquireOutcome, Busy, ExtendOutcome, Grant, Inbox, InboxBreaker, Inspection, Message, NotOurs, Outcome,
    PollOutcome, ProbeOutcome, ReleaseDone, ReleaseOutcome, Request,
};
#[cfg(feature = "redis")]
pub use store::redis::{Polling, RedisBuilder, RedisLockProcessor, Server};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
