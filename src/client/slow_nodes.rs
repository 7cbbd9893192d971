//! Keys whose servers keep others waiting. Two separate threads ask about these keys, so that no other key waits for an answer that comes
//! late or never.
//!
//! The main lease and retry threads hand such keys over, and go on with the rest. Only a store of several servers has such keys, and the
//! two threads start with the first of them. They put the result of a request back into the schedules of the main threads.

use super::cleanup::{PendingCleanup, ROUND};
use super::orders::Order;
use super::worker::Worker;
use crate::clock::Moment;
use crate::log;
use crate::state::key::Key;
use crate::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The keys to ask about, by their ids: a key may fall due again meanwhile.
type KeysById = BTreeMap<u64, Arc<Key>>;

pub(super) struct SlowNodeWorkers {
    backlog: Mutex<Backlog>,
    pub(super) lease_thread: Worker,
    retry_thread: Worker,
}

/// What the two threads have to do.
#[derive(Default)]
struct Backlog {
    renewals: KeysById,
    retries: KeysById,
    cleanups: Vec<PendingCleanup>,
    orders: Vec<Order>,
}

impl SlowNodeWorkers {
    pub(super) fn new(lease_thread: Worker, retry_thread: Worker) -> Self {
        Self { backlog: Mutex::default(), lease_thread, retry_thread }
    }

    /// Has a key's lease renewed by the slow-node worker. Returns `false` if the operating system refuses its thread.
    pub(super) fn takes_renewal(&self, key: &Arc<Key>, now: Moment) -> bool {
        let starts = starts(&self.lease_thread);
        if starts {
            self.backlog.lock().renewals.insert(key.id, Arc::clone(key));
            self.lease_thread.wake_by(now);
        }
        starts
    }

    /// Starts the thread that retries. Returns `false` if the operating system refuses it.
    pub(super) fn starts_retrying(&self) -> bool {
        starts(&self.retry_thread)
    }

    /// Has the slow-node worker ask about keys and pending clean-ups. Leaves the pending clean-ups for which the thread would take too
    /// long.
    pub(super) fn add_retries(&self, keys: Vec<Arc<Key>>, cleanups: &mut Vec<PendingCleanup>, now: Moment) {
        let mut backlog = self.backlog.lock();
        backlog.retries.extend(keys.into_iter().map(|key| (key.id, key)));
        let room = ROUND.saturating_sub(backlog.cleanups.len()).min(cleanups.len());
        backlog.cleanups.extend(cleanups.drain(..room));
        drop(backlog);
        self.retry_thread.wake_by(now);
    }

    pub(super) fn take_renewals(&self) -> Vec<Arc<Key>> {
        std::mem::take(&mut self.backlog.lock().renewals).into_values().collect()
    }

    /// Has the slow-node worker carry out orders.
    pub(super) fn add_orders(&self, orders: Vec<Order>, now: Moment) {
        self.backlog.lock().orders.extend(orders);
        self.retry_thread.wake_by(now);
    }

    pub(super) fn take_orders(&self) -> Vec<Order> {
        std::mem::take(&mut self.backlog.lock().orders)
    }

    pub(super) fn take_retries(&self) -> (Vec<Arc<Key>>, Vec<PendingCleanup>) {
        let mut backlog = self.backlog.lock();
        let (keys, cleanups) = (std::mem::take(&mut backlog.retries), std::mem::take(&mut backlog.cleanups));
        drop(backlog);
        (keys.into_values().collect(), cleanups)
    }

    /// Ends the thread that retries. Returns the pending clean-ups that it has not come to.
    pub(super) fn stop_retrying(&self) -> Vec<PendingCleanup> {
        self.retry_thread.stop();
        self.take_retries().1
    }
}

fn starts(worker: &Worker) -> bool {
    let note = |error: &_| log::debug!(CLIENT, "no thread for keys whose server keeps others waiting: {error}");
    worker.start().inspect_err(note).is_ok()
}
