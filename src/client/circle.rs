//! Threads of a client that wait for one another: each holds a lock and waits for the next one.
//!
//! Nothing ends such a wait, and the leases are renewed meanwhile, so the client tells the program. A thread that holds a lock and has waited
//! for another one for a second is entered in the table of long waits.

use super::core::Core;
use super::long_waits::LongWait;
use crate::clock::Moment;
use crate::log;
use crate::state::key::Key;
use crate::state::names;
use crate::state::owner;
use crate::state::queue::Waiter;
use crate::timing;
use std::sync::Arc;

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
