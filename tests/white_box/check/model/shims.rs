//! Twins of `parking_lot`'s and `std`'s types, with the same methods, that use the scheduler and the virtual clock.
//!
//! The mutex is unfair, so threads may overtake one another wherever they may with `parking_lot`. A thread is never woken without a
//! reason: a thread that nobody wakes sleeps for ever, and shuttle reports that.

use super::mistakes::{self, Mutant};
use super::time;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::{Duration, Instant};

#[derive(Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

/// `None` only while the thread is parked.
pub(crate) struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

#[derive(Debug)]
pub(crate) struct Condvar(Arc<shuttle::sync::Condvar>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(MutexGuard(Some(guard))),
            Err(TryLockError::Poisoned(poisoned)) => Some(MutexGuard(Some(poisoned.into_inner()))),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex { .. }")
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().expect("not parked")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_deref_mut().expect("not parked")
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(Arc::new(shuttle::sync::Condvar::new()))
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let parked = guard.0.take().expect("not parked");
        guard.0 = Some(self.0.wait(parked).unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits until notified, or until the virtual clock has moved on by `limit`.
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, limit: Duration) {
        let _sleeper = time::wake_after(&self.0, limit);
        self.wait(guard);
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

pub(crate) mod thread {
    pub(crate) use shuttle::thread::*;

    pub(crate) fn sleep(limit: super::Duration) {
        let (mutex, condvar) = (super::Mutex::new(()), super::Condvar::new());
        let until = super::time::now() + limit;
        let mut guard = mutex.lock();
        while super::time::now() < until {
            condvar.wait_for(&mut guard, until.since(super::time::now()));
        }
    }
}

/// The virtual time, for limits and time-outs.
pub(crate) fn now() -> Instant {
    time::instant()
}

/// Takes a mutex and gives it back, unless the mistake is built in that the threads that look under it are woken without that.
pub(crate) fn before_notifying<T>(looked_under: &Mutex<T>) {
    let mistake = match std::any::type_name::<T>().rsplit("::").next() {
        Some("State") => Some(Mutant::NudgesWithoutMutex),
        Some("Alarm") => Some(Mutant::RingsWithoutMutex),
        Some("()") => Some(Mutant::LeavesWithoutGate),
        _ => None,
    };
    if !mistake.is_some_and(mistakes::is) {
        drop(looked_under.lock());
    }
}

/// Runs `work`. Here a panic fails the test, wherever it comes from.
pub(crate) fn catch_panic<R>(work: impl FnOnce() -> R) -> Option<R> {
    Some(work())
}

/// A panic that a scenario injects, and that is not reported.
pub(crate) struct Injected;

/// Runs a step of a connection. A panic that the scenario injected becomes an error.
pub(crate) fn guarded<T>(step: impl FnOnce() -> std::io::Result<T>) -> std::io::Result<T> {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|panic| {
        if panic.is::<Injected>() { Err(std::io::Error::other("a panic")) } else { resume_unwind(panic) }
    })
}

/// A random number that is the same when a schedule is replayed.
pub(crate) fn random_u32(_salt: u32) -> u32 {
    shuttle::rand::RngCore::next_u32(&mut shuttle::rand::thread_rng())
}
