//! Property K: nobody gets the lock in the time for which an unlock keeps it. Without the store's confirmation of the unlock nothing is promised.

use super::holds::Hold;
use super::windows::Lossy;
use super::{Property, Violation, ms};
use crate::history::Nanos;

/// The server counts the time by its own clock, in whole milliseconds. A thread is told of its hold after the store has given it, so any other delay
/// only makes a hold later.
const SLACK: Nanos = 2_000_000;

pub(super) fn check(holds: &[Hold], lossy: &Lossy) -> Vec<Violation> {
    let keeping = holds.iter().filter(|hold| hold.confirmed).filter_map(|hold| Some((hold, hold.unlock?, hold.kept?)));
    let early = keeping.filter_map(|(hold, unlock, kept)| {
        let is_early = |next: &&Hold| {
            next.is_claimed()
                && (unlock..kept.saturating_sub(SLACK)).contains(&next.since)
                && !lossy.allows_early(hold, next)
        };
        holds.iter().find(is_early).map(|next| (hold, kept, next))
    });
    early
        .map(|(hold, kept, next)| {
            Violation::of(Property::K, format!("{hold:?} kept the lock until {}, and {next:?} got it", ms(kept)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::SLACK;
    use crate::checker::windows::{Lossy, Window};
    use crate::checker::{Property, judge};
    use crate::history::{Event, Nanos};

    const KEPT: Nanos = 500 * SLACK;

    /// One thread keeps the lock until `KEPT`, and another one gets it at that moment.
    fn found(end: &str, next: Nanos, lossy: impl Into<Lossy>) -> Vec<Property> {
        let lock = "10 0.0 lock\n20 0.0 got 5 1 900\n30 1.0 lock\n";
        let history = format!("{lock}{end}\n{next} 1.0 got 6 1 {}", next + 100);
        let events: Vec<Event> = history.lines().map(|line| line.parse().unwrap()).collect();
        judge(events, &mut Vec::new(), lossy).violations.into_iter().map(|violation| violation.property).collect()
    }

    #[test]
    fn a_lock_that_somebody_gets_while_it_is_kept_is_found() {
        let kept = format!("400 0.0 keeps {KEPT}\n400 0.0 unlock\n450 0.0 left 0");
        assert_eq!(found(&kept, 500, false), [Property::K]);
        assert_eq!(found(&kept, KEPT - SLACK - 1, false), [Property::K]);
        assert_eq!(found(&kept, KEPT - SLACK, false), []);
        // The answer comes when the other one has it.
        assert_eq!(found(&kept.replace("450", "600"), 500, false), [Property::K]);
        assert_eq!(found(&kept.replace("left 0", "unknown 0 no answer"), 500, false), [], "nothing is promised");
        assert_eq!(found("400 0.0 unlock\n450 0.0 left 0", 500, false), []);
    }

    #[test]
    fn an_inner_unlock_keeps_the_lock_after_the_last_one() {
        let inner = "40 0.0 lock\n50 0.0 got 5 2 900\n60 0.0 keeps";
        let rest = "60 0.0 unlock\n70 0.0 left 1\n400 0.0 unlock\n450 0.0 left 0";
        assert_eq!(found(&format!("{inner} {KEPT}\n{rest}"), 500, false), [Property::K]);
        assert_eq!(found(&format!("{inner} 450\n{rest}"), 500, false), []);
    }

    #[test]
    fn a_store_that_may_have_forgotten_is_excused_in_its_time() {
        let kept = format!("400 0.0 keeps {KEPT}\n400 0.0 unlock\n450 0.0 left 0");
        let within = |from, to| Lossy::In(vec![Window { from, to }]);
        assert_eq!(found(&kept, 500, true), []);
        assert_eq!(found(&kept, 500, within(460, 500)), []);
        assert_eq!(found(&kept, 500, within(501, 600)), [Property::K]);
        assert_eq!(found(&kept, 500, within(0, 19)), [Property::K]);
    }
}
