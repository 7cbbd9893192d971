//! Property O on a consensus store, which does not report the commands that it executes: a look at the lock while a thread knows that it holds it
//! finds the entry of that thread's process.
//!
//! A look takes effect at some moment between its beginning and its end. So a look that lies wholly within a hold sees that hold.

use super::holds::Hold;
use super::windows::Window;
use super::{Property, Violation, ms};
use crate::history::Nanos;
use std::collections::HashSet;

/// Tokens are the store's numbers, times this.
const PASSES: u64 = 1024;

/// The result of a look at the lock's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sighting {
    /// When the look began and ended.
    pub(crate) from: Nanos,
    pub(crate) to: Nanos,
    /// The index of the entry's last change, and its locker; `None` if nobody held it.
    pub(crate) held: Option<(u64, String)>,
}

/// `process_of` returns the process of a locker. Looks in `windows` are not judged, because an operator changed the lock then.
pub(crate) fn check(
    sightings: &[Sighting],
    holds: &[Hold],
    windows: &[Window],
    process_of: impl Fn(&str) -> Option<u32>,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    for hold in holds.iter().filter(|hold| hold.is_claimed()) {
        let within = |seen: &&Sighting| hold.since <= seen.from && seen.to < hold.claimed_until();
        let excused = |seen: &Sighting| windows.iter().any(|window| window.from <= seen.to && seen.from <= window.to);
        let is_its_own = |seen: &Sighting| {
            seen.held.as_ref().is_some_and(|(index, locker)| {
                *index >= hold.token() / PASSES && process_of(locker) == Some(hold.actor.process)
            })
        };
        let foreign = sightings.iter().filter(within).find(|seen| !excused(seen) && !is_its_own(seen));
        if let Some(seen) = foreign {
            let story = format!("at {} the store had {:?} for the lock of {hold:?}", ms(seen.from), seen.held);
            violations.push(Violation::of(Property::O, story));
        }
    }
    violations
}

/// How many numbers the store gave.
pub(crate) fn tenures(holds: &[Hold]) -> usize {
    holds.iter().map(|hold| hold.token() / PASSES).collect::<HashSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::judge;
    use crate::history::Event;

    /// Thread 0.0 holds the lock with the number 5 from 20 to 500.
    fn found(at: Nanos, held: Option<(u64, &str)>, windows: &[Window]) -> usize {
        let history = "10 0.0 lock\n20 0.0 got 5120 1 900\n500 0.0 unlock\n600 0.0 left 0";
        let events: Vec<Event> = history.lines().map(|line| line.parse().unwrap()).collect();
        let holds = judge(events, &mut Vec::new(), false).holds;
        let held = held.map(|(index, locker)| (index, locker.to_owned()));
        check(&[Sighting { from: at, to: at + 10, held }], &holds, windows, |locker| locker.parse().ok()).len()
    }

    #[test]
    fn whoever_looks_in_a_hold_finds_its_entry() {
        assert_eq!(found(100, Some((5, "0")), &[]), 0);
        assert_eq!(found(100, Some((7, "0")), &[]), 0, "written anew");
        assert_eq!(found(100, Some((4, "0")), &[]), 1, "of an earlier hold");
        assert_eq!(found(100, Some((6, "1")), &[]), 1, "of another process");
        assert_eq!(found(100, None, &[]), 1);
        assert_eq!(found(15, None, &[]), 0, "begun before it");
        assert_eq!(found(495, None, &[]), 0, "ended after it");
        assert_eq!(found(100, None, &[Window { from: 90, to: 105 }]), 0, "by an operator");
        assert_eq!(found(100, None, &[Window { from: 111, to: 200 }]), 1);
    }
}
