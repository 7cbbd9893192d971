//! The bounds of a scenario, and its findings.

use crate::checker::{Property, Violation};
use crate::elsewhere::Found;
use crate::setup::leases;
use std::fmt;
use std::time::Duration;

/// The bounds of a scenario. F, X, O, C and Q always hold. M and K hold unless `lossy`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The store itself drops live leases. M and K are not judged, and of X only the counts are. F is judged, and a store that checks tokens loses
    /// nothing. If the scene notes when the store does that, M and K are judged for all that reaches beyond that time.
    pub(crate) lossy: bool,
    /// A holder knows of its loss within this, after the end of its lease or after the store lost its key.
    pub(crate) told: Duration,
    /// A free lock with waiters has a holder within this.
    pub(crate) waited: Duration,
    /// How many tenures may be left to their leases.
    pub(crate) expired: usize,
}

/// What was found.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) name: &'static str,
    pub(crate) operations: usize,
    pub(crate) holds: usize,
    /// How many of these are terms of leaders.
    pub(crate) terms: usize,
    /// How many locks were held in these, all together.
    pub(crate) locks: usize,
    pub(crate) tenures: usize,
    pub(crate) expired: usize,
    pub(crate) refused: usize,
    pub(crate) told: Duration,
    pub(crate) waited: Duration,
    /// How often two took the lock for their own.
    pub(crate) both: usize,
    pub(crate) lost: usize,
    /// How many of these could not be kept because of the machine.
    pub(crate) excused: usize,
    /// The part of the time for which a worker waited for the machine.
    pub(crate) late: f64,
    pub(crate) violations: Vec<Violation>,
    /// What was found on the other nodes of a Cluster. The violations are among those above.
    pub(crate) elsewhere: Found,
    pub(crate) seed: u64,
}

impl Default for Bounds {
    /// Bounds for scenes in which messages come and nothing is lost: the times that a busy machine may take, far less than a lease.
    fn default() -> Self {
        Self { lossy: false, told: leases(0.2), waited: leases(1.0 / 3.0), expired: 0 }
    }
}

impl Report {
    /// Fails with the counterexamples if there are any, or when a hold was lost on a node that nothing was done to.
    #[track_caller]
    pub(crate) fn assert_clean(self) -> Self {
        assert!(self.violations.is_empty(), "{self}\n{}", self.stories());
        assert_eq!(self.elsewhere.lost, self.elsewhere.excused, "lost on a node that nothing was done to: {self}");
        self
    }

    /// Fails with the counterexamples, or when a hold was lost that the machine would have let its process keep.
    #[track_caller]
    pub(crate) fn assert_clean_without_loss(self) {
        let report = self.assert_clean();
        assert!(report.lost == report.excused, "{report}");
    }

    /// The counterexamples.
    pub(crate) fn stories(&self) -> String {
        self.violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, operations, holds, terms, locks, tenures, expired, refused, told, waited, lost, .. } = self;
        let Self { both, excused, late, violations, elsewhere, seed, .. } = self;
        let of = |property| violations.iter().filter(|violation| violation.property == property).count();
        let broken: Vec<_> = [
            Property::M,
            Property::F,
            Property::X,
            Property::O,
            Property::K,
            Property::C,
            Property::T,
            Property::V,
            Property::Q,
        ]
        .into_iter()
        .filter(|property| of(*property) > 0)
        .map(|property| format!("{property:?} {}", of(property)))
        .collect();
        let broken = if broken.is_empty() { "none".to_owned() } else { broken.join(", ") };
        write!(
            f,
            "scenario {name}: {operations} operations, {holds} holds of {locks} locks, {terms} of them terms, {tenures} tenures ({expired} left to their leases), \
             {lost} lost ({excused} by a busy machine), {refused} refused by token, {both} times two inside, violations: {broken}, T {told:.0?}, V {waited:.0?}, \
             late {:.0} %{elsewhere}, seed {seed}",
            100.0 * late
        )
    }
}
