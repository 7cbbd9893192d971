//! A distributed reentrant lock over Redis, for blocking programs.
//!
//! One thread of all processes that use the same server and the same lock name is inside. The lock is a *lease*: Redis keeps it
//! for a while, a thread of this crate extends it for as long as it is held, and it ends by itself when its holder dies. The crate is a
//! port of Baidu's DLock for the JVM, and excludes JVM processes on the same key.
//!
//! * [Quick start](#quick-start)
//! * [Guarantees](#guarantees) and [what is not guaranteed](#what-is-not-guaranteed)
//! * [Waiting](#waiting), [errors](#errors), [losing a lease](#losing-a-lease), [fencing tokens](#fencing-tokens)
//! * [Async code](#async-code): the owner is the thread, not the task
//! * [Threads and sockets](#threads-and-sockets), [log levels](#log-levels), [features and MSRV](#features-and-msrv)
//! * [Ported code](#ported-code)
//! * [Testing your code](testing) and [writing a store](processor), pages of their own
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
//! guard.unlock()?; // or drop it; this way an error is heard
//! # Ok(())
//! # }
//! ```
//!
//! A lock is named by a *type* (`ORDER`) and a *target* (`4711`); its key in Redis is `DLOCK_ORDER_4711`. All handles of a key made
//! by one [`DLockGenerator`] are one lock, and reentrant across handles. [`MemoryLockProcessor`] is an embedded store with the same
//! rules, for tests and for programs of one process; [`RedisLockProcessor`] is the one for Redis 7.0 or newer.
//!
//! # Guarantees
//!
//! * A key is given to one *tenure* at a time, by one atomic script. Each tenure has a locker string that is never used again, so that a late or
//!   repeated command touches no other.
//! * The lease of a live holder is extended at 75 %, with at least three attempts before it ends. That of a dead one ends by itself.
//! * The client knows until when its lease is certain: `sent_at + lease − max(2 ms, lease / 100)`, where `sent_at` was read before
//!   the command that set or renewed the lease was first sent. Local time is monotonic and counts suspend (see [`Clock`]).
//! * A key that was deleted, overwritten, or lost by a failover is noticed within lease/6 and a round trip ([`DLockConfig::with_probe`]).
//! * [Fencing tokens](#fencing-tokens) rise with every hold of a key.
//! * Processes are given the lock in the order in which they began to wait, and so are the threads of one generator among themselves.
//!   A process whose threads wait goes to the queue's end after 16 more holds or 10 ms ([`DLockConfig::with_local_passes`]).
//! * When a reply is lost, the store is asked what became of the command. What nobody waits for any more is released until it certainly holds nothing.
//!
//! # What is not guaranteed
//!
//! * A holder that is stopped past its lease may go on without knowing. Only a token, checked by what the lock protects, helps.
//! * Redis replicates asynchronously: a promoted replica may give a held key to somebody else. So may a server whose clock steps forward.
//! * Processes that only poll, such as those of JVM DLock, may starve beside processes that hand the lock over: see [`DLockConfig::with_poller_gap`].
//! * Sentinel and Redis Cluster are not supported yet; a Cluster node is refused with [`Error::Unsupported`].
//!
//! The README has these at length.
//!
//! # Waiting
//!
//! | call | waits | when somebody else holds the lock |
//! |---|---|---|
//! | [`lock`](DistributedReentrantLock::lock) | for as long as it takes, through outages too | waits |
//! | [`try_lock`](DistributedReentrantLock::try_lock) | one round trip, two when it finds a lock busy that was free for a while, more only after a lost reply, or 5 ms (or five trips) for a lock that may [linger](DLockConfig::with_linger) | `Ok(None)` |
//! | [`try_lock_for`](DistributedReentrantLock::try_lock_for), [`try_lock_until`](DistributedReentrantLock::try_lock_until) | for a time | `Ok(None)` |
//! | [`lock_cancellable`](DistributedReentrantLock::lock_cancellable) | until a [`CancelToken`] is cancelled | `Ok(None)` |
//! | [`try_lock_cancellable_for`](DistributedReentrantLock::try_lock_cancellable_for), [`…_until`](DistributedReentrantLock::try_lock_cancellable_until) | for a time, or until cancelled | `Ok(None)` |
//!
//! [`lock_owned`](DistributedReentrantLock::lock_owned) and its kin return an [`OwnedDLockGuard`], which a function can return and a struct can store.
//! Locks, generators and tokens are `Send` and `Sync`; guards are `Sync` only, because the thread that locked must unlock.
//!
//! Who waits is *given* the lock: by the thread that unlocks, without the store, where both are threads of one generator; else by the script call
//! that releases it, which names the process that has waited longest and sends it a message. A message is a hint: should it be lost, or be switched off
//! ([`GeneratorBuilder::listener`]), a retry thread asks after lease/10, then every lease/6, and when the holder's lease ends. Choose the lease by that, and by how
//! long a dead holder may keep others out; but above ten round trips to the server, or it cannot be renewed in time.
//!
//! Work that comes in bursts to the same process may [keep the lock](DLockConfig::with_linger) between them.
//!
//! ```
//! # use redis_dlock::{DLockGenerator, MemoryLockProcessor};
//! # use std::time::Duration;
//! # fn main() -> Result<(), redis_dlock::Error> {
//! # let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
//! let lock = generator.generate("ORDER", "4711")?;
//! let guard = lock.lock()?;
//! std::thread::scope(|scope| {
//!     let other = scope.spawn(|| lock.try_lock_for(Duration::from_millis(20)).map(|guard| guard.is_some()));
//!     assert!(!other.join().expect("no panic")?);
//!     Ok::<_, redis_dlock::Error>(())
//! })?;
//! drop(guard);
//! # Ok(())
//! # }
//! ```
//!
//! # Async code
//!
//! All calls block, and **the owner of a hold is the thread, not the task**. Do not hold a guard over an `.await`:
//!
//! * On an executor with several threads it does not compile: the guard is not `Send`, and the error names `TheThreadThatLocksMustUnlock`.
//! * On an executor with a single thread (`current_thread`, `LocalSet`, `block_on`) it *does* compile. Another task of that thread that locks
//!   meanwhile holds the lock already, for it is the same thread, and *reenters* without a word: **two are inside**, with the same
//!   fencing token.
//!
//! Keep the whole hold on a thread of its own instead, from lock to unlock. A lock may go to any thread; [`with`](DistributedReentrantLock::with)
//! takes a closure, so that no `.await` fits in:
//!
//! ```text
//! let lock = lock.clone();
//! let done = tokio::task::spawn_blocking(move || lock.with(|guard| work(guard.fencing_token()))).await??;
//! ```
//!
//! A thread that blocks in [`lock`](DistributedReentrantLock::lock) runs no tasks; waiting can be ended with a [`CancelToken`]. A task that
//! must know whether another task of its thread is inside asks [`hold_count`](DistributedReentrantLock::hold_count) before it locks: it is 0
//! when none is.
//!
//! # Errors
//!
//! | [`Error`] | means | a blocking `lock()` |
//! |---|---|---|
//! | `InvalidConfig` | a setting, a URL or a line of a file cannot be used | is not reached |
//! | `Backend` | unreachable, no answer in time, or refused for a reason that may pass; [`BackendFailure`] says what is known of the command | waits it out, unless the store has never answered |
//! | `Denied` | wrong password, or a missing ACL right | fails at once |
//! | `Conflict` | the key holds something that no lock wrote | fails at once |
//! | `Unsupported` | older than 7.0, a Cluster node, a Sentinel | fails at once |
//! | `LeaseLost` | the hold was not exclusive to its end | fails when the thread holds it already, and lost it |
//! | `NotHeld`, `TooManyHolds`, `ShutDown`, `Forked` | wrong thread, 2,147,483,647 holds, closed generator, wrong process | |
//!
//! The `source()` of a `Backend` is the [`std::io::Error`] of a connection that could not be opened or that broke. The message repeats its words. Match the variants
//! with `..`, because they may get more fields.
//!
//! # Losing a lease
//!
//! Long work asks before each step that must not run beside another holder, or watches a channel:
//!
//! ```
//! # use redis_dlock::{DLockGenerator, MemoryLockProcessor};
//! # fn main() -> Result<(), redis_dlock::Error> {
//! # let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
//! # let lock = generator.generate("ORDER", "4711")?;
//! let guard = lock.lock()?;
//! let lost = guard.lost(); // may go to another thread, or into a `select!`
//! for step in 0..3 {
//!     guard.ensure_valid()?;
//!     assert!(lost.is_empty(), "step {step}");
//! }
//! guard.unlock()?; // Err(LeaseLost) if it was lost at any time
//! # Ok(())
//! # }
//! ```
//!
//! A hold that was lost stays lost: an extension that comes in late does not make it valid again. It still keeps the other
//! threads of its process out until it is unlocked. [`GeneratorBuilder::on_lost`] is told of every loss, [`GeneratorBuilder::on_slow_wait`] of every thread that waits for long. [`DLockConfig::with_max_hold`] limits how long
//! a thread may hold; a hold whose thread has ended without unlocking is noticed, and not extended any more.
//!
//! # Fencing tokens
//!
//! [`DLockGuard::fencing_token`] is greater for every new hold of a key, also for holds by other processes, and the same on reentry. Store it with what the
//! lock protects, and refuse what comes with a smaller one:
//!
//! ```
//! # use redis_dlock::{DLockGenerator, MemoryLockProcessor};
//! # fn main() -> Result<(), redis_dlock::Error> {
//! # let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
//! # let lock = generator.generate("ORDER", "4711")?;
//! # let mut row = (0, "new");
//! let mut update = |token: u64, state| {
//!     // UPDATE orders SET state = ?, token = ? WHERE id = 4711 AND token <= ?
//!     let fresh = row.0 <= token;
//!     if fresh {
//!         row = (token, state);
//!     }
//!     fresh
//! };
//! let stale = lock.lock()?.fencing_token();
//! let guard = lock.lock()?;
//! assert!(update(guard.fencing_token(), "paid"));
//! assert!(!update(stale, "cancelled"));
//! # Ok(())
//! # }
//! ```
//!
//! They keep rising when the server forgets everything. They need not when its clock was stepped back *and* the counter was lost, when a
//! new master's clock is behind the old one's, or when a proxy hides a failover.
//!
//! # Threads and sockets
//!
//! A generator has a thread `dlock-lease` (extends and probes what is held), started by the first lock, and a thread `dlock-retry` (asks
//! for what is waited for, cleans up, and hears what came of the releases of dropped guards), started when there is such work, and a thread
//! `dlock-listen` (hears that a lock was granted, or is wanted), started when a thread first waits.
//! They end with [`DLockGenerator::close`] and the last hold, or when the generator
//! and all its locks are gone; they are joined. They have no part in an uncontended lock shorter than lease/6. A thread `dlock-lost` runs
//! [`GeneratorBuilder::on_lost`] from the first loss on, and `dlock-slow-wait` runs [`GeneratorBuilder::on_slow_wait`] from the first slow wait on. On Redis, all threads share up to four connections (renewals have one more), and
//! `dlock-listen` has one of its own. A caller that has less time than a connect may take starts a thread `dlock-connect`, which opens one
//! connection and ends; it is not joined while it connects.
//!
//! A child made by `fork` has none of them: it must make a generator of its own ([`Error::Forked`]).
//!
//! # Log levels
//!
//! By the crate `log`. The targets are `redis_dlock::` and `acquire`, `client`, `config`, `hand_over`, `lease`, `release` or `transport`. They stay the same
//! when code moves. WARN: a lease is lost, could not be extended or
//! probed, could not be released; threads wait out a failing store; a connection was dropped. INFO: the subscription broke, the clean-up list. DEBUG: single retries and settled
//! outcomes. TRACE: every hold. ERROR: a thread could not be started, or panicked. No message carries a login, and each is one line. An orderly life, from connect to close, logs nothing above DEBUG.
//!
//! # Features and MSRV
//!
//! * `redis`: the store on Redis. On by default. Without it the crate does not depend on `redis`, `socket2` or `itoa`.
//! * `test-util`: [`ManualClock`], and what a test may do to a [`MemoryLockProcessor`]. Off by default, for `[dev-dependencies]`: see [Testing your code](testing).
//! * `tls`: `rediss://` URLs, by rustls with ring and the platform's root certificates. Off by default, implies `redis`.
//!
//! Rust 1.88 or newer. A higher minimum is a minor release.
//!
//! # Ported code
//!
//! [`UnguardedLock`] has the JVM's pairs; [`DLockGenerator::from_properties`] reads its `config-dlock.properties`. The README has a table, method by
//! method, of what behaves differently.
//!
//! ```
//! # use redis_dlock::{DLockGenerator, MemoryLockProcessor};
//! # fn main() -> Result<(), redis_dlock::Error> {
//! # let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
//! let lock = generator.generate("ORDER", "4711")?.unguarded();
//! lock.lock()?;
//! lock.lock()?;
//! lock.unlock()?;
//! lock.unlock()?;
//! assert!(matches!(lock.unlock(), Err(redis_dlock::Error::NotHeld { .. })));
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Without them, some links lead to what is not there.
#![cfg_attr(not(all(feature = "redis", feature = "test-util")), allow(rustdoc::broken_intra_doc_links))]

