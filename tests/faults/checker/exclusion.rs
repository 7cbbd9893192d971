//! Property M: two holds never overlap while both are valid by what their threads knew.

use super::holds::Hold;
use super::windows::Lossy;
use super::{Property, Violation, ms};
use crate::history::Nanos;

/// Two holds whose threads both took the lock for their own.
pub(super) struct Both<'h> {
    first: &'h Hold,
    second: &'h Hold,
    until: Nanos,
}

impl Both<'_> {
    pub(super) fn length(&self) -> Nanos {
        self.until - self.second.since
    }
}

/// `holds` in the order in which they began.
pub(super) fn overlaps(holds: &[Hold]) -> Vec<Both<'_>> {
    let mut overlaps = Vec::new();
    let mut last: Option<&Hold> = None;
    for hold in holds.iter().filter(|hold| hold.is_claimed()) {
        if let Some(first) = last.filter(|before| hold.since < before.claimed_until()) {
            overlaps.push(Both { first, second: hold, until: first.claimed_until().min(hold.claimed_until()) });
        }
        if last.is_none_or(|before| before.claimed_until() < hold.claimed_until()) {
            last = Some(hold);
        }
    }
    overlaps
}

pub(super) fn check(holds: &[Hold], lossy: &Lossy) -> Vec<Violation> {
    let overlaps = overlaps(holds);
    let broken = overlaps.iter().filter(|both| !lossy.allows_both(both.second, both.until));
    let story = |both: &Both<'_>| {
        let (since, length) = (ms(both.second.since), ms(both.length()));
        format!("{:?} and {:?} both held the lock from {since} on, for {length}", both.first, both.second)
    };
    broken.map(|both| Violation::of(Property::M, story(both))).collect()
}
