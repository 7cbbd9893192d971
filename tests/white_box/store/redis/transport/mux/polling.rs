//! Unit tests of `src/store/redis/transport/mux/polling.rs`.

use super::*;
use std::cell::{Cell, RefCell};

/// A policy for which no yield counts as late, however busy the machine is.
fn polling(polling: Polling) -> PollPolicy {
    PollPolicy { in_time: |_| Duration::MAX, ..PollPolicy::new(polling) }
}

fn automatic() -> PollPolicy {
    polling(Polling::Automatic)
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
    let counted = |_| {
        count.set(count.get() + 1);
        (find.borrow_mut())()
    };
    polling.poll(|| callers, now(), end, counted, || is_found);
    count.get()
}

/// Lets a caller wait whose answer has come or will not come. Returns whether it has polled.
fn polls(polling: &PollPolicy, is_there: bool) -> bool {
    looks(polling, 1, || is_there, is_there) > 0
}

#[test]
fn polling_in_vain_lets_more_and_more_callers_sleep_and_a_find_ends_that() {
    let polling = automatic();
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
    for (policy, least) in [(Polling::Automatic, POLLS_FOR), (Polling::AtMost(bound), bound)] {
        let begin = now();
        assert!(polls(&polling(policy), false));
        assert!(now() - begin >= least, "{policy:?}");
    }
    assert!(!polls(&polling(Polling::Off), true));
}

#[test]
fn a_task_is_polled_again_while_callers_poll_and_the_bound_is_not_over() {
    let (long_ago, not_yet) = (now() - POLLS_FOR, now() + Duration::from_secs(60));
    let of_callers = automatic();
    assert!(of_callers.yield_for_task(not_yet) && !of_callers.yield_for_task(long_ago));
    assert!(polls(&of_callers, false) && !of_callers.yield_for_task(not_yet), "the next caller sleeps at once");
    assert!(!polls(&of_callers, true) && of_callers.yield_for_task(not_yet), "the next one polls again");
    assert!(!polling(Polling::Off).yield_for_task(not_yet));
    let busy = PollPolicy { in_time: |_| Duration::ZERO, ..automatic() };
    assert!(!busy.yield_for_task(not_yet), "the yield has returned late");
}

#[test]
fn a_caller_polls_no_longer_than_its_deadline_and_that_does_not_count() {
    let polling = polling(Polling::AtMost(Duration::from_secs(60)));
    let hangs_at = now() + Duration::from_secs(25);
    for _ in 0..3 {
        // The machine may stand still until there is too little time for a look.
        while looks_until(&polling, 1, now() + LATEST + Duration::from_millis(1), &mut || false, false) == 0 {
            assert!(now() < hangs_at, "it looks at least once where there is time");
        }
    }
    // A yield that returns late would end after this one.
    assert_eq!(looks_until(&polling, 1, now() + LATEST / 2, &mut || false, false), 0);
    assert!(polls(&polling, true));
}

/// Shows it for callers of one connection, and for one that polls while another polls on another connection.
#[test]
fn several_callers_poll_a_few_times() {
    for policy in [Polling::Automatic, Polling::AtMost(Duration::from_secs(60))] {
        for (callers, others) in [(2, 0), (1, 1)] {
            let polling = polling(policy);
            let _others: Vec<_> = (0..others).map(|_| Poller::enter(&polling.pollers)).collect();
            assert_eq!(looks(&polling, callers, || false, true), POLLS, "{policy:?}");
        }
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
    let polling = PollPolicy::new(Polling::Automatic);
    assert!(!is_back(&polling, 0, 2, 4));
    assert!(is_back(&polling, 0, 2, 40));
    assert!(!is_back(&polling, 0, 3, 4000));
}

#[test]
fn nobody_yields_for_a_while_when_yields_return_late() {
    for (callers, yields) in [(1, 4), (4, 12)] {
        let polling = PollPolicy::new(Polling::Automatic);
        let is_cooling_down = |at| polling.is_cooling_down(after(&polling, at));
        // Sixteen callers that wait at the same time lose what one loses.
        assert!((0..16).all(|_| !is_back(&polling, 10, 14, callers)));
        for n in 0..yields {
            assert!(!is_cooling_down(14 + 4 * n));
            assert!(!is_back(&polling, 14 + 4 * n, 18 + 4 * n, callers));
        }
        let cools_at = 14 + 4 * yields;
        assert!(is_cooling_down(cools_at));
        assert!(is_cooling_down(cools_at + 499));
        assert!(!is_cooling_down(cools_at + 500));
    }
}

/// Each of them begins before the one before it has ended.
#[test]
fn late_yields_that_overlap_lose_the_time_from_the_first_to_the_last() {
    for (callers, expected) in [(1, 18), (4, 50)] {
        let polling = PollPolicy::new(Polling::Automatic);
        let cools_at = (0..100).map(|n| 4 + 2 * n).find(|end| {
            assert!(!is_back(&polling, end - 4, *end, callers));
            polling.is_cooling_down(after(&polling, *end))
        });
        assert_eq!(cools_at, Some(expected));
    }
}

/// Shows it for callers that share a connection, and for one that is alone: it gains less, and is forgiven less.
#[test]
fn a_yield_that_is_late_now_and_then_is_forgiven() {
    for (callers, pause) in [(4, 20), (1, 140)] {
        let polling = PollPolicy::new(Polling::Automatic);
        for n in 1..100 {
            assert!(!is_back(&polling, pause * n, pause * n + 4, callers));
            assert!(!polling.is_cooling_down(after(&polling, pause * n + 4)));
        }
    }
    let polling = PollPolicy::new(Polling::Automatic);
    assert!(
        (1..100)
            .any(|n| !is_back(&polling, 20 * n, 20 * n + 4, 1) && polling.is_cooling_down(after(&polling, 20 * n + 4)))
    );
}
