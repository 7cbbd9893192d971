//! What wakes a thread that waits in the local queue, besides its waiter.

use crate::client::parts::Parts;
use crate::client::wait_limit::WaitLimit;
use crate::clock::{AT_WORK, Moment, Sleeper, Timer};
use crate::state::key::Key;
use crate::state::machine::{Phase, State, Waiter};
use crate::timing::STORE_LOOK_PAUSES;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A thread that waits for a key.
pub(super) struct Parked {
    pub(super) key: Arc<Key>,
    pub(super) waiter: Arc<Waiter>,
}

impl Sleeper for Parked {
    fn wake(&self) {
        self.key.nudge(&self.waiter);
    }

    fn sleeps_until(&self) -> Moment {
        let state = self.key.state.lock();
        let owner = self.waiter.owner;
        if self.key.hold.is_owned_by(owner) || state.is_turn_of(owner) { AT_WORK } else { self.waiter.parked_until() }
    }
}

/// The end, in real time, of a wait with a limit, for a clock that is moved by hand.
///
/// While such a clock stands still, no limit that counts by it ends. A test may want that for a wait for a lock that is held. But a store
/// answers in real time, so a wait for its answer must end in real time, too. If the store fails, a call whose limit has passed in real
/// time ends with the store's failure.
pub(super) struct Patience {
    ends: Instant,
    pause: Duration,
}

impl Patience {
    /// Returns the end, in real time, of a wait with this limit. `None` without a limit, and for a clock that follows real time.
    pub(super) fn of(limit: WaitLimit<'_>, clock: &Timer) -> Option<Self> {
        // The model of the threads has no real time.
        if cfg!(dlock_shuttle) || !clock.is_moved_by_hand() {
            return None;
        }
        let left = limit.until?.since(clock.now());
        let (shortest, longest) = STORE_LOOK_PAUSES;
        Some(Self { ends: Instant::now().checked_add(left)?, pause: left.clamp(shortest, longest) })
    }

    /// Returns how long to sleep before the next check.
    pub(super) fn left(&self) -> Duration {
        self.ends.saturating_duration_since(Instant::now())
    }

    /// Looks, once the limit has passed in real time, how the last request to the store has ended. Returns `true` if it has failed: the wait is in
    /// vain. If no request has failed, the retry thread asks once more, because the clock that would start the next request stands still. The next look,
    /// after a pause, sees the answer.
    pub(super) fn look_at_store(&mut self, parts: &Parts, key: &Arc<Key>, state: &State) -> bool {
        if !self.left().is_zero() {
            return false;
        }
        if state.failure.is_none() && matches!(state.phase, Phase::Waiting { .. }) {
            parts.retries.ask_at(key, parts.core.clock.now());
        }
        self.ends = Instant::now() + self.pause;
        state.failure.is_some()
    }
}
