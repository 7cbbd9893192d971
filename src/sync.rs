//! The mutexes, condition variables, atomics and threads that the middle layer uses.
//!
//! They are those of `parking_lot` and `std`. In a build with `--cfg dlock_shuttle`, the tests of
//! [`model`](crate::check::model) explore the schedules of the same code. The types are then shims that pass every step to a
//! scheduler, and sleeping uses virtual time. The stores always use the real ones: in the model, an operation of a store is one
//! step.
//!
//! # Atomics
//!
//! Shared state is data under a mutex. An atomic stands only where a path that must stay fast, or may not wait for a mutex, reads a value that
//! is whole in itself. Where an ordering is weaker than `SeqCst`, a comment `// ORDERING:` at the field and at each use names the partner, or
//! says why none is needed; `tests/it/tidy.rs` fails on a use without one.
//!
//! | where | what | written by | read by | why no mutex |
//! |---|---|---|---|---|
//! | `state/hold` `owner`, `count`, `token`, `deadline` | the hold of one thread | the thread that begins, renews, loses or ends it, under the key's mutex; `count` by its owner | reentry, inner unlocks, `is_valid`, `remaining`; the lease thread | these calls are made in hot loops and take a few nanoseconds |
//! | `state/locker` `next` (a `OnceLock`) | the identity that takes the place of one that a copy has, too | the thread that meets the copy | each request | it is read for each locker and claim |
//! | `client/server` `number` | the number of the server that answered last | the thread to which the store tells of another server | the same | one exchange |
//! | `client/renewals` `doubted_until` | when another server than before answered last | the same thread | each grant | a grant reads it under the mutex of its key, and the keys share no mutex for it |
//! | `state/owner` `ANY` | how many ended threads left holds | ending threads, the lease thread, under the table's mutex | the lease thread, for each due key | it is mostly zero, and then the table's mutex, which all clients share, is not taken |
//! | `state/owner` `LAST` | the number of the newest owner | a thread at its first lock, and a thread that takes a `Hold` | the same | one addition; the name is then entered under the table's mutex |
//! | `state/owner` `FIRST`, `of_child` (`OnceLock`s) | the table of the owners of a process, and that of its forked child | the thread that first needs it | each thread that enters an owner, or looks for one | a mutex of the parent may be locked in the child for ever |
//! | `state/locker` `tenures` | how many lockers a client has made | each thread that asks | the same | one addition; the keys of a client share no mutex that an asker holds |
//! | `state/machine` `parked_until` | until when a parked thread sleeps, for a clock that is moved by hand | that thread, under the key's mutex | `ManualClock::next_wake`, under the key's mutex | all threads share the waiter in an `Arc`, and its mutex is the key's |
//! | `state/machine` `place` | where a waiter stands in its queue | the thread that puts it there, under the key's mutex | the waiter that leaves, under the key's mutex | the same |
//! | `client/retries` `collect_at` | when to collect the replies to posted releases | the poster, the retry thread | both | each posted release looks at it, and mostly finds it set |
//! | `client/subscription` `is_checked` | whether the right to send messages was checked | the first thread that locks | every `lock()` | every `lock()` looks at it |
//! | `client/renewals` `trip` | the slowest recent round trip | each thread that gets an answer | the lease thread, each thread that schedules a renewal | a statistic |
//! | `client/worker` `started` | whether the thread runs | the thread that starts or stops it, under the mutex of its alarm | every `lock()`, every wait | the mutex is held while the thread is spawned |
//! | `client/events/outage` `is_failing` | whether the store fails | the thread that gets the first failure, or the answer that ends the outage, under the mutex of `failing` | each thread that gets an answer | each answer looks at it, and mostly finds that nothing fails |
//! | `client/events/metrics/meters` `types` and `next` (`OnceLock`s), `holds` | the series of each lock type; what was added to a gauge | the first thread that names a type; each thread that begins or ends a hold | each event that is recorded | recording takes no mutex |
//! | `state/key` `known` (a `OnceLock`) | what counts the key | the thread that names it first | the same | the handle's maker calls the recorder, with no mutex held |
//! | `client/subscription` `subscribed` | whether the inbox is open | the listening thread | a thread that asks, passes a hold on or lets a tenure linger | read under the mutexes of keys |
//! | `client/activity` `stage`, `inside`, `holds` | how many threads and holds use the store, and whether the client is closed | each `lock()`, each last unlock, `close` | the same | all keys would share that mutex |
//! | `client/cleanup` `half`, `counts` | posted releases without an answer | the poster, the thread that reads the answer | the end of the main thread | it is counted down on threads that may not block |
//! | `client/wait_limit` `cancelled` | whether a `CancelToken` is cancelled | `cancel` | threads that wait with the token | a waiter looks at it under its key's mutex |
//! | `redis/node` `is_silent` | whether a batch had no answer, and nothing was answered since | threads that wait for replies | threads that make batches, or post | a hint |
//! | `redis/node` `acknowledged` | the server of which enough replicas have acknowledged the last call | threads that wait for replies | threads that make batches | a hint |
//! | `redis/plain` `Contention` | which keys were contended recently | each thread that reads a reply | each plain attempt | a guess |
//! | `redis/plain` `GivenUp::any` | whether the list of given-up lockers has any | each thread that adds or removes one, under the list's mutex | every request | it is nearly always false |
//! | `transport/mux` `load`, `is_connected`, `current`, `written`, `stamped`, `deposed` | what other callers must know of a connection | callers and the writer, mostly under the mutex of the mux; `stamped` by the thread that reads a fence number | callers that choose a mux, the plain attempt | a caller looks at every mux for each call, and may not wait for those that use it |
//! | `transport/mux` `MuxSettings::connect_took` | how long the last connect took | each thread that connects | callers that choose a mux | an estimate |
//! | `transport/mux/polling` | how well polling and yielding have worked | all callers of a client | the same | estimates; all muxes would share that mutex |
//! | `redis/transport` `kept` | which connections may have posted calls that wait for the next batch | the thread that posts them, and a thread that begins a batch | each call | it is mostly zero, and then no mux is looked at |
//! | `transport/routes` | for each hash of a key, its mux and its calls in flight | each call when it begins and when it has its last reply | the same | one exchange; all muxes would share that mutex |
//! | `net/identity` `number` | how often another server has answered than before | each thread that connects, under the mutex of `last` | the writer, before it writes | that mutex is held while connections are cut |
//! | `cluster/inbox` `seen` | for each slot, whether it is absent, known or heard | the listening thread and each thread that gets ready, under the mutex of the slots | each `lock()`, each answer | all keys of a client share that mutex |
//! | `memory/fence` `LAST` | the last number issued in this process | each acquire of an embedded store | the same | stores share it, and no mutex |
//! | `memory/inboxes` `cut` | whether a test has cut the store off | `set_reachable`, under the store's mutex | every request, under it | it belongs to the connection, and the mutex to the store, which connections share |
//! | `clock/manual` `now` | the time of a clock that tests move | `advance` | each thread that reads the clock | sleepers read it under mutexes of their own |

