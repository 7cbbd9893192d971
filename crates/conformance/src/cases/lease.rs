//! How leases end and go on.

use crate::suite::Suite;
use redis_dlock::port::{AcquireOutcome, ExtendOutcome, NotOurs, ProbeOutcome};
use std::time::Instant;

/// Shows: G4.
pub(crate) fn ends(suite: &Suite) {
    let a = suite.client().holder_with("k", suite.short());
    suite.store().pass_time(suite.short());
    assert_eq!(a.probe(), ProbeOutcome::NotOurs(NotOurs::new(None)));
    assert_eq!(suite.holder("k"), None);
    let b = suite.client().holder("k");
    assert_eq!(a.probe(), ProbeOutcome::NotOurs(b.not_yours()));
}

/// No other client gets the key before the holder's deadline, as from a store that counts in whole seconds and does not round up.
/// Shows: S1.
pub(crate) fn does_not_end_early(suite: &Suite) {
    let lease = suite.short();
    let sending = Instant::now();
    let a = suite.client().holder_with("k", lease);
    suite.store().pass_time(lease * 19 / 20);
    let outcome = suite.client().tenure("k").ask(false);
    // On a machine that stalls, the lease is over when the store is asked.
    if sending.elapsed() < lease * 99 / 100 {
        assert!(
            matches!(&outcome, AcquireOutcome::Busy(busy) if busy.holder.as_ref() == Some(&a.locker)),
            "{outcome:?}"
        );
    }
}

/// Shows: G3.
pub(crate) fn is_prolonged_by_extend(suite: &Suite) {
    // Each part is far from the end of the lease, also where a machine is slow; together they are longer.
    let lease = suite.short() * 4;
    let a = suite.client().holder_with("k", lease);
    suite.store().pass_time(lease * 5 / 8);
    assert_eq!(a.extended().waiting, 0);
    suite.store().pass_time(lease / 2);
    assert!(a.holds());
}

/// Shows: G3.
pub(crate) fn is_prolonged_by_poll(suite: &Suite) {
    let lease = suite.short() * 4;
    let a = suite.client().holder_with("k", lease);
    suite.store().pass_time(lease * 5 / 8);
    a.poll_acquired();
    suite.store().pass_time(lease / 2);
    assert!(a.holds());
}

/// Shows: S3.
pub(crate) fn is_never_shortened_by_others(suite: &Suite) {
    let a = suite.client().holder("k");
    let b = suite.client().tenure_with("k", suite.short());
    b.wait();
    b.poll_waiting();
    b.extend();
    b.release();
    suite.client().tenure_with("k", suite.short()).fail();
    suite.store().pass_time(suite.short());
    assert!(a.holds());
}

/// Shows: S3.
pub(crate) fn of_a_stranger_is_untouched(suite: &Suite) {
    let a = suite.client().holder_with("k", suite.long());
    let b = suite.client().tenure("k");
    for _ in 0..2 {
        assert_eq!(b.extend(), ExtendOutcome::NotOurs(a.not_yours()));
        assert_eq!(b.extend_fresh(), ExtendOutcome::NotOurs(a.not_yours()));
        assert_eq!(b.probe(), ProbeOutcome::NotOurs(a.not_yours()));
    }
    b.poll_gone();
    a.release();
    // On a busy machine it may end before the stranger asks.
    let _short = suite.client().holder_with("k", suite.short());
    for outcome in [b.extend(), b.extend_fresh()] {
        assert!(matches!(outcome, ExtendOutcome::NotOurs(_)), "{outcome:?}");
    }
    suite.store().pass_time(suite.short());
    assert_eq!(suite.holder("k"), None, "nobody prolonged it");
}

/// Shows: G2.
pub(crate) fn cannot_be_extended_after_its_end(suite: &Suite) {
    let a = suite.client().holder_with("k", suite.short());
    suite.store().pass_time(suite.short());
    assert_eq!(a.extend(), ExtendOutcome::NotOurs(NotOurs::new(None)));
    assert_eq!(suite.holder("k"), None);
}

/// Shows: G2.
pub(crate) fn cannot_be_extended_after_deletion(suite: &Suite) {
    let a = suite.client().holder("k");
    assert!(suite.store().delete("k"));
    assert!(!suite.store().delete("k"));
    let free = NotOurs::new(None);
    assert_eq!(a.extend(), ExtendOutcome::NotOurs(free.clone()));
    assert_eq!(a.extend_fresh(), ExtendOutcome::NotOurs(free.clone()));
    assert_eq!(a.probe(), ProbeOutcome::NotOurs(free));
    assert_eq!(suite.holder("k"), None);
}

/// Shows: G2, S3.
pub(crate) fn cannot_be_extended_after_overwriting(suite: &Suite) {
    let a = suite.client().holder("k");
    suite.store().overwrite("k", "somebody", Some(suite.short()));
    let taken = NotOurs::new(Some("somebody".to_owned()));
    assert_eq!(a.extend(), ExtendOutcome::NotOurs(taken.clone()));
    assert_eq!(a.probe(), ProbeOutcome::NotOurs(taken));
    suite.store().pass_time(suite.short());
    assert_eq!(suite.holder("k"), None, "the lease of somebody was not prolonged");
}

pub(crate) fn extension_tells_how_many_wait(suite: &Suite) {
    let a = suite.client().holder("k");
    for waiting in 1..4 {
        suite.client().waiter("k");
        assert_eq!(a.extended().waiting, waiting);
        assert!(matches!(a.extend_fresh(), ExtendOutcome::Extended(extension) if extension.waiting == waiting));
        assert_eq!(a.poll_acquired().waiting, waiting);
    }
}
