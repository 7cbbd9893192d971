//! Unit tests of `src/timing.rs`.

use super::*;

/// Shows: G3.
#[test]
fn an_attempt_leaves_time_for_the_next_one() {
    // The time left to the most and to the least urgent tenure, a round trip, and the limit; all in milliseconds.
    let cases = [
        (900, 900, 0, 300),
        (900, 900, 1, 300),
        // Four trips fit in half of the time.
        (900, 900, 100, 400),
        (900, 7_500, 100, 400),
        (900, 7_500, 400, 450),
        (900, 900, 100_000, 450),
        // Another attempt does not fit for the most urgent tenure, and would for the others.
        (3, 7_500, 0, 20),
        (3, 7_500, 100, 200),
        (3, 7_500, 100_000, 3_750),
        (3, 3, 0, 1),
    ];
    for (urgent, patient, trip, limit) in cases {
        let [left, least, slow] = [urgent, patient, trip].map(Duration::from_millis);
        let found = attempt_limit(left, least, slow).as_millis();
        assert_eq!(found, limit, "{urgent} ms, {patient} ms left, {trip} ms a round trip");
    }
    for trip in [0, 1, 10, 100, 449] {
        let limit = attempt_limit(Duration::from_millis(900), LONGEST_TIMEOUT, Duration::from_millis(trip));
        assert!(limit <= Duration::from_millis(450), "{trip} ms a round trip");
    }
}
