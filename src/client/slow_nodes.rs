//! Keys whose servers keep others waiting. Two separate threads ask about these keys, so that no other key waits for an answer that comes
//! late or never.
//!
//! The main lease and retry threads hand such keys over, and go on with the rest. Only a store of several servers has such keys, and each of
//! the two threads starts with the first of them. They put the result of a request back into the schedules of the main threads.

use super::cleanup::PendingCleanup;
use super::orders::Order;
use super::worker::Worker;
use crate::clock::Moment;
use crate::log;
use crate::state::key::Key;
use crate::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) struct SlowNodeWorkers {
    pub(super) renewals: Backlog<KeysById>,
    pub(super) retries: Backlog<SlowRetries>,
}

/// The keys to ask about, by their ids, so that a key that falls due again is there only once.
pub(super) type KeysById = BTreeMap<u64, Arc<Key>>;

/// What the thread that retries has to do.
#[derive(Default)]
pub(super) struct SlowRetries {
    pub(super) keys: KeysById,
    pub(super) cleanups: Vec<PendingCleanup>,
    pub(super) orders: Vec<Order>,
}

/// What one of the two threads has to do, and the thread.
pub(super) struct Backlog<T> {
    work: Mutex<T>,
    pub(super) thread: Worker,
}

impl<T: Default> Backlog<T> {
    pub(super) fn new(thread: Worker) -> Self {
        Self { work: Mutex::default(), thread }
    }

    /// Starts the thread, unless it was started. Returns `false` if the operating system refuses it.
    pub(super) fn start(&self) -> bool {
        let note = |error: &_| log::debug!(CLIENT, "no thread for keys whose server keeps others waiting: {error}");
        self.thread.start().inspect_err(note).is_ok()
    }

    /// Adds work for the thread, which must have been started.
    pub(super) fn add(&self, now: Moment, add: impl FnOnce(&mut T)) {
        add(&mut self.work.lock());
        self.thread.wake_by(now);
    }

    pub(super) fn take(&self) -> T {
        std::mem::take(&mut self.work.lock())
    }
}
