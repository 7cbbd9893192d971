//! Fence numbers.

use crate::suite::Suite;
use crate::tenure::Tenure;
use redis_dlock::port::{ExtendOutcome, Extension, ReleaseOutcome};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Collects numbers in the order in which they were issued.
#[derive(Default)]
struct Rising(u64);

impl Rising {
    fn push(&mut self, number: u64) {
        assert!(number > self.0, "{number} after {}", self.0);
        self.0 = number;
    }
}

/// A fresh range. There may be none for the moment (the fence is up to the clock), but not for long.
fn fresh_range(suite: &Suite, tenure: &Tenure) -> RangeInclusive<u64> {
    for _ in 0..1000 {
        match tenure.extend_fresh() {
            ExtendOutcome::Extended(Extension { numbers: Some(numbers), .. }) => return numbers,
            ExtendOutcome::Extended(_) => suite.store().pass_time(Duration::from_millis(1)),
            other => panic!("{other:?}"),
        }
    }
    panic!("no fresh numbers");
}

/// Shows: G7, S2.
pub(crate) fn rise_over_everything(suite: &Suite) {
    let (one, two) = (suite.client(), suite.client());
    let (_inbox_of_one, mut inbox_of_two) = (one.listen(), two.listen());
    // The numbers of one key rise; those of different keys need not.
    let mut of_keys = ["k", "l", "m"].map(|key| (key, Rising::default()));
    for round in 0..20 {
        for (key, numbers) in &mut of_keys {
            let key = *key;
            let (a, next) = (one.tenure(key), one.tenure(key));
            numbers.push(a.acquire().number);
            match a.release_to(&next) {
                ReleaseOutcome::Passed(grant) => numbers.push(grant.number),
                other => panic!("{other:?}"),
            }
            let b = two.waiter(key);
            if round % 2 == 0 {
                next.release();
                numbers.push(inbox_of_two.hear_granted(&b).number);
            } else {
                suite.store().delete(key);
                numbers.push(b.poll_acquired().number);
            }
            b.release();
        }
    }
}

/// Shows: S2.
pub(crate) fn do_not_fall_with_a_poll(suite: &Suite) {
    let mut numbers = Rising::default();
    for _ in 0..3 {
        let a = suite.client().tenure("k");
        numbers.push(a.acquire().number);
        for _ in 0..20 {
            let polled = a.poll_acquired().number;
            assert!(polled >= numbers.0, "{polled} after {}", numbers.0);
            numbers.0 = polled;
        }
        a.release();
    }
}

/// Shows: G7, S2.
pub(crate) fn rise_over_a_flush(suite: &Suite) {
    let mut numbers = Rising::default();
    for _ in 0..20 {
        let a = suite.client().tenure("k");
        numbers.push(a.acquire().number);
        suite.store().flush();
        a.poll_gone();
        let b = suite.client().tenure("k");
        numbers.push(b.acquire().number);
        let range = fresh_range(suite, &b);
        numbers.push(*range.start());
        numbers.0 = *range.end();
        suite.store().flush();
    }
}

/// Shows: S2.
pub(crate) fn rise_over_lost_leases(suite: &Suite) {
    let mut numbers = Rising::default();
    for _ in 0..2 {
        let a = suite.client().tenure_with("k", suite.short());
        numbers.push(a.acquire().number);
        suite.store().pass_time(suite.short());
    }
    numbers.push(suite.client().tenure("k").acquire().number);
}

/// Shows: S2.
pub(crate) fn of_a_fresh_range_are_unissued(suite: &Suite) {
    let (mut of_k, mut of_l) = (Rising::default(), Rising::default());
    let (a, b) = (suite.client(), suite.client());
    for _ in 0..20 {
        let (k, l) = (a.tenure("k"), b.tenure("l"));
        of_k.push(k.acquire().number);
        of_l.push(l.acquire().number);
        for tenure in [&k, &l, &k] {
            let numbers = if tenure.key == "k" { &mut of_k } else { &mut of_l };
            let range = fresh_range(suite, tenure);
            assert!(!range.is_empty() && range.end() - range.start() < 10_000, "{range:?}");
            numbers.push(*range.start());
            numbers.0 = *range.end();
        }
        let polled = l.poll_acquired().number;
        assert!(polled >= of_l.0, "{polled} after {}", of_l.0);
        of_l.0 = polled;
        k.release();
        l.release();
    }
}

pub(crate) fn come_only_when_asked_for(suite: &Suite) {
    let a = suite.client().holder("k");
    assert_eq!(a.extended().numbers, None);
    assert!(matches!(a.extend_fresh(), ExtendOutcome::Extended(Extension { waiting: 0, .. })));
}
