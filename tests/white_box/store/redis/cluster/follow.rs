//! Unit tests of `src/store/redis/cluster/follow.rs`.

use super::*;

#[test]
fn a_batch_waits_as_long_as_it_must_and_no_longer() {
    let ms = Duration::from_millis;
    for (left, is_several, took, confirmation, calls, expected) in [
        // A node next door.
        (1000, true, Some(1), 0, 0, 100),
        (1000, false, Some(1), 0, 0, 100),
        // A node far away.
        (1000, true, Some(200), 0, 0, 400),
        // What replies want has a quarter of the time, if there are several nodes.
        (1000, true, Some(2000), 0, 0, 750),
        (1000, false, Some(2000), 0, 0, 1000),
        (60, true, Some(1), 0, 0, 45),
        (60, false, Some(1), 0, 0, 60),
        // Replicas acknowledge.
        (3000, false, Some(1), 500, 0, 1100),
        // All are silent.
        (1000, false, None, 0, 0, 1000),
        (1000, true, None, 0, 0, 750),
        (0, true, Some(1), 0, 0, 0),
        // Many calls take a server long.
        (5000, false, Some(1), 0, 10_000, 600),
    ] {
        let waits = patience(ms(left), is_several, took.map(ms), ms(confirmation), calls);
        assert_eq!(waits, ms(expected), "{left} {is_several} {took:?} {confirmation}");
    }
}