use std::cell::Cell;

#[cfg(not(all(test, dlock_shuttle)))]
mod imp {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::sync::atomic;
    pub(crate) use std::thread;
    pub(crate) use std::thread_local;

    /// Takes a mutex and gives it back. Call it before a notification: a thread that looks under that mutex before it sleeps would miss the
    /// notification between its look and its sleep.
    #[inline]
    pub(crate) fn before_notifying<T>(looked_under: &Mutex<T>) {
        drop(looked_under.lock());
    }

    /// Runs a piece of work, so that the calling thread goes on after its panic. Returns `None` if it has panicked.
    pub(crate) fn catch_panic<R>(work: impl FnOnce() -> R) -> Option<R> {
        // Leak the panic, because its destructor might panic, too.
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).map_err(std::mem::forget).ok()
    }

    /// Runs a step of a connection. Turns a panic into an error.
    #[cfg(feature = "redis")]
    pub(crate) fn guarded<T>(step: impl FnOnce() -> std::io::Result<T>) -> std::io::Result<T> {
        catch_panic(step).unwrap_or_else(|| Err(std::io::Error::other("a panic while the connection was used")))
    }

    /// Returns the current time, from which limits and time-outs count.
    #[cfg(feature = "redis")]
    #[inline]
    pub(crate) fn now() -> std::time::Instant {
        std::time::Instant::now()
    }

    /// Returns a random number for jitter.
    pub(crate) fn random_u32(salt: u32) -> u32 {
        use std::hash::{BuildHasher, RandomState};
        // A hash with new random keys is random enough for jitter.
        (RandomState::new().hash_one(salt) >> 32) as u32
    }
}

#[cfg(all(test, dlock_shuttle))]
mod imp {
    pub(crate) use crate::check::model::shims::{
        Condvar, Mutex, MutexGuard, before_notifying, catch_panic, guarded, now, random_u32, thread,
    };
    pub(crate) use shuttle::sync::atomic;
    pub(crate) use shuttle::thread_local;
}

pub(crate) use imp::*;

imp::thread_local! {
    /// Whether the calling thread is one of a client or of a store.
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Runs the work of a thread that a store or a client has started. If the last handle of a client is dropped there, for example by a logger, another
/// thread ends the client: the end may wait for this thread.
pub fn on_own_thread<T>(work: impl FnOnce() -> T) -> T {
    IS_OWN.with(|is_own| is_own.set(true));
    work()
}

/// Returns whether the calling thread is one of a client or of a store.
pub(crate) fn is_own_thread() -> bool {
    IS_OWN.with(Cell::get)
}

/// The mutexes of rooms that no model looks at: they protect a table, or a connection of one thread. A room that a model looks at takes the mutexes
/// above instead.
#[cfg(feature = "redis")]
pub(crate) mod unseen {
    pub(crate) use parking_lot::{Condvar, Mutex, RwLock};
}
