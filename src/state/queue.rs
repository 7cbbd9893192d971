//! The local FIFO: threads of this client that wait for one key, in order of arrival.
//!
//! Only the client as a whole asks Redis for the key. Its threads wait parked in this queue, and one of them at a
//! time is given the hold or the turn to ask. All of this happens under the key's mutex.

use crate::clock::Moment;
use crate::config::DLockConfig;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// One parked thread.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// The thread's number, from [`current_thread`](crate::state::owner::current_thread). A thread waits in only one
    /// place at a time.
    pub(crate) thread: u64,
    /// The settings of the handle through which it waits.
    pub(crate) settings: Arc<DLockConfig>,
    /// When it began to wait, or to wait again after its turn.
    pub(crate) since: Moment,
    /// The condition variable that it is parked on, with the key's mutex.
    pub(crate) parked: Condvar,
    // ORDERING: Relaxed: it is written and read with the key's mutex held.
    parked_until: AtomicU64,
}

impl Waiter {
    pub(crate) fn new(thread: u64, settings: Arc<DLockConfig>, since: Moment) -> Arc<Self> {
        Arc::new(Self { thread, settings, since, parked: Condvar::new(), parked_until: AtomicU64::new(0) })
    }

    /// Returns until when the thread sleeps at most; a moment that has come if it has not fallen asleep yet. Call it with the key's
    /// mutex held.
    pub(crate) fn parked_until(&self) -> Moment {
        Moment::from_nanos(self.parked_until.load(Ordering::Relaxed)) // ORDERING: under the key's mutex.
    }

    /// Parks the calling thread until it is woken, or for `sleep`, which ends at `until` by the client's clock or earlier.
    pub(crate) fn park<T>(&self, state: &mut MutexGuard<'_, T>, until: Moment, sleep: Duration) {
        self.parked_until.store(until.as_nanos(), Ordering::Relaxed); // ORDERING: under the key's mutex.
        self.parked.wait_for(state, sleep);
    }
}

/// The waiting threads of one key.
#[derive(Debug, Default)]
pub(crate) struct Queue(VecDeque<Arc<Waiter>>);

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a newcomer at the end.
    pub(crate) fn push(&mut self, waiter: Arc<Waiter>) {
        self.0.push_back(waiter);
    }

    /// Puts a thread that had its turn and did not get the lock back to where it came from, the head.
    pub(crate) fn push_back_to_head(&mut self, waiter: Arc<Waiter>) {
        self.0.push_front(waiter);
    }

    pub(crate) fn head(&self) -> Option<&Arc<Waiter>> {
        self.0.front()
    }

    pub(crate) fn pop(&mut self) -> Option<Arc<Waiter>> {
        self.0.pop_front()
    }

    /// Removes a thread that gives up. Returns whether it was in the queue.
    pub(crate) fn remove(&mut self, thread: u64) -> bool {
        match self.0.iter().position(|waiter| waiter.thread == thread) {
            Some(place) => self.0.remove(place).is_some(),
            None => false,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Waiter>> {
        self.0.iter()
    }
}
