//! A distributed reentrant lock over Redis, for blocking programs.
//!
//! Of all processes that use the same server and the same lock name, one thread is inside at a time. The lock is a *lease*:
//! Redis keeps it for a limited time, a thread of this crate extends it for as long as it is held, and it ends by itself when
//! its holder dies. The crate is a port of Baidu's DLock for the JVM. Rust and JVM processes exclude each other on the same
//! key.
//!
//! * [Quick start](#quick-start)
//! * [Guarantees](#guarantees) and [what is not guaranteed](#what-is-not-guaranteed)
//! * [Waiting](#waiting), [errors](#errors), [losing a lease](#losing-a-lease), [fencing tokens](#fencing-tokens)
//! * [Async code](#async-code): the owner is the thread, not the task
//! * [Threads and sockets](#threads-and-sockets), [log levels](#log-levels), [features and MSRV](#features-and-msrv)
//! * [Ported code](#ported-code)
//! * [Testing your code](testing) and [writing a store](processor), which have their own pages
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
//! guard.unlock()?; // or drop it; unlock() returns the error that a drop can only log
//! # Ok(())
//! # }
//! ```
//!
//! A lock is named by a *type* (`ORDER`) and a *target* (`4711`); its key in Redis is `DLOCK_ORDER_4711`. All handles of a key
//! that one [`DLockGenerator`] made are the same lock: a thread that locked through one handle reenters through another.
//! [`MemoryLockProcessor`] is an embedded store with the same rules, for tests and for single-process programs.
//! [`RedisLockProcessor`] is the store for Redis 7.0 or newer.
//!
//! # Guarantees
//!
//! * One atomic script gives a key to one *tenure* at a time. Each tenure has a locker string that is never used again, so a
//!   late or repeated command cannot affect another tenure.
//! * The lease of a live holder is extended when 75 % of it have passed, with at least three attempts before it ends. The lease
//!   of a dead holder ends by itself.
//! * The client knows how long its lease is certain: until `sent_at + lease − max(2 ms, lease / 100)`, where `sent_at` was read
//!   before the command that set or renewed the lease was first sent. Local time is monotonic and includes the time in suspend
//!   (see [`Clock`]).
//! * The client notices within lease/6 and one round trip that a key was deleted, overwritten, or lost in a failover
//!   ([`DLockConfig::with_probe`]).
//! * [Fencing tokens](#fencing-tokens) increase with every hold of a key.
//! * Processes get the lock in the order in which they began to wait, and so do the threads of one generator among themselves.
//!   Once another process waits, the holding process passes the lock on among its own threads at most 16 more times and for at
//!   most 10 ms; then it goes to the end of the queue ([`DLockConfig::with_local_passes`]).
//! * A lost reply does no harm: the client asks the store what became of the command. A request that nobody waits for any more
//!   is released, again and again if necessary, until it certainly holds nothing.
//!
//! # What is not guaranteed
//!
//! * A holder that is stopped for longer than its lease may go on without knowing that it lost the lock. Only a fencing token
//!   that the protected resource checks helps against that.
//! * Redis replicates asynchronously: a promoted replica may give a held key to somebody else. A server whose clock steps
//!   forward may do the same.
//! * Processes that only poll, such as those of JVM DLock, may starve while other processes hand the lock over: see
//!   [`DLockConfig::with_poller_gap`].
//! * Sentinel and Redis Cluster are not supported yet; a Cluster node is refused with [`Error::Unsupported`].
//!
//! The README describes both in detail.
//!
//! # Waiting
//!
//! | call | waits | when somebody else holds the lock |
//! |---|---|---|
//! | [`lock`](DistributedReentrantLock::lock) | until it gets the lock, also through outages of the store | waits |
//! | [`try_lock`](DistributedReentrantLock::try_lock) | one round trip; two if the lock is busy but was free for a while before; more only after a lost reply; for a lock that may [linger](DLockConfig::with_linger), up to 5 ms, or five round trips if they take longer | `Ok(None)` |
//! | [`try_lock_for`](DistributedReentrantLock::try_lock_for), [`try_lock_until`](DistributedReentrantLock::try_lock_until) | until the limit or the deadline | `Ok(None)` |
//! | [`lock_cancellable`](DistributedReentrantLock::lock_cancellable) | until a [`CancelToken`] is cancelled | `Ok(None)` |
//! | [`try_lock_cancellable_for`](DistributedReentrantLock::try_lock_cancellable_for), [`…_until`](DistributedReentrantLock::try_lock_cancellable_until) | until the limit or the deadline, or until cancelled | `Ok(None)` |
//!
//! [`lock_owned`](DistributedReentrantLock::lock_owned) and the other `owned` methods return an [`OwnedDLockGuard`], which a
//! function can return and a struct can store. Locks, generators and tokens are `Send` and `Sync`. Guards are `Sync` only,
//! because the thread that locked must unlock.
//!
//! Unlocking *gives* the lock to a waiter. If the waiter is a thread of the same generator, the unlocking thread passes the
//! lock on directly, without the store. Otherwise the script call that releases the lock names the process that has waited
//! longest and sends it a message. A message is a hint: if it is lost, or if messages are switched off
//! ([`GeneratorBuilder::listener`]), a retry thread asks the store after lease/10, then every lease/6, and when the holder's
//! lease ends.
//!
//! Choose the lease by these pauses, and by how long a dead holder may keep others out. It must be longer than ten round trips
//! to the server; a shorter lease cannot be renewed in time.
//!
//! A process whose work comes in bursts can [keep the lock](DLockConfig::with_linger) between the bursts.
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
//! All locking calls block, and **the owner of a hold is the thread, not the task**. Do not hold a guard across an `.await`:
//!
//! * On an executor with several threads this does not compile: the guard is not `Send`, and the error names
//!   `TheThreadThatLocksMustUnlock`.
//! * On an executor with a single thread (`current_thread`, `LocalSet`, `block_on`) it *does* compile. If another task of that
//!   thread locks meanwhile, its thread holds the lock already, so the call *reenters* without an error: **two tasks are
//!   inside**, with the same fencing token.
//!
//! Keep the whole hold, from lock to unlock, on a thread of its own instead. A lock may move to any thread.
//! [`with`](DistributedReentrantLock::with) takes a closure, so no `.await` can occur inside it:
//!
//! ```text
//! let lock = lock.clone();
//! let done = tokio::task::spawn_blocking(move || lock.with(|guard| work(guard.fencing_token()))).await??;
//! ```
//!
//! A thread that blocks in [`lock`](DistributedReentrantLock::lock) runs no tasks; a [`CancelToken`] can end its wait. A task
//! that must know whether another task of its thread is inside calls [`hold_count`](DistributedReentrantLock::hold_count)
//! before it locks: the count is 0 if none is.
//!
//! # Errors
//!
//! | [`Error`] | means | a blocking `lock()` |
//! |---|---|---|
//! | `InvalidConfig` | a setting, a URL or a line of a file cannot be used | never returns it |
//! | `Backend` | the store is unreachable, did not answer in time, or refused for a reason that may pass; [`BackendFailure`] says what is known of the command | waits until the store answers, unless it has never answered |
//! | `Denied` | wrong password, or a missing ACL right | fails at once |
//! | `Conflict` | the key holds something that no lock wrote | fails at once |
//! | `Unsupported` | a server older than 7.0, a Cluster node, a Sentinel | fails at once |
//! | `LeaseLost` | the hold was not exclusive to its end | fails if the thread already holds the lock but has lost its lease |
//! | `NotHeld`, `TooManyHolds`, `ShutDown`, `Forked` | wrong thread, 2,147,483,647 holds, closed generator, wrong process | |
//!
//! The `source()` of a `Backend` is the [`std::io::Error`] of a connection that could not be opened or that broke; the message
//! repeats its words. Match the variants with `..`, because they may gain fields.
//!
//! # Losing a lease
//!
//! A long job should check its lease before each step that must not run beside another holder, or watch a channel:
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
//! A hold that was lost stays lost: a late extension does not make it valid again. Until it is unlocked, it still keeps the
//! other threads of its process out. [`GeneratorBuilder::on_lost`] sets a function that is told of every loss, and
//! [`GeneratorBuilder::on_slow_wait`] one that is told of every thread that waits for long. [`DLockConfig::with_max_hold`]
//! limits how long a thread may hold the lock. The client notices a hold whose thread has ended without unlocking, and stops
//! extending it.
//!
//! # Fencing tokens
//!
//! [`DLockGuard::fencing_token`] is greater for every new hold of a key, including holds by other processes, and the same on
//! reentry. Store the token with the data that the lock protects, and refuse a write with a smaller one:
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
//! Tokens keep rising even when the server loses all its data. They may repeat or fall in three cases only: the server's clock
//! was stepped back *and* the counter was lost, a new master's clock is behind the old one's, or a proxy hides a failover.
//!
//! # Threads and sockets
//!
//! A generator has up to five threads:
//!
//! * `dlock-lease` extends and probes what is held. The first lock starts it.
//! * `dlock-retry` asks the store on behalf of waiting threads, cleans up, and takes in the replies to the releases of dropped
//!   guards. It starts when there is such work.
//! * `dlock-listen` receives the messages that a lock was granted, or that others want it. It starts when a thread first waits.
//! * `dlock-lost` runs [`GeneratorBuilder::on_lost`], from the first loss on.
//! * `dlock-slow-wait` runs [`GeneratorBuilder::on_slow_wait`], from the first slow wait on.
//!
//! The first three end with [`DLockGenerator::close`] and the last hold, or when the generator and all its locks are gone, and
//! they are joined. They take no part in an uncontended lock that is held for less than lease/6.
//!
//! On Redis, all threads share up to four connections. Renewals have one more, and `dlock-listen` has its own. A caller that
//! has less time than a connect may take starts a thread `dlock-connect`, which opens one connection and ends; it is not joined
//! while it connects.
//!
//! A child made by `fork` has none of these threads: it must make its own generator ([`Error::Forked`]).
//!
//! # Log levels
//!
//! The crate logs with the crate `log`. The targets are `redis_dlock::` followed by `acquire`, `client`, `config`, `hand_over`,
//! `lease`, `release` or `transport`. They stay the same when code moves.
//!
//! * ERROR: a thread could not be started, or panicked.
//! * WARN: a lease was lost, could not be extended or probed, or could not be released; threads wait for a failing store; a
//!   connection was dropped.
//! * INFO: the subscription broke; a release was not confirmed or went on the clean-up list.
//! * DEBUG: single retries, and outcomes that were found out later.
//! * TRACE: every hold.
//!
//! No message contains a login, and each is one line. A run without faults, from connect to close, logs nothing above DEBUG.
//!
//! # Features and MSRV
//!
//! * `redis`: the Redis store. On by default. Without it the crate does not depend on `redis`, `socket2` or `itoa`.
//! * `test-util`: [`ManualClock`], and the methods of [`MemoryLockProcessor`] that only tests need. Off by default; enable it
//!   in `[dev-dependencies]`: see [Testing your code](testing).
//! * `tls`: `rediss://` URLs, with rustls, ring and the platform's root certificates. Off by default; implies `redis`.
//!
//! The crate needs Rust 1.88 or newer. A higher minimum is a minor release.
//!
//! # Ported code
//!
//! [`UnguardedLock`] has the JVM's `lock`/`unlock` pairs. [`DLockGenerator::from_properties`] reads the JVM's
//! `config-dlock.properties`. A table in the README says, method by method, what behaves differently.
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
// Without these features, some links point to items that do not exist.
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
// The model of the protocol runs it. No program needs it.
#[cfg(any(test, feature = "test-util"))]
#[doc(hidden)]
pub use store::memory::spec;
pub use store::processor;
#[doc(no_inline)]
pub use store::processor::LockProcessor;
#[cfg(feature = "redis")]
pub use store::redis::{RedisBuilder, RedisLockProcessor};
// Only implementors of stores need these, and they find them in `processor`. Version 0.1.0 exported them here.
#[doc(hidden)]
pub use store::processor::{
    AcquireOutcome, AcquireRequest, Busy, ExtendOutcome, ExtendRequest, Gap, Grant, Inbox, InboxBreaker, Inspection,
    Message, NotOurs, Outcome, PollOutcome, PollRequest, ProbeOutcome, ProbeRequest, ReleaseDone, ReleaseOutcome,
    ReleaseRequest, Request,
};

#[doc = include_str!("../README.md")]
#[cfg(all(doctest, feature = "redis", feature = "test-util"))]
struct ReadmeDoctests;
