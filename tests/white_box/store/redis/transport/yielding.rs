//! Unit tests of `src/store/redis/transport/yielding.rs`.

use super::*;

#[test]
fn a_spin_in_vain_lets_more_and_more_callers_sleep_and_a_good_one_ends_that() {
    let yielding = Yielding::new();
    let skips = || (0..).take_while(|_| !yielding.may_spin()).count();
    assert_eq!(skips(), 0);
    for expected in [1, 2, 4, 8, 16, 32, 64, 64] {
        yielding.note_spin(false);
        assert_eq!(skips(), expected);
    }
    yielding.note_spin(true);
    assert_eq!(skips(), 0);
    yielding.note_spin(false);
    assert_eq!(skips(), 1);
}

/// Simulates a yield from one moment to another, in milliseconds. Returns `true` if it returned in time.
fn is_back(yielding: &Yielding, begin: u64, end: u64, callers: usize) -> bool {
    yielding.is_back(after(yielding, begin), after(yielding, end), callers)
}

fn after(yielding: &Yielding, millis: u64) -> Instant {
    yielding.origin + Duration::from_millis(millis)
}

#[test]
fn many_callers_may_need_longer() {
    let yielding = Yielding::new();
    assert!(!is_back(&yielding, 0, 2, 4));
    assert!(is_back(&yielding, 0, 2, 40));
    assert!(!is_back(&yielding, 0, 3, 4000));
}

#[test]
fn nobody_yields_for_a_while_when_yields_return_late() {
    let yielding = Yielding::new();
    let is_cooling_down = |at| yielding.is_cooling_down(after(&yielding, at));
    // Sixteen callers that wait at the same time lose what one loses.
    assert!((0..16).all(|_| !is_back(&yielding, 10, 14, 4)));
    for n in 0..4 {
        assert!(!is_cooling_down(14 + 4 * n));
        assert!(!is_back(&yielding, 14 + 4 * n, 18 + 4 * n, 4));
    }
    assert!(is_cooling_down(30));
    assert!(is_cooling_down(529));
    assert!(!is_cooling_down(530));
}

#[test]
fn a_yield_that_is_late_now_and_then_is_forgiven() {
    let yielding = Yielding::new();
    for n in 1..100 {
        assert!(!is_back(&yielding, 20 * n, 20 * n + 4, 4));
        assert!(!yielding.is_cooling_down(after(&yielding, 20 * n + 4)));
    }
}
