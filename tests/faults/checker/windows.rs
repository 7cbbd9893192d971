//! When the store itself may give one lock to two.
//!
//! A failover can do that if only the master acknowledges writes. It can do so from the fault until every client follows the new master and knows its
//! losses. All that reaches beyond that time is judged as ever.

use super::holds::Hold;
use crate::history::Nanos;

/// Two masters give numbers independently. A number that a client counts without a script may be somewhat more than a second behind the clock. So for
/// this long after the end of a window, a number may be smaller than one of the other master.
const CROSSING: Nanos = 2_000_000_000;

/// A time in which a service may have two masters, or a master that has missed writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) from: Nanos,
    pub(crate) to: Nanos,
}

/// When the store drops live leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lossy {
    Never,
    /// At any time. M and K are not judged. Of X only the counts are. F is judged.
    Ever,
    /// In these times. M, K and F are judged for all that reaches beyond them. Of X only the counts are.
    In(Vec<Window>),
}

impl From<bool> for Lossy {
    fn from(ever: bool) -> Self {
        if ever { Self::Ever } else { Self::Never }
    }
}

impl Lossy {
    /// Whether two may take the lock for their own from the beginning of the second hold until then.
    pub(super) fn allows_both(&self, second: &Hold, until: Nanos) -> bool {
        match self {
            Self::Never => false,
            Self::Ever => true,
            Self::In(windows) => windows.iter().any(|window| window.from <= second.since && until <= window.to),
        }
    }

    /// Whether the store may have forgotten for how long the lock is kept after the first hold, when the second one begins.
    pub(super) fn allows_early(&self, first: &Hold, second: &Hold) -> bool {
        match self {
            Self::Never => false,
            Self::Ever => true,
            Self::In(windows) => windows.iter().any(|window| window.from <= second.since && first.since <= window.to),
        }
    }

    /// Whether the second hold may have a smaller token than the first one.
    pub(super) fn allows_fall(&self, first: &Hold, second: &Hold) -> bool {
        let Self::In(windows) = self else { return false };
        windows.iter().any(|window| {
            (window.from..=window.to).contains(&first.since) && second.since <= window.to.saturating_add(CROSSING)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::{Property, judge};
    use crate::history::Event;

    fn broken(history: &str, lossy: impl Into<Lossy>) -> Vec<Property> {
        let events: Vec<Event> = history.lines().map(|line| line.trim().parse().unwrap()).collect();
        let verdict = judge(events, &mut Vec::new(), lossy);
        verdict.violations.into_iter().map(|violation| violation.property).collect()
    }

    fn within(from: Nanos, to: Nanos) -> Lossy {
        Lossy::In(vec![Window { from, to }])
    }

    /// Both take the lock for their own from 400 to 900.
    const BOTH: &str = "10 0.0 lock\n20 0.0 got 5 1 900\n300 1.0 lock\n400 1.0 got 6 1 1000\n901 0.0 lost";

    #[test]
    fn two_holders_are_found_wherever_they_reach_beyond_the_window() {
        assert!(broken(BOTH, false).contains(&Property::M));
        assert_eq!(broken(BOTH, true), []);
        assert_eq!(broken(BOTH, within(400, 900)), []);
        assert_eq!(broken(BOTH, within(401, 900)), [Property::M]);
        assert_eq!(broken(BOTH, within(400, 899)), [Property::M]);
        let windows = [(0, 100), (300, 1000)].map(|(from, to)| Window { from, to });
        assert_eq!(broken(BOTH, Lossy::In(windows.to_vec())), []);
        assert_eq!(broken(BOTH, Lossy::In(windows[..1].to_vec())), [Property::M]);
    }

    #[test]
    fn who_is_told_in_the_window_is_no_second_holder_after_it() {
        let told = BOTH.replace("901 0.0 lost", "500 0.0 lost");
        assert_eq!(broken(&told, within(400, 500)), []);
        assert_eq!(broken(&told, within(400, 499)), [Property::M]);
    }

    #[test]
    fn a_token_that_falls_is_found_unless_two_masters_number() {
        let fall = |at: Nanos| {
            let until = at + 100;
            format!("10 0.0 lock\n20 0.0 got 6 1 900\n{} 1.0 lock\n{at} 1.0 got 5 1 {until}", at - 1)
        };
        assert_eq!(broken(&fall(1000), within(10, 500)), []);
        assert_eq!(broken(&fall(500 + CROSSING), within(10, 500)), []);
        assert_eq!(broken(&fall(501 + CROSSING), within(10, 500)), [Property::F]);
        // The first hold is from before the fault.
        assert_eq!(broken(&fall(1000), within(21, 500)), [Property::F]);
        assert_eq!(broken(&fall(1000), true), [Property::F]);
    }

    #[test]
    fn reentry_keeps_its_token_in_a_window_too() {
        let reentry = "10 0.0 lock\n20 0.0 got 5 1 900\n30 0.0 lock\n40 0.0 got 6 2 900";
        assert!(broken(reentry, within(0, 1000)).contains(&Property::F));
    }
}
