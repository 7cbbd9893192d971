//! Unit tests of `src/store/redis/cluster/inbox/cooldowns.rs`.

use super::*;
use crate::error::BackendFailure;
use std::time::Duration;

#[test]
fn a_place_that_takes_no_connection_is_tried_ever_more_rarely() {
    let place = Place::Tcp { host: "h".to_owned(), port: 1, tls: false };
    let (mut cooldowns, mut now, begun) = (PlaceCooldowns::default(), Instant::now(), Instant::now());
    let (mut tries, mut maps) = (0, 0);
    // As the listening thread does it, for the twenty seconds of a failover.
    while now < begun + Duration::from_secs(20) {
        cooldowns.ask_for_map(now, false, || maps += 1);
        if cooldowns.of(&place, now).is_none() {
            tries += 1;
            let error = Error::backend(BackendFailure::NotExecuted, "refused");
            assert!(cooldowns.fail(place.clone(), error, now) > now);
        }
        now += Duration::from_millis(5);
    }
    assert!((20..60).contains(&tries), "{tries}");
    assert!((100..=134).contains(&maps), "{maps}");
    assert!(cooldowns.ask_for_map(now, true, || ()).is_some());
    cooldowns.end(&place);
    assert!(cooldowns.of(&place, now).is_none() && cooldowns.ask_for_map(now, false, || maps += 1).is_none());
}
