//! Fence numbers.

use super::suite::{SHORT, Suite, Tenure};
use redis_dlock::{ExtendOutcome, ReleaseOutcome};
use std::ops::RangeInclusive;

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
fn fresh_range(tenure: &Tenure) -> RangeInclusive<u64> {
    for _ in 0..1000 {
        match tenure.extend_fresh() {
            ExtendOutcome::Extended { numbers: Some(numbers), .. } => return numbers,
            ExtendOutcome::Extended { numbers: None, .. } => {}
            other @ ExtendOutcome::NotOurs(_) => panic!("{other:?}"),
        }
    }
    panic!("no fresh numbers");
}

/// Shows: G7, S2.
pub(crate) fn rise_over_everything(suite: &Suite) {
    let mut numbers = Rising::default();
    let (one, two) = (suite.client(), suite.client());
    let (_ear_one, mut ear_two) = (one.listen(), two.listen());
    for round in 0..20 {
        for key in ["k", "l", "m"] {
            let (a, next) = (one.tenure(key), one.tenure(key));
            numbers.push(a.acquire().number);
            match a.release_to(&next) {
                ReleaseOutcome::Passed(grant) => numbers.push(grant.number),
                other => panic!("{other:?}"),
            }
            let b = two.waiter(key);
            if round % 2 == 0 {
                next.release();
                numbers.push(ear_two.hear_granted(&b).number);
            } else {
                suite.store().delete(key);
                numbers.push(b.poll_acquired().number);
            }
            b.release();
        }
    }
}

/// Shows: S2.
pub(crate) fn rise_with_every_poll(suite: &Suite) {
    let mut numbers = Rising::default();
    let a = suite.client().tenure("k");
    numbers.push(a.acquire().number);
    for _ in 0..20 {
        numbers.push(a.poll_acquired().number);
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
        let range = fresh_range(&b);
        numbers.push(*range.start());
        numbers.0 = *range.end();
        suite.store().flush();
    }
}

/// Shows: S2.
pub(crate) fn rise_over_lost_leases(suite: &Suite) {
    let mut numbers = Rising::default();
    for _ in 0..2 {
        let a = suite.client().tenure_with("k", SHORT);
        numbers.push(a.acquire().number);
        suite.store().pass_time(SHORT);
    }
    numbers.push(suite.client().tenure("k").acquire().number);
}

/// Shows: S2.
pub(crate) fn of_a_fresh_range_are_unissued(suite: &Suite) {
    let mut numbers = Rising::default();
    let (a, b) = (suite.client(), suite.client());
    for _ in 0..20 {
        let (k, l) = (a.tenure("k"), b.tenure("l"));
        numbers.push(k.acquire().number);
        numbers.push(l.acquire().number);
        for tenure in [&k, &l, &k] {
            let range = fresh_range(tenure);
            assert!(!range.is_empty() && range.end() - range.start() < 10_000, "{range:?}");
            numbers.push(*range.start());
            numbers.0 = *range.end();
        }
        numbers.push(l.poll_acquired().number);
        k.release();
        l.release();
    }
}

pub(crate) fn come_only_when_asked_for(suite: &Suite) {
    let a = suite.client().holder("k");
    assert_eq!(a.extend(), ExtendOutcome::Extended { waiting: 0, numbers: None });
    assert!(matches!(a.extend_fresh(), ExtendOutcome::Extended { waiting: 0, .. }));
}
