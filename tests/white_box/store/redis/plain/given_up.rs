//! Unit tests of `src/store/redis/plain/given_up.rs`.

use super::*;
use crate::port::{Claim, ProbeOutcome, ReleaseOutcome};
use std::time::Duration;

#[test]
fn a_locker_is_given_up_until_its_release_is_answered() {
    let given_up = GivenUp::default();
    assert!(!given_up.any() && !given_up.has("l-1"));
    given_up.add("l-1");
    given_up.add("l-2");
    given_up.add("l-2");
    given_up.remove("l-3");
    assert!(given_up.any() && given_up.has("l-1") && given_up.has("l-2"));
    given_up.remove("l-1");
    assert!(given_up.any() && !given_up.has("l-1") && given_up.has("l-2"));
    given_up.remove("l-2");
    assert!(!given_up.any() && !given_up.has("l-2"));
}

/// Shows: S1.
#[test]
fn a_locker_that_was_given_up_is_neither_found_nor_confirmed() {
    let given_up = GivenUp::default();
    let claim = |locker| Claim::new("k", "l", locker, Duration::from_secs(1));
    let (gone, other) = (claim("l-1"), claim("l-2"));
    let ended = Claim::new("k", "l", "l-1", Duration::ZERO);
    given_up.add("l-1");
    let requests = [
        Request::Poll(gone),
        Request::Extend(gone),
        Request::ExtendWithNumbers(gone),
        Request::Poll(other),
        Request::Extend(ended),
        Request::Probe(gone),
    ];
    let exchanges = requests.each_ref().map(|request| given_up.exchange(request));
    let is_release = |sent: &Request<'_>| matches!(sent, Request::Release(claim) if claim.locker == "l-1");
    assert!(exchanges[..3].iter().all(|exchange| is_release(&exchange.sent)), "{exchanges:?}");
    assert!(exchanges[3..].iter().all(|exchange| *exchange.sent == *exchange.request), "{exchanges:?}");
    let released = || Outcome::Release(ReleaseOutcome::Released { waiting: 0 });
    let outcome = given_up.end(&exchanges[1], released());
    assert_eq!(outcome, Outcome::Extend(ExtendOutcome::NotOurs(NotOurs::new(None))));
    assert!(!given_up.any(), "its release is answered");
    let outcome = given_up.end(&exchanges[0], released());
    assert_eq!(outcome, Outcome::Poll(PollOutcome::Gone));
    let probed = Outcome::Probe(ProbeOutcome::Ours);
    assert_eq!(given_up.end(&exchanges[5], probed.clone()), probed);
}

#[test]
fn at_the_cap_the_oldest_is_forgotten() {
    let mut lockers = Lockers::default();
    let mut add = |locker: &str| lockers.add(locker, 3).as_deref().map(str::to_owned);
    for (locker, forgotten) in [
        ("l-1", None),
        ("l-2", None),
        ("l-3", None),
        ("l-4", Some("l-1")),
        // It is given up once more, so it is the youngest from now on.
        ("l-2", None),
        ("l-5", Some("l-3")),
        ("l-6", Some("l-4")),
        ("l-7", Some("l-2")),
    ] {
        assert_eq!(add(locker).as_deref(), forgotten, "{locker}");
    }
    // The room that a removal made is used before anything is forgotten.
    lockers.remove("l-6");
    assert_eq!(lockers.add("l-8", 3), None);
    assert_eq!(lockers.add("l-9", 3).as_deref(), Some("l-5"));
    let left: Vec<_> = lockers.by_age.values().map(|locker| &**locker).collect();
    assert_eq!(left, ["l-7", "l-8", "l-9"]);
    assert!(lockers.by_name.len() == 3 && left.iter().all(|locker| lockers.by_name.contains_key(*locker)));
}

#[test]
fn as_many_are_kept_as_the_clean_up_list_takes() {
    let given_up = GivenUp::default();
    let name = |n: usize| format!("l-{n}");
    (0..=MOST).for_each(|n| given_up.add(&name(n)));
    assert!(!given_up.has(&name(0)));
    assert!((1..=MOST).all(|n| given_up.has(&name(n))));
    assert_eq!(given_up.lockers.lock().by_age.len(), MOST);
}
