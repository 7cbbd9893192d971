//! Where the middle layer gets its mutexes, condition variables, atomics and threads from.
//!
//! They are those of `parking_lot` and `std`. In a build with `--cfg dlock_shuttle` the tests of [`model`](crate::check::model)
//! explore the schedules of the same code: then they are twins that hand every step to a scheduler, and sleeping
//! is by virtual time. The stores keep their own: an operation of a store is one step there.

#[cfg(not(all(test, dlock_shuttle)))]
mod imp {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::sync::atomic;
    pub(crate) use std::thread;
    pub(crate) use std::thread_local;

    /// Runs a piece of work whose panic is not to end the calling thread.
    pub(crate) fn contain<R>(work: impl FnOnce() -> R) -> thread::Result<R> {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(work))
    }

    /// Runs a step of a connection. A panic of it is an error.
    #[cfg(feature = "redis")]
    pub(crate) fn guarded<T>(step: impl FnOnce() -> std::io::Result<T>) -> std::io::Result<T> {
        contain(step).unwrap_or_else(|panic| {
            // Its destructor might panic, too.
            std::mem::forget(panic);
            Err(std::io::Error::other("a panic while the connection was used"))
        })
    }

    /// The moment from which limits and time-outs count.
    #[cfg(feature = "redis")]
    #[inline]
    pub(crate) fn now() -> std::time::Instant {
        std::time::Instant::now()
    }

    /// A random number for jitter.
    pub(crate) fn die(salt: u32) -> u32 {
        use std::hash::{BuildHasher, RandomState};
        // A hash under fresh random keys is as good a die as is needed here.
        (RandomState::new().hash_one(salt) >> 32) as u32
    }
}

#[cfg(all(test, dlock_shuttle))]
mod imp {
    pub(crate) use crate::check::model::twins::{Condvar, Mutex, MutexGuard, contain, die, guarded, now, thread};
    pub(crate) use shuttle::sync::atomic;
    pub(crate) use shuttle::thread_local;
}

pub(crate) use imp::*;

/// Whether a mistake is built in, which only tests do: `if mutant!(Name)` is a point where a check can be removed. Those of
/// the model name it in the test; those of a build with `--cfg dlock_mutants`, in the environment variable `DLOCK_MUTANT`.
#[cfg(not(any(all(test, dlock_shuttle), dlock_mutants)))]
macro_rules! mutant {
    ($name:ident) => {
        $crate::sync::NO_MUTANT
    };
}

#[cfg(not(any(all(test, dlock_shuttle), dlock_mutants)))]
pub(crate) const NO_MUTANT: bool = false;

#[cfg(all(dlock_mutants, not(all(test, dlock_shuttle))))]
macro_rules! mutant {
    ($name:ident) => {
        $crate::sync::is_mutant(stringify!($name))
    };
}

/// Whether the process is to make this mistake.
#[cfg(all(dlock_mutants, not(all(test, dlock_shuttle))))]
pub(crate) fn is_mutant(name: &str) -> bool {
    static NAMED: once_cell::sync::Lazy<Option<String>> =
        once_cell::sync::Lazy::new(|| std::env::var("DLOCK_MUTANT").ok());
    NAMED.as_deref() == Some(name)
}

#[cfg(all(test, dlock_shuttle))]
macro_rules! mutant {
    ($name:ident) => {
        $crate::check::model::mutants::is($crate::check::model::mutants::Mutant::$name)
    };
}

pub(crate) use mutant;
