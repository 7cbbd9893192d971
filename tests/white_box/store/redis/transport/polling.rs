//! Unit tests of `src/store/redis/transport/polling.rs`.

use super::*;
use std::cell::{Cell, RefCell};

fn polling() -> PollPolicy {
    PollPolicy::new(Polling::AtMost(Duration::from_micros(100)))
}

/// Lets a caller poll, for which `find` looks, until a deadline in a minute. Returns how often it has looked.
fn looks(polling: &PollPolicy, callers: usize, mut find: impl FnMut() -> bool, is_found: bool) -> u32 {
    looks_until(polling, callers, now() + Duration::from_secs(60), &mut find, is_found)
}

fn looks_until(
    polling: &PollPolicy,
    callers: usize,
    end: Instant,
    find: &mut dyn FnMut() -> bool,
    is_found: bool,
) -> u32 {
    let count = Cell::new(0);
    let find = RefCell::new(find);
    let counted = || {
        count.set(count.get() + 1);
        (find.borrow_mut())()
    };
    polling.poll(callers, end, counted, || is_found);
    count.get()
}

/// Lets a caller wait whose answer has come or will not come. Returns whether it has polled.
fn polls(polling: &PollPolicy, is_there: bool) -> bool {
    looks(polling, 1, || is_there, is_there) > 0
}

#[test]
fn polling_in_vain_lets_more_and_more_callers_sleep_and_a_find_ends_that() {
    let polling = polling();
    let skips = || (0..).take_while(|_| !polls(&polling, false)).count();
    for expected in [0, 1, 2, 4, 8, 16, 32, 64, 128, 128] {
        assert_eq!(skips(), expected);
    }
    assert_eq!((0..).take_while(|_| !polls(&polling, true)).count(), 128);
    assert!(polls(&polling, true));
    assert_eq!([(); 3].map(|()| polls(&polling, false)), [true, false, true]);
}

#[test]
fn a_caller_that_is_alone_polls_for_the_bound_or_not_at_all() {
    let bound = Duration::from_millis(1);
    let begin = now();
    assert!(polls(&PollPolicy::new(Polling::AtMost(bound)), false));
    assert!(now() - begin >= bound);
    for polling in [Polling::Off, Polling::Automatic] {
        assert!(!polls(&PollPolicy::new(polling), true), "{polling:?}");
    }
}

#[test]
fn a_caller_polls_no_longer_than_its_deadline_and_that_does_not_count() {
    let polling = PollPolicy::new(Polling::AtMost(Duration::from_secs(60)));
    for _ in 0..3 {
        assert!(looks_until(&polling, 1, now() + Duration::from_millis(1), &mut || false, false) > 0);
    }
    assert!(polls(&polling, true));
}

#[test]
fn a_caller_that_is_not_alone_any_more_polls_no_longer_and_that_does_not_count() {
    let polling = PollPolicy::new(Polling::AtMost(Duration::from_secs(60)));
    // Another caller begins while the first one looks for the third time.
    let other = Cell::new(None);
    let mut looked = 0;
    let find = || {
        looked += 1;
        if looked == 3 {
            polling.pollers.fetch_add(1, Ordering::Relaxed);
            other.set(Some(Poller(&polling.pollers)));
        }
        false
    };
    assert_eq!(looks(&polling, 1, find, false), 3);
    drop(other.take());
    assert_eq!(polling.pollers.load(Ordering::Relaxed), 0);
    assert!(polls(&polling, true), "the next one does not sleep at once");
}

#[test]
fn callers_that_share_a_connection_poll_a_few_times() {
    for policy in [Polling::Automatic, Polling::AtMost(Duration::from_secs(60))] {
        let polling = PollPolicy::new(policy);
        let mut most = 0;
        // A yield that returns late ends the polling early.
        for _ in 0..1000 {
            most = most.max(looks(&polling, 2, || false, true));
        }
        assert_eq!(most, POLLS, "{policy:?}");
    }
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
    assert!(is_cooling_down(529));
    assert!(!is_cooling_down(530));
}

#[test]
fn a_yield_that_is_late_now_and_then_is_forgiven() {
    let polling = polling();
    for n in 1..100 {
        assert!(!is_back(&polling, 20 * n, 20 * n + 4, 4));
        assert!(!polling.is_cooling_down(after(&polling, 20 * n + 4)));
    }
}
