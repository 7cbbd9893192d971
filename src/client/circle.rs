//! Threads of a client that wait for one another: each holds a lock and waits for the next one.
//!
//! Nothing ends such a wait, and the leases are renewed meanwhile, so the client tells the program. A thread that holds a lock and has waited
//! for another one for a second is entered in a table. Of the threads of a circle, the last one that is entered finds all others there.

use super::core::Core;
use crate::clock::Moment;
use crate::log;
use crate::state::key::Key;
use crate::state::names;
use crate::state::owner;
use crate::state::queue::Waiter;
use crate::sync::Mutex;
use crate::timing;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The threads that hold a lock and have waited long for another one: which one.
#[derive(Debug, Default)]
pub(crate) struct LongWaits(Mutex<BTreeMap<u64, Arc<Key>>>);

/// A thread that is entered in the table until this is dropped.
#[derive(Debug)]
pub(super) struct LongWait<'a> {
    waits: &'a LongWaits,
    thread: u64,
    /// The keys of the circle that it has closed: see [`SlowWait::circle`](crate::SlowWait::circle).
    pub(super) circle: Vec<String>,
}

impl LongWaits {
    /// Enters a thread that waits for a key.
    fn enter(&self, thread: u64, key: &Arc<Key>) -> LongWait<'_> {
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

impl Core {
    /// Returns when to look whether the wait of the calling thread closes a circle. A thread without a hold is in none.
    pub(super) fn circle_at(waiter: &Waiter) -> Option<Moment> {
        owner::has_holds().then(|| waiter.since + timing::CIRCLE)
    }

    /// Enters the calling thread among those that have waited long, and tells the program if that closes a circle.
    pub(super) fn waits_long(&self, key: &Arc<Key>, waiter: &Waiter) -> LongWait<'_> {
        let wait = self.long_waits.enter(waiter.thread, key);
        if !wait.circle.is_empty() {
            let name = names::of(waiter.thread).and_then(|name| name.name).unwrap_or_default();
            log::warn!(
                ACQUIRE,
                "lock {:?}: thread {name:?} waits in a circle, which will not end by itself: each of the locks {:?} is held by the thread \
                 that waits for the next one, and the last one by this thread; lock them in one order everywhere",
                key.name,
                wait.circle
            );
            let waited = self.clock.now().since(waiter.since);
            self.tell_slow_wait(key, &waiter.settings, waited, &wait.circle);
        }
        wait
    }
}
