//! The table of the threads that hold a lock and have waited long for another one, and the cycles of waits that it shows.
//!
//! The thread of a cycle that is entered last finds all other threads of the cycle in the table.

use crate::state::key::Key;
use crate::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The threads that hold a lock and have waited long for another one, each with the key that it waits for.
#[derive(Default)]
pub(super) struct LongWaits(Mutex<BTreeMap<u64, Arc<Key>>>);

/// A thread that is entered in the table until this is dropped.
pub(in crate::client) struct LongWait<'a> {
    waits: &'a LongWaits,
    thread: u64,
    /// The keys of the circle that it has closed: see [`SlowWait::circle`](crate::SlowWait::circle).
    pub(super) circle: Vec<String>,
}

impl LongWaits {
    /// Enters a thread that waits for a key.
    pub(super) fn enter(&self, thread: u64, key: &Arc<Key>) -> LongWait<'_> {
        let mut waits = self.0.lock();
        waits.insert(thread, Arc::clone(key));
        LongWait { waits: self, thread, circle: circle(&waits, thread) }
    }
}

impl Drop for LongWait<'_> {
    fn drop(&mut self) {
        self.waits.0.lock().remove(&self.thread);
    }
}

/// Returns the keys of the circle in which a thread waits, from the one that it waits for to one that it holds. Returns none if there is no
/// circle.
fn circle(waits: &BTreeMap<u64, Arc<Key>>, thread: u64) -> Vec<String> {
    let (mut keys, mut waiting) = (Vec::new(), thread);
    // A thread that has just been given the key it waited for may still be in the table, and then leads to itself.
    while let Some(key) = waits.get(&waiting).filter(|_| keys.len() < waits.len()) {
        keys.push(key.name.to_string());
        waiting = key.hold.owner();
        if waiting == thread {
            return keys;
        }
    }
    Vec::new()
}
