//! Unit tests of `src/store/redis/transport/polling.rs`.

use super::*;

fn polling() -> PollPolicy {
    PollPolicy::new(Polling::Automatic)
}

#[test]
fn a_caller_polls_for_the_bound_or_not_at_all() {
    let polling = polling();
    let begin = now();
    assert_eq!(polling.begin(begin), Some(begin + Duration::from_micros(100)));
    let with = |polling| PollPolicy::new(polling).begin(begin);
    assert_eq!(with(Polling::AtMost(Duration::from_millis(1))), Some(begin + Duration::from_millis(1)));
    assert_eq!(with(Polling::Off), None);
}

#[test]
fn polling_in_vain_lets_more_and_more_callers_sleep_and_a_find_ends_that() {
    let polling = polling();
    let skips = || (0..).take_while(|_| polling.begin(polling.origin).is_none()).count();
    assert_eq!(skips(), 0);
    for expected in [1, 2, 4, 8, 16, 32, 64, 128, 128] {
        polling.end(false);
        assert_eq!(skips(), expected);
    }
    polling.end(true);
    assert_eq!(skips(), 0);
    polling.end(false);
    assert_eq!(skips(), 1);
}

/// Simulates a yield from one moment to another, in milliseconds. Returns `true` if it returned in time.
fn is_back(polling: &PollPolicy, begin: u64, end: u64, callers: usize) -> bool {
    polling.is_back(after(polling, begin), after(polling, end), callers)
}

fn after(polling: &PollPolicy, millis: u64) -> Instant {
    polling.origin + Duration::from_millis(millis)
}

#[test]
fn many_callers_may_need_longer() {
    let polling = polling();
    assert!(!is_back(&polling, 0, 1, 1));
    assert!(!is_back(&polling, 0, 2, 4));
    assert!(is_back(&polling, 0, 2, 40));
    assert!(!is_back(&polling, 0, 3, 4000));
}

#[test]
fn nobody_yields_for_a_while_when_yields_return_late() {
    let polling = polling();
    let is_cooling_down = |at| polling.is_cooling_down(after(&polling, at));
    // Sixteen callers that wait at the same time lose what one loses.
    assert!((0..16).all(|_| !is_back(&polling, 10, 14, 4)));
    for n in 0..4 {
        assert!(!is_cooling_down(14 + 4 * n));
        assert!(!is_back(&polling, 14 + 4 * n, 18 + 4 * n, 4));
    }
    assert!(is_cooling_down(30));
    assert!(is_cooling_down(1029));
    assert!(!is_cooling_down(1030));
}

#[test]
fn a_yield_that_is_late_now_and_then_is_forgiven() {
    let polling = polling();
    for n in 1..100 {
        assert!(!is_back(&polling, 20 * n, 20 * n + 4, 4));
        assert!(!polling.is_cooling_down(after(&polling, 20 * n + 4)));
    }
}
