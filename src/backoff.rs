//! Pauses after failures: how long each is ([`Backoff`]), and whether one lasts ([`Cooldown`]).

use crate::sync::random_u32;
use std::ops::Add;
use std::time::Duration;

/// The rule by which pauses grow: they double up to a cap. Unless they are [exact](Self::exact), each is between half of its step and all of
/// it, so that many clients do not retry at the same moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    is_exact: bool,
}

impl Backoff {
    /// Creates pauses from `first`, doubling up to `longest`.
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, is_exact: false }
    }

    /// Creates pauses that are all equal.
    pub(crate) const fn constant(pause: Duration) -> Self {
        Self::new(pause, pause).exact()
    }

    /// Makes each pause its whole step.
    pub(crate) const fn exact(self) -> Self {
        Self { is_exact: true, ..self }
    }

    /// Returns the pause after `failures` consecutive failures.
    pub(crate) fn after(self, failures: u32) -> Duration {
        let step = self.first.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(self.longest);
        if self.is_exact {
            return step;
        }
        let half = step / 2;
        half + half.mul_f64(f64::from(random_u32(failures)) / f64::from(u32::MAX))
    }
}

/// A time after failures in which something is not tried. `T` is a moment of the clock that it counts by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cooldown<T> {
    failures: u32,
    until: Option<T>,
}

impl<T: Copy + PartialOrd + Add<Duration, Output = T>> Cooldown<T> {
    /// Notes one more failure in a row. Returns the end of the cool-down that it begins.
    pub(crate) fn fail(&mut self, now: T, backoff: Backoff) -> T {
        self.failures = self.failures.saturating_add(1);
        let until = now + backoff.after(self.failures);
        self.until = Some(until);
        until
    }

    /// Returns whether the cool-down lasts.
    pub(crate) fn lasts(&self, now: T) -> bool {
        self.lasts_until(now).is_some()
    }

    /// Returns the end of the cool-down, if it lasts.
    pub(crate) fn lasts_until(&self, now: T) -> Option<T> {
        self.until.filter(|until| now < *until)
    }

    /// Notes a success: the cool-down ends, and the next failure is a first one.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }
}

impl<T> Default for Cooldown<T> {
    fn default() -> Self {
        Self { failures: 0, until: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Moment;

    #[test]
    fn pauses_double_up_to_the_cap_and_differ() {
        let backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(100));
        for (failures, step) in [(0, 10), (1, 10), (2, 20), (3, 40), (4, 80), (5, 100), (u32::MAX, 100)] {
            let pause = backoff.after(failures);
            let step = Duration::from_millis(step);
            assert!(pause >= step / 2 && pause <= step, "{failures}: {pause:?}");
            assert_eq!(backoff.exact().after(failures), step, "{failures}");
        }
        let first = backoff.after(5);
        assert!((0..100).any(|_| backoff.after(5) != first));
    }

    #[test]
    fn a_cool_down_grows_with_each_failure_and_ends_with_a_success() {
        let second = Duration::from_secs(1);
        let backoff = Backoff::new(second, second * 2).exact();
        let mut cooldown = Cooldown::default();
        let begun = Moment::from_nanos(0);
        assert!(!cooldown.lasts(begun));
        for (at, length) in [(0, 1), (10, 2), (20, 2)] {
            let now = begun + second * at;
            let length = second * length;
            let end = now + length;
            assert_eq!(cooldown.fail(now, backoff), end);
            assert!(cooldown.lasts(now + (length - Duration::from_nanos(1))) && !cooldown.lasts(end));
        }
        cooldown.end();
        assert!(!cooldown.lasts(begun + second * 20));
        assert_eq!(cooldown.fail(begun, backoff), begun + second);
    }
}
