//! How a single attempt gets a lock that only lingers: it stands in the store's queue for a moment, and the holder,
//! which is told of that, gives the lock up.
//!
//! The holder's locker says that its tenure *may* linger (the `L` at its end), not that no thread is inside. So the
//! moment is short, and an attempt on any other busy key returns immediately.
//!
//! # How a lock lingers
//!
//! ```text
//!   client A                        Redis                       client B
//!      last hold ends: A-3L stays
//!      lock(): next token, no Redis
//!      last hold ends: A-3L stays
//!                                   acquire(B-7, wait) ◀─────── B asks
//!      contended(A-3L) ◀─────────── PUBLISH
//!      Lingering → Releasing
//!      release(A-3L) ─────────────▶ key := B-7 ───────────────▶ granted
//! ```
//!
//! This is lock caching with revocation. The phase `Lingering` has three ways out, all under the key's mutex: an arriving thread takes the next
//! hold; the retry thread releases, when the time is over or others want the key; the lease thread notices a loss. A client lingers only if it
//! would learn that others wait: without a subscription a tenure ends with its last hold. The retry thread is told once, not for each hold;
//! when it comes too early, it looks when to come again. The `L` in the locker tells others that asking is worthwhile: `try_lock` then stands
//! in the queue for a moment (`src/client/acquire/recall.rs`). Every other busy key is answered at once.

use crate::clock::Moment;
use crate::timing::{FIRST_RECALL_PAUSE, MOST_RECALLS, RECALL, RECALL_TRIPS};
use std::time::Duration;

/// The time limit and the pauses of one such attempt.
#[derive(Debug)]
pub(crate) struct Recall {
    until: Moment,
    pause: Duration,
    tries: u32,
}

impl Recall {
    /// Begins a recall now. `trip` is how long a round trip takes.
    pub(crate) fn begin(now: Moment, trip: Duration) -> Self {
        Self {
            until: now + RECALL.max(trip.saturating_mul(RECALL_TRIPS)),
            pause: FIRST_RECALL_PAUSE,
            tries: MOST_RECALLS,
        }
    }

    /// Returns how long to wait before the next request, or `None` if the time is over.
    pub(crate) fn pause(&mut self, now: Moment) -> Option<Duration> {
        self.tries = self.tries.checked_sub(1)?;
        let left = self.until.since(now);
        let pause = self.pause.min(left);
        self.pause = self.pause.saturating_mul(2);
        (!left.is_zero()).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(trip: Duration) -> Vec<u128> {
        let mut now = Moment::from_nanos(1_000_000_000);
        let mut recall = Recall::begin(now, trip);
        let mut pauses = Vec::new();
        while let Some(pause) = recall.pause(now) {
            pauses.push(pause.as_micros());
            now = now + pause + trip;
        }
        pauses
    }

    #[test]
    fn it_asks_a_few_times_in_five_milliseconds_or_five_round_trips() {
        assert_eq!(pauses(Duration::ZERO), [200, 400, 800, 1600, 2000]);
        let slow = pauses(Duration::from_millis(20));
        assert!(slow.len() <= RECALL_TRIPS as usize, "{slow:?}");
        assert!(slow.len() >= 3, "{slow:?}");
    }

    #[test]
    fn it_ends_where_the_clock_stands_still() {
        let now = Moment::from_nanos(1_000_000_000);
        let mut recall = Recall::begin(now, Duration::ZERO);
        assert_eq!((0..100).filter(|_| recall.pause(now).is_some()).count(), MOST_RECALLS as usize);
    }
}
