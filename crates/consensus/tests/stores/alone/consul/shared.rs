//! Long holds of a client that come to share a session.

use crate::consensus::{ConsensusStore, Consul, Look, Quorum, counted};
use crate::support::claim;
use crate::support::fork::in_child;
use dlock_consensus::ConsulLockProcessor;
use redis_dlock::port::{
    AcquireOutcome, Break, BreakOutcome, Claim, ExtendOutcome, Limit, LockProcessor, Operations, Outcome, ProbeOutcome,
    ReleaseOutcome, Request,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// So long that nobody renews meanwhile.
const LEASE: Duration = Duration::from_secs(3600);
const LIMIT: Duration = Duration::from_secs(20);

/// More than the tests let keep sessions of their own.
const COUNT: usize = 30;

/// A store whose long holds share a session if they are more than eight.
fn store(url: &str) -> Arc<dyn LockProcessor> {
    Consul::processor(&format!("{url}?share_sessions=8"))
}

/// Keys and lockers.
fn names(prefix: &str, count: usize) -> Vec<(String, String)> {
    (0..count).map(|n| (format!("{prefix}{n}"), format!("c-{prefix}{n}"))).collect()
}

fn take(store: &dyn LockProcessor, claim: &Claim<'_>) -> u64 {
    match store.acquire(claim, LIMIT).unwrap() {
        AcquireOutcome::Acquired(grant) => grant.number,
        other => panic!("{}: {other:?}", claim.key),
    }
}

/// The number of each, if it was extended.
fn extend(store: &dyn LockProcessor, claims: &[Claim<'_>]) -> Vec<Option<u64>> {
    let requests: Vec<_> = claims.iter().map(|claim| Request::Extend(*claim)).collect();
    let number = |outcome| match outcome {
        Ok(Outcome::Extend(ExtendOutcome::Extended(extension))) => extension.number,
        Ok(Outcome::Extend(ExtendOutcome::NotOurs(_))) => None,
        other => panic!("{other:?}"),
    };
    store.run(&requests, Limit::Call(LIMIT)).into_iter().map(number).collect()
}

/// Extends them so often that they are moved.
fn share(store: &dyn LockProcessor, claims: &[Claim<'_>]) {
    (0..4).for_each(|_| drop(extend(store, claims)));
    store.between_rounds(LIMIT);
}

fn session(servers: &Consul, key: &str) -> String {
    match servers.look_at(&format!("a/{key}/.lock"))() {
        Some(Look::Held { session, .. }) => session,
        other => panic!("{key}: {other:?}"),
    }
}

/// How many sessions hold these keys.
fn sessions(servers: &Consul, claims: &[Claim<'_>]) -> usize {
    claims.iter().map(|claim| session(servers, claim.key)).collect::<BTreeSet<_>>().len()
}

/// Shows: G3, G7.
#[test]
fn long_holds_keep_their_numbers_and_are_lost_one_by_one() {
    let servers = Consul::start(1);
    let [store, other] = [(); 2].map(|()| store(&servers.url("a")));
    let names = names("k", COUNT);
    let claims: Vec<_> = names.iter().map(|(key, locker)| claim(key, locker, LEASE)).collect();
    let mut numbers: Vec<_> = claims.iter().map(|claim| Some(take(&*store, claim))).collect();
    share(&*store, &claims[..8]);
    assert_eq!(sessions(&servers, &claims), COUNT, "so few are not moved");
    (0..3).for_each(|_| assert_eq!(extend(&*store, &claims[8..]), numbers[8..]));
    store.between_rounds(LIMIT);
    assert_eq!(sessions(&servers, &claims), COUNT, "they are not held for long");
    share(&*store, &claims);
    assert_eq!(sessions(&servers, &claims), 1);
    assert_eq!(extend(&*store, &claims), numbers);

    // One is broken, one deleted, and one has a new number.
    let order = Break::new("k0", "c-k0", "d", "a test");
    assert!(matches!(other.break_hold(&order, LIMIT), Ok(BreakOutcome::Broken { next: None, waiting: 0 })));
    assert!(servers.delete("a/k1/.lock"));
    (numbers[0], numbers[1]) = (None, None);
    match store.extend_with_numbers(&claims[3], LIMIT).unwrap() {
        ExtendOutcome::Extended(extension) => assert!(extension.number > numbers[3], "{extension:?}"),
        lost => panic!("{lost:?}"),
    }
    let found = extend(&*store, &claims);
    assert!(found[3] > numbers[3]);
    numbers[3] = found[3];
    assert_eq!(found, numbers);
    assert!(matches!(store.probe(&claims[3], LIMIT), Ok(ProbeOutcome::Ours)));

    // A waiter gets the key of one, and the next locker of the client that of another one.
    let waiter = claim("k4", "d-4", LEASE);
    other.join(&waiter, LIMIT).unwrap();
    assert!(matches!(store.release(&claims[4], LIMIT), Ok(ReleaseOutcome::Released { .. })));
    let next = claim("k5", "c-105", LEASE);
    match store.hand_over(&claims[5], &next, LIMIT).unwrap() {
        ReleaseOutcome::Passed(grant) => assert!(Some(grant.number) > numbers[5], "{grant:?}"),
        other => panic!("{other:?}"),
    }
    assert_ne!(session(&servers, "k5"), session(&servers, "k6"));
    // Another processor of the client ends the tenures that it knows by their entries alone.
    other.settle(&claims[6], LIMIT).unwrap();
    assert!(matches!(other.release(&claims[7], LIMIT), Ok(ReleaseOutcome::Released { .. })));
    store.settle(&claims[8], LIMIT).unwrap();
    for n in [6, 7, 8] {
        let number = take(&*other, &claim(claims[n].key, "d-9", LEASE));
        assert!(Some(number) > numbers[n], "{n}: {number}");
    }
    assert_eq!(extend(&*store, &claims[9..]), numbers[9..]);
    claims[9..].iter().for_each(|claim| drop(store.release(claim, LIMIT).unwrap()));
    assert!(matches!(servers.look_at("a/k9/.lock")(), Some(Look::Absent)));
}

/// Its thread has ended, or it has lasted too long. Nobody deletes its entry: the session that it has shared ends by itself.
///
/// Shows: G3.
#[test]
fn a_hold_that_nobody_extends_ends_beside_others_that_go_on() {
    // A lease of 2 s and a lock-delay of 4 s.
    let (kept, delay) = (Duration::from_secs(6), Duration::from_secs(4));
    let servers = Consul::start(1);
    let [store, other] = [(); 2].map(|()| store(&servers.url("a")));
    let names: Vec<_> = (0..COUNT).map(|n| (format!("k{n}"), format!("c-1-c0ffee-{n}D4000"))).collect();
    let claims: Vec<_> = names.iter().map(|(key, locker)| claim(key, locker, kept)).collect();
    assert_eq!(claims[0].lock_delay(), delay);
    claims.iter().for_each(|claim| _ = take(&*store, claim));
    share(&*store, &claims);
    let begun = Instant::now();
    extend(&*store, &claims);
    let earlier = session(&servers, "k0");
    let is_free = || {
        let claim = claim("k0", "o-1", kept);
        matches!(other.acquire(&claim, LIMIT), Ok(AcquireOutcome::Acquired(_)))
    };
    while !is_free() {
        assert!(begun.elapsed() < 20 * kept, "it goes on with the others");
        sleep(Duration::from_millis(250));
        assert!(extend(&*store, &claims[1..]).iter().all(Option::is_some), "one of the others is lost");
        store.between_rounds(LIMIT);
    }
    assert!(kept <= begun.elapsed(), "it was kept for {:?} of {kept:?}", begun.elapsed());
    assert_ne!(session(&servers, "k1"), earlier);
    assert_eq!(sessions(&servers, &claims[1..]), 1);
    assert!(extend(&*store, &claims).starts_with(&[None]));
}

/// What a lock costs that is held with a thousand others: requests of an extension and of a probe, in a lease of 30 s once in 20 s and thrice.
#[test]
fn a_thousand_locks_that_share_a_session_send_two_requests_a_second_at_most() {
    let (_servers, counter, url) = counted::<Consul>("a");
    for (store, alone) in [(Consul::processor(&url), 1000), (store(&url), 1)] {
        let names = names("k", 1000);
        let claims: Vec<_> = names.iter().map(|(key, locker)| claim(key, locker, LEASE)).collect();
        claims.iter().for_each(|claim| _ = take(&*store, claim));
        share(&*store, &claims);
        let before = counter.requests();
        assert!(extend(&*store, &claims).iter().all(Option::is_some));
        let extension = counter.requests() - before;
        let probes: Vec<_> = claims.iter().map(|claim| Request::Probe(*claim)).collect();
        let is_ours = |outcome: &_| matches!(outcome, Ok(Outcome::Probe(ProbeOutcome::Ours)));
        assert!(store.run(&probes, Limit::Call(LIMIT)).iter().all(is_ours));
        let probe = counter.requests() - before - extension;
        store.between_rounds(LIMIT);
        assert_eq!(counter.requests() - before, extension + probe, "nothing is left to move");
        assert_eq!([extension, probe], [alone + 8, 8]);
        assert_eq!((extension + 3 * probe) as f64 / 20.0 <= 2.0, alone == 1);
        claims.iter().for_each(|claim| drop(store.release(claim, LIMIT).unwrap()));
    }
}

/// A copy of the process, as when a snapshot of a machine is restored twice: of both, one goes on to move holds onto the session, and neither ends it.
///
/// Shows: G1.
#[test]
fn of_two_copies_one_moves_holds_onto_a_shared_session_and_neither_ends_it() {
    let servers = Consul::start(1);
    let store = store(&servers.url("a"));
    let [both, theirs, ours] = ["both", "theirs", "ours"].map(|name| names(name, 20));
    let [both, theirs, ours] = [&both, &theirs, &ours]
        .map(|names| names.iter().map(|(key, locker)| claim(key, locker, LEASE)).collect::<Vec<_>>());
    let hold = |claims: &[Claim<'_>]| {
        claims.iter().for_each(|claim| _ = take(&*store, claim));
        share(&*store, claims);
    };
    hold(&both);
    assert!(in_child(|| {
        hold(&theirs);
        store.close();
    }));
    assert!(extend(&*store, &both).iter().all(Option::is_some), "the copy has ended what it shared");
    let earlier = session(&servers, "both0");
    assert_eq!(session(&servers, "theirs0"), earlier);
    hold(&ours);
    let more = names("more", 20);
    let more: Vec<_> = more.iter().map(|(key, locker)| claim(key, locker, LEASE)).collect();
    hold(&more);
    // The last round was one of a pause.
    store.between_rounds(LIMIT);
    assert_eq!(sessions(&servers, &more), 1);
    assert_ne!(session(&servers, "more0"), earlier);
}

#[test]
fn how_many_share_no_session_is_a_number() {
    for (value, is_right) in [("8", true), ("0", true), ("yes", false), ("-1", false)] {
        let built = ConsulLockProcessor::new(&format!("consul://localhost/a?share_sessions={value}"));
        assert_eq!(built.is_ok(), is_right, "{value}: {built:?}");
    }
}
