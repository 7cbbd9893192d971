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
#[path = "../tests/white_box/backoff.rs"]
mod tests;
