//! Unit tests of `src/store/redis/plain/fence_watermarks.rs`.

use super::*;

/// Two connections of mux 2, one after the other.
const FIRST: u64 = MUXES as u64 + 2;
const SECOND: u64 = FIRST + MUXES as u64;

fn at(ms: u64) -> Moment {
    Moment::from_nanos((10_000 + ms) * 1_000_000)
}

fn proved() -> (FenceWatermarks, Watermark) {
    let trust = FenceWatermarks::new();
    trust.note_number(FIRST, 100, at(0), || ());
    let watermark = trust.of(2, FIRST, at(10)).expect("fresh");
    (trust, watermark)
}

/// Shows: S2.
#[test]
fn a_number_above_a_fresh_proof_is_believed_in_any_order_of_reading() {
    let (trust, watermark) = proved();
    assert_eq!(trust.judge(watermark, FIRST, 103, at(20)), Verdict::Trusted);
    assert_eq!(trust.judge(watermark, FIRST, 102, at(20)), Verdict::Trusted);
    // A later request must yield a number above those read before it.
    let later = trust.of(2, FIRST, at(30)).expect("fresh");
    assert_eq!(trust.judge(later, FIRST, 103, at(40)), Verdict::FenceReset);
    assert_eq!(trust.judge(later, FIRST, 104, at(40)), Verdict::Trusted);
}

/// Shows: S2.
#[test]
fn a_number_that_is_not_above_its_proof_is_a_lost_fence() {
    let (trust, watermark) = proved();
    assert_eq!(trust.judge(watermark, FIRST, 1, at(20)), Verdict::FenceReset);
    assert_eq!(trust.judge(watermark, FIRST, 100, at(20)), Verdict::FenceReset);
}

/// Shows: S2.
#[test]
fn a_proof_is_over_after_its_second_however_many_counted_numbers_follow() {
    let (trust, watermark) = proved();
    for ms in (100..2000).step_by(100) {
        assert_eq!(trust.judge(watermark, FIRST, 100 + ms, at(ms)), Verdict::Trusted);
    }
    assert!(trust.of(2, FIRST, at(1000)).is_some());
    assert_eq!(trust.of(2, FIRST, at(1001)), None);
    assert_eq!(trust.judge(watermark, FIRST, 10_000, at(2001)), Verdict::Expired);
}

/// Shows: S2.
#[test]
fn a_proof_is_of_one_epoch_of_one_connection_alone() {
    let (trust, watermark) = proved();
    for mux in [0, 1, 3] {
        assert_eq!(trust.of(mux, FIRST, at(10)), None);
    }
    assert_eq!(trust.of(2, SECOND, at(10)), None);
    assert_eq!(trust.judge(watermark, SECOND, 101, at(20)), Verdict::Expired);
    trust.note_number(SECOND, 50, at(20), || ());
    assert_eq!(trust.judge(watermark, FIRST, 101, at(30)), Verdict::Expired);
    // A late reply from the first connection changes nothing.
    trust.note_number(FIRST, 60, at(30), || ());
    assert_eq!(trust.of(2, SECOND, at(30)).map(|watermark| (watermark.epoch, watermark.highest)), Some((SECOND, 50)));
}

/// Shows: S2.
#[test]
fn what_was_sent_for_before_an_end_proves_nothing() {
    let (trust, watermark) = proved();
    trust.end(at(20), || ());
    assert_eq!(trust.judge(watermark, FIRST, 101, at(30)), Verdict::Expired);
    trust.note_number(FIRST, 102, at(19), || ());
    assert_eq!(trust.of(2, FIRST, at(30)), None);
    trust.note_number(FIRST, 103, at(21), || ());
    assert!(trust.of(2, FIRST, at(30)).is_some());
    // A new watermark does not make a number valid that was requested under an old one, whether it is high or low.
    assert_eq!(trust.judge(watermark, FIRST, 101, at(30)), Verdict::Expired);
    assert_eq!(trust.judge(watermark, FIRST, 99, at(30)), Verdict::Expired);
}

/// Shows: S2.
#[test]
fn a_number_has_to_be_above_those_of_all_connections() {
    let (trust, _) = proved();
    trust.note_number(FIRST + 1, 500, at(10), || ());
    let watermark = trust.of(2, FIRST, at(20)).expect("fresh");
    assert_eq!(trust.judge(watermark, FIRST, 400, at(30)), Verdict::FenceReset);
    assert_eq!(trust.judge(watermark, FIRST, 501, at(30)), Verdict::Trusted);
}