#[cfg(any(test, fuzzing))]
mod check;
mod client;
mod clock;
mod config;
mod error;
mod lock;
mod log;
mod one_line;
mod state;
mod store;
mod sync;
#[cfg(all(doc, feature = "test-util"))]
#[doc = include_str!("manual/testing.md")]
pub mod testing {}
mod timer;
mod timing;

#[cfg(all(fuzzing, feature = "redis"))]
#[doc(hidden)]
pub use check::fuzz::check as fuzz;
pub use client::SlowWait;
pub use client::patience::CancelToken;
#[cfg(any(test, feature = "test-util"))]
pub use clock::ManualClock;
pub use clock::{Clock, Moment, SystemClock};
pub use config::{DEFAULT_LEASE, DLockConfig, MAX_LEASE, MIN_LEASE};
pub use error::{BackendFailure, Cause, Error, LeaseLoss, LossCause};
pub use lock::{
    DLockGenerator, DLockGuard, DistributedReentrantLock, GeneratorBuilder, Holder, LockState, OwnedDLockGuard,
    UnguardedLock,
};
pub use store::memory::MemoryLockProcessor;
pub use store::processor;
#[doc(no_inline)]
pub use store::processor::LockProcessor;
#[cfg(feature = "redis")]
pub use store::redis::{RedisBuilder, RedisLockProcessor};
// Only writers of stores need these, and find them in `processor`. 0.1.0 had them here.
#[doc(hidden)]
pub use store::processor::{
    AcquireOutcome, AcquireRequest, Busy, ExtendOutcome, ExtendRequest, Gap, Grant, Inbox, InboxBreaker, Inspection,
    Message, NotOurs, Outcome, PollOutcome, PollRequest, ProbeOutcome, ProbeRequest, ReleaseDone, ReleaseOutcome,
    ReleaseRequest, Request,
};

#[doc = include_str!("../README.md")]
#[cfg(all(doctest, feature = "redis", feature = "test-util"))]
struct ReadmeDoctests;
