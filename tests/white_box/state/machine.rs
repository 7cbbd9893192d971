//! What the state of a key decides alone.

use super::*;
use crate::config::DLockConfig;

/// The holder's lease may be a thousandth of the waiter's.
/// Shows: L1.
#[test]
fn a_waiter_that_cannot_know_when_the_lease_ends_asks_often_enough_to_find_out() {
    let mut state = State::new();
    let hour = DLockConfig::new("STATE", "x").with_lease(Duration::from_secs(3600));
    state.push_back(Waiter::new(1, Arc::new(hour), Moment::from_nanos(0)));
    for _ in 0..3 {
        assert_eq!(state.note_busy(None, None), timing::LONGEST_BLIND_PAUSE);
    }
    // Where that is known, its own lease decides.
    assert_eq!(state.note_busy(Some(Duration::from_secs(60)), None), Duration::from_secs(60));
    assert_eq!(state.note_busy(Some(Duration::from_secs(3600)), None), Duration::from_secs(600));
}
