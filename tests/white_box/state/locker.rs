//! Unit tests of `src/state/locker.rs`.

use super::*;
use crate::config::LONGEST_LOCK_DELAY;

const LINGER: Duration = Duration::from_secs(5);

/// Shows: G2, S12.
#[test]
fn lockers_share_the_client_id_and_never_repeat() {
    let id = ClientId::draw().expect("random bytes");
    let (a, b) = (id.next_locker(Duration::ZERO, Duration::ZERO), id.next_locker(Duration::ZERO, LINGER));
    let c = id.next_locker(LONGEST_LOCK_DELAY, LINGER);
    assert_ne!(a.strip_suffix('L'), b.strip_suffix('L'));
    assert_eq!([&a, &b, &c].map(|locker| may_linger(locker)), [false, true, true]);
    for locker in [&a, &b, &c] {
        assert_eq!(locker.rsplit_once('-').expect("a dash").0, id.as_str());
    }
    assert!([&a, &b, &c].iter().all(|locker| !id.is_of_twin(locker)));
    assert!(id.is_of_twin(&format!("{}-4D5L", id.as_str())) && !id.is_of_twin(&format!("{}0-4", id.as_str())));
    let random = id.as_str().rsplit_once('-').expect("a dash").1;
    assert_eq!(random.len(), 2 * RANDOM_BYTES);
    assert_ne!(id.as_str(), ClientId::draw().expect("random bytes").as_str());
}

#[test]
fn foreign_holders_do_not_linger() {
    for holder in [
        "",
        "L",
        "-L",
        "host-1-L",
        "host-1-7l",
        "host-1-7XL",
        "uuid:7L",
        "host-1-7",
        "7L",
        "h-7DL",
        "h-DL",
        "h-D7L",
        "h-7LD7",
        "h-7D60001L",
        "h-7D+1L",
        "h-7D1D1L",
    ] {
        assert!(!may_linger(holder), "{holder:?}");
    }
    assert!(may_linger("host-1-ff-7L") && may_linger("h-7D1500L"));
}

#[test]
fn a_key_is_in_the_lock_delay_that_its_locker_says() {
    let ms = Duration::from_millis;
    let id = ClientId::draw().expect("random bytes");
    for (linger, left) in [(Duration::ZERO, 0), (Duration::ZERO, 1500), (LINGER, 1), (LINGER, 1500)] {
        let locker = id.next_locker(ms(1500), linger);
        assert_eq!(lock_delay_left(&locker, Some(ms(left))), Some(ms(left)), "{locker}");
        assert_eq!(lock_delay_left(&locker, Some(ms(1501))), None, "its lease has not ended");
        assert_eq!(lock_delay_left(&locker, None), None, "it never ends");
    }
    for locker in
        [&*id.next_locker(Duration::ZERO, Duration::ZERO), "10.0.0.1-17", "host-1-ff-7D", "host-1-ff-7D60001", "7D9"]
    {
        assert_eq!(lock_delay_left(locker, Some(Duration::ZERO)), None, "{locker}");
    }
}

#[test]
fn odd_host_names_stay_readable() {
    assert_eq!(readable("web 1\n"), "web_1_");
    assert_eq!(readable(""), "unknown");
    assert_eq!(readable(&"x".repeat(300)).len(), 64);
}
