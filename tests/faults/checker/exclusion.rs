//! M: no two holds that are both valid, by what their threads knew, overlap.

use super::holds::Hold;
use super::{Property, Violation, ms};

/// `holds` in the order in which they began.
pub(super) fn check(holds: &[Hold]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut last: Option<&Hold> = None;
    for hold in holds.iter().filter(|hold| hold.is_claimed()) {
        if let Some(before) = last
            && hold.since < before.claimed_until()
        {
            let overlap = before.claimed_until().min(hold.claimed_until()) - hold.since;
            violations.push(Violation::of(
                Property::M,
                format!("{before:?} and {hold:?} both held the lock from {} on, for {}", ms(hold.since), ms(overlap)),
            ));
        }
        if last.is_none_or(|before| before.claimed_until() < hold.claimed_until()) {
            last = Some(hold);
        }
    }
    violations
}
