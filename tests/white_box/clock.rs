//! Unit tests of `src/clock.rs`.

use super::*;

#[test]
fn system_clock_never_goes_back() {
    let clock = SystemClock;
    let mut last = clock.now();
    for _ in 0..1000 {
        let now = clock.now();
        assert!(now >= last);
        last = now;
    }
}

#[test]
fn arithmetic_saturates() {
    assert_eq!(Moment(7) + Duration::MAX, Moment::NEVER);
    assert_eq!(Moment(7).since(Moment(9)), Duration::ZERO);
    assert_eq!(Moment(7).before(Duration::from_secs(1)), Moment(0));
}
