//! Pauses between failed attempts. They double, are capped, and are jittered so that many clients do not retry at the
//! same moment.

use crate::sync::random_u32;
use crate::timing::{FIRST_RETRY_PAUSE, SHORTEST_RETRY_CAP};
use std::time::Duration;

/// The rule by which pauses grow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    cap: Duration,
}

impl Backoff {
    /// Creates pauses from [`FIRST_RETRY_PAUSE`], doubling up to `cap`.
    pub(crate) fn capped(cap: Duration) -> Self {
        Self { cap: cap.max(SHORTEST_RETRY_CAP) }
    }

    /// Returns the pause after `failures` consecutive failures: between half of the step and all of it.
    pub(crate) fn after(self, failures: u32) -> Duration {
        let step = FIRST_RETRY_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(self.cap);
        let half = step / 2;
        half + Duration::from_secs_f64(half.as_secs_f64() * (f64::from(random_u32(failures)) / f64::from(u32::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_cap_and_differ() {
        let backoff = Backoff::capped(Duration::from_millis(100));
        for (failures, step) in [(1, 10), (2, 20), (3, 40), (4, 80), (5, 100), (u32::MAX, 100)] {
            let pause = backoff.after(failures);
            let step = Duration::from_millis(step);
            assert!(pause >= step / 2 && pause <= step, "{failures}: {pause:?}");
        }
        let first = backoff.after(5);
        assert!((0..100).any(|_| backoff.after(5) != first));
    }
}
