//! Unit tests of `src/backoff.rs`.

use super::*;
use crate::clock::Moment;

#[test]
fn pauses_double_up_to_the_cap_and_differ() {
    let backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(100));
    for (failures, step) in [(0, 10), (1, 10), (2, 20), (3, 40), (4, 80), (5, 100), (u32::MAX, 100)] {
        let pause = backoff.after(failures);
        let step = Duration::from_millis(step);
        assert!(pause >= step / 2 && pause <= step, "{failures}: {pause:?}");
        assert_eq!(backoff.exact().after(failures), step, "{failures}");
    }
    let first = backoff.after(5);
    assert!((0..100).any(|_| backoff.after(5) != first));
}

#[test]
fn a_cool_down_grows_with_each_failure_and_ends_with_a_success() {
    let second = Duration::from_secs(1);
    let backoff = Backoff::new(second, second * 2).exact();
    let mut cooldown = Cooldown::default();
    let begun = Moment::from_nanos(0);
    assert!(!cooldown.lasts(begun));
    for (at, length) in [(0, 1), (10, 2), (20, 2)] {
        let now = begun + second * at;
        let length = second * length;
        let end = now + length;
        assert_eq!(cooldown.fail(now, backoff), end);
        assert!(cooldown.lasts(now + (length - Duration::from_nanos(1))) && !cooldown.lasts(end));
    }
    cooldown.end();
    assert!(!cooldown.lasts(begun + second * 20));
    assert_eq!(cooldown.fail(begun, backoff), begun + second);
}
