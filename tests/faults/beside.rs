//! The locks that workers take together with the scene's own, and the histories of these locks.
//!
//! A worker takes two of the three locks at once, or all. Any two such choices have a lock in common, so no two holds may overlap. If no lock is
//! held, one of the workers gets all that it wants. The checker judges each lock by itself, and waits and losses by the holds of all.

use crate::checker::windows::Lossy;
use crate::checker::{self, Absence, Verdict, Violation};
use crate::history::Event;
use crate::setup::Setup;

/// The locks: one before [`KEY`](crate::work::KEY) in the order of the keys, and one behind it.
pub(crate) const BESIDE: [(&str, &str); 2] = [("w", "DLOCK_FAULTS_w"), ("y", "DLOCK_FAULTS_y")];

/// One of these locks.
pub(crate) struct Beside {
    pub(crate) key: &'static str,
    pub(crate) events: Vec<Event>,
}

impl Beside {
    /// Returns these locks. There are none if the processes take one lock at a time.
    pub(crate) fn all(setup: &Setup) -> Vec<Self> {
        let wanted = if setup.work.together { &BESIDE[..] } else { &[] };
        wanted.iter().map(|(_, key)| Self { key, events: Vec::new() }).collect()
    }

    /// Judges the history of this lock alone.
    pub(crate) fn judge(self, absences: &mut Vec<Absence>, lossy: Lossy) -> Verdict {
        let mut verdict = checker::judge(self.events, absences, lossy);
        let named = |found: Violation| Violation { story: format!("{}: {}", self.key, found.story), ..found };
        verdict.violations = verdict.violations.into_iter().map(named).collect();
        verdict
    }
}
