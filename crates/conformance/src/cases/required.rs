//! What every store must do: acquire, extend, release, inspect, and what follows from them.

use super::names;
use crate::suite::{Client, Suite};
use redis_dlock::port::{
    AcquireOutcome, ExtendOutcome, Inspection, NotOurs, PollOutcome, ProbeOutcome, ReleaseOutcome,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const THREADS: u64 = 4;
const ROUNDS: u64 = 50;

/// Shows: S1.
pub(crate) fn one_locker_excludes_all_others(suite: &Suite) {
    let client = suite.client();
    let a = client.holder("k");
    for other in [client.tenure("k"), suite.client().tenure("k")] {
        assert_eq!(other.fail().holder.as_ref(), Some(&a.locker));
        other.poll_gone();
        assert!(!other.holds());
    }
    assert!(a.holds());
}

pub(crate) fn an_unheld_key_is_free(suite: &Suite) {
    assert_eq!(suite.inspect("k"), Inspection::free());
    let a = suite.client().holder("k");
    a.release();
    assert_eq!(suite.inspect("k"), Inspection::free());
}

pub(crate) fn an_unexpiring_key_has_no_remaining_lease(suite: &Suite) {
    suite.store().overwrite("k", "admin-1", None);
    let a = suite.client().tenure("k");
    let (asked, seen) = (a.fail(), suite.inspect("k"));
    for (holder, remaining) in [(asked.holder, asked.remaining), (seen.holder, seen.remaining)] {
        assert_eq!((holder.as_deref(), remaining), (Some("admin-1"), None));
    }
    assert!(suite.store().delete("k"));
    a.poll_gone();
}

pub(crate) fn a_poll_tells_a_holder_from_a_stranger(suite: &Suite) {
    let a = suite.client().tenure("k");
    assert_eq!(a.poll(), PollOutcome::Gone);
    let number = a.acquire().number;
    assert!(a.poll_acquired().number >= number);
    a.release();
    assert_eq!(a.poll(), PollOutcome::Gone);
}

/// Shows: S3.
pub(crate) fn a_stranger_changes_nothing(suite: &Suite) {
    let (a, b) = (suite.client().holder("k"), suite.client().tenure("k"));
    for _ in 0..2 {
        assert_eq!(b.release(), ReleaseOutcome::NotOurs(a.not_yours()));
        assert_eq!(b.extend(), ExtendOutcome::NotOurs(a.not_yours()));
        assert_eq!(b.probe(), ProbeOutcome::NotOurs(a.not_yours()));
    }
    assert!(a.holds());
}

/// Shows: G2, S3.
pub(crate) fn a_repeated_release_does_no_harm(suite: &Suite) {
    let a = suite.client().holder("k");
    assert_eq!(a.release(), ReleaseOutcome::Released { waiting: 0 });
    assert_eq!(a.release(), ReleaseOutcome::NotOurs(NotOurs::new(None)));
    let b = suite.client().holder("k");
    assert_eq!(a.release(), ReleaseOutcome::NotOurs(b.not_yours()));
    assert!(b.holds());
}

pub(crate) fn keys_of_any_name_are_kept_apart(suite: &Suite) {
    let client = suite.client();
    let held: Vec<_> = names::of_all_kinds().iter().map(|name| client.holder(name)).collect();
    for tenure in &held {
        assert!(tenure.holds());
        assert_eq!(suite.holder(&tenure.key).as_ref(), Some(&tenure.locker));
    }
    for tenure in &held {
        assert_eq!(tenure.release(), ReleaseOutcome::Released { waiting: 0 });
    }
    assert_eq!(suite.store().leftovers(), [""; 0]);
}

/// Shows: S1, S2.
pub(crate) fn threads_that_poll_exclude_one_another(suite: &Suite) {
    let (inside, last) = (AtomicU64::new(0), AtomicU64::new(0));
    let enter_often = |client: &Client<'_>| {
        for _ in 0..ROUNDS {
            let (tenure, number) = loop {
                let tenure = client.tenure("k");
                match tenure.ask(false) {
                    AcquireOutcome::Acquired(grant) => break (tenure, grant.number),
                    _ => thread::yield_now(),
                }
            };
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "somebody is inside");
            let before = last.swap(number, Ordering::SeqCst);
            assert!(number > before, "{number} after {before}");
            thread::yield_now();
            inside.fetch_sub(1, Ordering::SeqCst);
            assert!(matches!(tenure.release(), ReleaseOutcome::Released { .. }));
        }
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| enter_often(&suite.client()));
        }
    });
    assert_eq!(suite.store().leftovers(), [""; 0]);
}
