//! How a timed wait for a store that does not answer ends if the clock is moved by hand.
//!
//! Such a clock may stand still, and then no limit that counts by it ends. A test may want that of a lock that is held. But the answers of a
//! store follow real time, so the wait for an answer does, too: a call whose limit has passed in real time ends with the store's failure.

use crate::client::core::Core;
use crate::client::wait_limit::WaitLimit;
use crate::state::key::Key;
use crate::state::machine::{Phase, State};
use crate::timer::Timer;
use crate::timing::STORE_LOOK_PAUSES;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The end of a wait in real time.
pub(super) struct Patience {
    ends: Instant,
    pause: Duration,
}

impl Patience {
    /// Returns the end in real time of a wait with a limit; `None` without a limit, and for a clock that follows real time.
    pub(super) fn of(limit: WaitLimit<'_>, clock: &Timer) -> Option<Self> {
        // A model of threads has no real time.
        if cfg!(dlock_shuttle) || !clock.is_moved_by_hand() {
            return None;
        }
        let left = limit.until()?.since(clock.now());
        let (shortest, longest) = STORE_LOOK_PAUSES;
        Some(Self { ends: Instant::now().checked_add(left)?, pause: left.clamp(shortest, longest) })
    }

    /// Returns for how long to sleep before the next look.
    pub(super) fn left(&self) -> Duration {
        self.ends.saturating_duration_since(Instant::now())
    }

    /// Returns whether the wait has lasted its limit in real time and the store does not answer. If the store has answered so far, it is asked
    /// once more, because the clock that starts the next question stands still; the answer is looked at after a pause.
    pub(super) fn is_in_vain(&mut self, core: &Core, key: &Arc<Key>, state: &State) -> bool {
        if !self.left().is_zero() {
            return false;
        }
        if state.failure.is_none() && matches!(state.phase, Phase::Waiting { .. }) {
            core.retries.ask_at(key, core.clock.now());
        }
        self.ends = Instant::now() + self.pause;
        state.failure.is_some()
    }
}
