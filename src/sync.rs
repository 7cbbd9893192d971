//! The mutexes, condition variables, atomics and threads that the middle layer uses.
//!
//! They are those of `parking_lot` and `std`. In a build with `--cfg dlock_shuttle`, the tests of
//! [`model`](crate::check::model) explore the schedules of the same code. The types are then twins that pass every step to a
//! scheduler, and sleeping uses virtual time. The stores always use the real ones: in the model, an operation of a store is one
//! step.

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

    /// Runs a piece of work, and catches its panic so that the calling thread goes on.
    pub(crate) fn catch_panic<R>(work: impl FnOnce() -> R) -> thread::Result<R> {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(work))
    }

    /// Runs a step of a connection. Turns a panic into an error.
    #[cfg(feature = "redis")]
    pub(crate) fn guarded<T>(step: impl FnOnce() -> std::io::Result<T>) -> std::io::Result<T> {
        catch_panic(step).unwrap_or_else(|panic| {
            // Leak the panic, because its destructor might panic, too.
            std::mem::forget(panic);
            Err(std::io::Error::other("a panic while the connection was used"))
        })
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
    pub(crate) use crate::check::model::twins::{
        Condvar, Mutex, MutexGuard, before_notifying, catch_panic, guarded, now, random_u32, thread,
    };
    pub(crate) use shuttle::sync::atomic;
    pub(crate) use shuttle::thread_local;
}

pub(crate) use imp::*;

/// The mutexes of rooms that no model looks at: what they protect is a table or a connection of one thread. Whoever lets a model look at such a
/// room takes those above in their place.
#[cfg(feature = "redis")]
pub(crate) mod unseen {
    pub(crate) use parking_lot::{Condvar, Mutex, RwLock};
}
