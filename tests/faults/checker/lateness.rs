//! How late the machine was. If a lease ends while the holder, its network or its server wait for a processor, the lock is not at fault. Each lease
//! is judged by itself, so a busy moment elsewhere excuses nothing.

use super::Absence;
use crate::history::Nanos;
use crate::pulse;

/// A time in which one process, or a part that all depend on, did not run although it had work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late {
    /// `None` for the server, and for the network.
    pub(crate) process: Option<u32>,
    pub(crate) from: Nanos,
    pub(crate) to: Nanos,
}

impl Late {
    /// A beat, from one to the next, of which a part is a pause.
    pub(crate) fn beat(process: Option<u32>, since: Nanos, at: Nanos) -> Self {
        Self { process, from: (since + pulse::PAUSE).min(at), to: at }
    }
}

/// All that was late in a scene.
#[derive(Debug, Default)]
pub(crate) struct Lateness {
    lates: Vec<Late>,
    lease: Nanos,
    /// When the server refused, on purpose.
    refused: Option<(Nanos, Nanos)>,
}

/// The last part of the lease, in which it is extended, and the part of that for which somebody must have been late. That much time is left for an
/// attempt on a fresh connection, after one that met a dead connection.
const EXTENDED_IN: Nanos = 4;
const EXCUSED_BY: Nanos = 6;

impl Lateness {
    /// What was late while a process was stopped on purpose is left out.
    pub(crate) fn new(lates: Vec<Late>, stopped: &[Absence], lease: Nanos) -> Self {
        let on_purpose = |late: &Late| {
            late.process.is_some_and(|process| stopped.iter().any(|away| away.meets(process, late.from, late.to)))
        };
        Self { lates: lates.into_iter().filter(|late| !on_purpose(late)).collect(), lease, refused: None }
    }

    /// Notes when the server refused on purpose. No lease can be extended in that time, so less time is left for it.
    pub(crate) fn refused(mut self, refused: Option<(Nanos, Nanos)>) -> Self {
        self.refused = refused;
        self
    }

    /// Whether the machine is the reason that a lease of this process was over at `end`.
    pub(crate) fn excuses(&self, process: Option<u32>, end: Nanos) -> bool {
        let window = self.lease / EXTENDED_IN;
        let refused =
            self.refused.map_or(0, |(from, to)| to.min(end).saturating_sub(from.max(end.saturating_sub(window))));
        self.before(process, end) >= ((window - refused) / EXCUSED_BY).max(window / 10)
    }

    /// For how long the machine was late in the last quarter of such a lease.
    pub(crate) fn before(&self, process: Option<u32>, end: Nanos) -> Nanos {
        self.within(process, end.saturating_sub(self.lease / EXTENDED_IN), end)
    }

    /// For what part of the time the machine was late for one of these processes, at worst.
    pub(crate) fn share(&self, processes: impl Iterator<Item = u32>) -> f64 {
        let (from, to) = (self.lates.iter().map(|late| late.from).min(), self.lates.iter().map(|late| late.to).max());
        let (Some(from), Some(to)) = (from, to) else { return 0.0 };
        let late = processes.map(|process| self.within(Some(process), from, to)).max().unwrap_or(0);
        late as f64 / (to - from).max(1) as f64
    }

    /// How long this process, or a part that it depends on, was late in that time. The delays add up, because a process also waits for the delays of
    /// others.
    pub(crate) fn within(&self, process: Option<u32>, from: Nanos, to: Nanos) -> Nanos {
        let concerned = self.lates.iter().filter(|late| late.process.is_none() || late.process == process);
        concerned.map(|late| late.to.min(to).saturating_sub(late.from.max(from))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Nanos = 1_000;

    fn late(process: Option<u32>, from: Nanos, to: Nanos) -> Late {
        Late { process, from, to }
    }

    #[test]
    fn a_lease_is_excused_by_what_was_late_in_its_last_quarter() {
        let excuses = |lates: &[Late]| Lateness::new(lates.to_vec(), &[], LEASE).excuses(Some(1), 2_000);
        assert!(!excuses(&[]));
        assert!(excuses(&[late(Some(1), 1_800, 1_870)]));
        assert!(!excuses(&[late(Some(1), 1_800, 1_838)]), "too short");
        assert!(!excuses(&[late(Some(2), 1_800, 1_999)]), "of another process");
        assert!(excuses(&[late(None, 1_800, 1_870)]), "of the server");
        assert!(!excuses(&[late(None, 1_000, 1_770)]), "long before");
        assert!(!excuses(&[late(None, 2_000, 3_000)]), "afterwards");
        let little = |n: Nanos| late(if n.is_multiple_of(2) { None } else { Some(1) }, 1_760 + 40 * n, 1_772 + 40 * n);
        assert!(excuses(&(0..6).map(little).collect::<Vec<_>>()), "by a little at every step");
        assert!(!excuses(&(0..3).map(little).collect::<Vec<_>>()));
        let refused = Lateness::new(vec![late(Some(1), 1_900, 1_935)], &[], LEASE);
        assert!(!refused.excuses(Some(1), 2_000));
        assert!(refused.refused(Some((1_600, 1_800))).excuses(Some(1), 2_000), "there was less time");
    }

    #[test]
    fn who_was_stopped_is_not_excused() {
        let stopped = [Absence { process: 1, from: 1_100, to: 1_990 }];
        let lateness = |process| Lateness::new(vec![late(process, 1_105, 1_995)], &stopped, LEASE);
        assert!(!lateness(Some(1)).excuses(Some(1), 2_000));
        assert!(lateness(Some(2)).excuses(Some(2), 2_000));
        assert!(lateness(None).excuses(Some(1), 2_000));
    }
}
