//! Copies of one running process, as when a snapshot of a machine is restored twice. A fork is one: the child has the same memory, and so the same
//! idle sessions, lockers and random numbers. `all::twins` has what a client does then.

use crate::consensus::{ConsensusStore, Look};
use crate::support::claim;
use crate::support::fork::in_child;
use redis_dlock::port::{AcquireOutcome, Claim, LockProcessor, Operations, PollOutcome};
use std::sync::Arc;
use std::time::Duration;

on_each_store!(
    copies_share_no_session,
    a_copy_that_closes_ends_no_session_of_the_other,
    a_copy_leaves_a_locker_alone_that_holds_or_waits,
);

/// So long that nobody renews meanwhile.
const LEASE: Duration = Duration::from_secs(3600);
const LIMIT: Duration = Duration::from_secs(20);

fn of<'a>(key: &'a str, locker: &'a str) -> Claim<'a> {
    claim(key, locker, LEASE)
}

fn takes(store: &dyn LockProcessor, claim: &Claim<'_>) {
    let outcome = store.acquire(claim, LIMIT).unwrap();
    assert!(matches!(outcome, AcquireOutcome::Acquired(_)), "{outcome:?}");
}

/// Whether a client that is answered so takes its own locker for that of a twin.
fn is_of_twin(outcome: &AcquireOutcome, locker: &str) -> bool {
    matches!(outcome, AcquireOutcome::Busy(busy) if busy.holder.as_deref() == Some(locker))
}

/// A store whose session has served so many tenures, and then, in a copy of this process, one that holds `theirs`.
fn copied<V: ConsensusStore>(servers: &V, prefix: &str, tenures: u32) -> Arc<dyn LockProcessor> {
    let store = V::processor(&servers.url(prefix));
    for n in 1..=tenures {
        let locker = format!("h-1-c0ffee-{n}");
        takes(&*store, &of("before", &locker));
        store.release(&of("before", &locker), LIMIT).unwrap();
    }
    assert!(in_child(|| takes(&*store, &of("theirs", "h-1-c0ffee-9"))));
    store
}

fn session<V: ConsensusStore>(servers: &V, path: &str) -> Option<String> {
    match servers.look_at(path)().unwrap() {
        Look::Held { session, .. } => Some(session),
        Look::Absent => None,
    }
}

/// Shows: G1.
fn copies_share_no_session<V: ConsensusStore>() {
    let servers = V::start(1);
    for (prefix, tenures) in [("a", 1), ("b", 2)] {
        let store = copied(&servers, prefix, tenures);
        let met = store.acquire(&of("ours", "h-1-c0ffee-9"), LIMIT).unwrap();
        assert!(is_of_twin(&met, "h-1-c0ffee-9"), "{met:?}");
        // Under another name it goes on, also as somebody who waits.
        takes(&*store, &of("ours", "h-1-beef-1"));
        let waits = store.join(&of("theirs", "h-1-beef-2"), LIMIT).unwrap();
        assert!(
            matches!(&waits, AcquireOutcome::Busy(busy) if busy.holder.as_deref() == Some("h-1-c0ffee-9")),
            "{waits:?}"
        );
        let sessions = ["theirs", "ours"].map(|key| session(&servers, &format!("{prefix}/{key}/.lock")));
        assert!(sessions[0].is_some() && sessions[1].is_some() && sessions[0] != sessions[1], "{sessions:?}");
    }
}

/// Shows: G1.
fn a_copy_that_closes_ends_no_session_of_the_other<V: ConsensusStore>() {
    let servers = V::start(1);
    for (prefix, tenures) in [("a", 1), ("b", 2)] {
        let store = copied(&servers, prefix, tenures);
        let path = format!("{prefix}/theirs/.lock");
        let theirs = session(&servers, &path);
        store.close();
        assert!(theirs.is_some());
        assert_eq!(session(&servers, &path), theirs);
    }
}

fn a_copy_leaves_a_locker_alone_that_holds_or_waits<V: ConsensusStore>() {
    let servers = V::start(1);
    let [ours, theirs] = [(); 2].map(|()| V::processor(&servers.url("a")));
    let [holds, waits] = ["h-1-c0ffee-1", "h-1-c0ffee-2"].map(|locker| of("k", locker));
    takes(&*theirs, &holds);
    theirs.join(&waits, LIMIT).unwrap();
    let before = servers.list("a/k/");
    for claim in [&holds, &waits] {
        for outcome in [ours.acquire(claim, LIMIT), ours.join(claim, LIMIT)] {
            let outcome = outcome.unwrap();
            assert!(is_of_twin(&outcome, claim.locker), "{outcome:?}");
        }
    }
    assert_eq!(servers.list("a/k/"), before);
    theirs.release(&holds, LIMIT).unwrap();
    let granted = theirs.poll(&waits, LIMIT).unwrap();
    assert!(matches!(granted, PollOutcome::Acquired(_)), "{granted:?}");
}
