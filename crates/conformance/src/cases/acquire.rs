//! Asking for a key.

use crate::suite::Suite;
use redis_dlock::port::NotOurs;

pub(crate) fn takes_a_free_key(suite: &Suite) {
    let a = suite.client().tenure("k");
    let grant = a.acquire();
    assert_eq!(grant.waiting, 0);
    assert!(grant.number > 0);
    assert!(a.holds());
    let found = suite.inspect("k");
    assert_eq!(found.holder.as_ref(), Some(&a.locker));
    assert!(suite.is_left(found.remaining, suite.long()));
}

/// Shows: G1.
pub(crate) fn finds_a_busy_key_with_its_holder_and_lease(suite: &Suite) {
    let a = suite.client().holder("k");
    let b = suite.client().tenure_with("k", suite.short());
    let busy = b.fail();
    assert_eq!(busy.holder.as_ref(), Some(&a.locker));
    // Whoever does not wait may be told the holder alone.
    assert!(busy.remaining.is_none_or(|left| (suite.short()..=suite.long()).contains(&left)), "{busy:?}");
    let c = suite.client().tenure_with("k", suite.short());
    let busy = c.wait();
    assert_eq!(busy.holder.as_ref(), Some(&a.locker));
    assert!(suite.is_left(busy.remaining, suite.long()), "{busy:?}");
    assert!(busy.remaining.is_none_or(|left| left >= suite.short()), "{busy:?}");
    assert!(a.holds());
}

pub(crate) fn stands_in_no_queue_unless_it_waits(suite: &Suite) {
    let a = suite.client().holder("k");
    let (b, _inbox) = suite.listener();
    let no = b.tenure("k");
    no.fail();
    assert_eq!(suite.waiting("k"), 0);
    no.poll_gone();
    a.release();
    assert_eq!(suite.holder("k"), None);
}

/// Shows: G1.
pub(crate) fn excludes_two_lockers_of_one_client(suite: &Suite) {
    let client = suite.client();
    let a = client.holder("k");
    let b = client.tenure("k");
    assert_eq!(b.fail().holder.as_ref(), Some(&a.locker));
    let c = client.waiter("k");
    assert_eq!(c.poll_waiting().holder.as_ref(), Some(&a.locker));
}

pub(crate) fn knows_no_remaining_lease_of_a_key_without_one(suite: &Suite) {
    suite.store().overwrite("k", "admin-1", None);
    let a = suite.client().waiter("k");
    let (asked, polled, seen) = (suite.client().tenure("k").fail(), a.poll_waiting(), suite.inspect("k"));
    for (holder, remaining) in
        [(asked.holder, asked.remaining), (polled.holder, polled.remaining), (seen.holder, seen.remaining)]
    {
        assert_eq!(holder.as_deref(), Some("admin-1"));
        assert_eq!(remaining, None);
    }
    assert!(suite.store().delete("k"));
}

/// Shows: S3.
pub(crate) fn copes_with_holders_of_any_shape(suite: &Suite) {
    for holder in ["jvm", "", "-", "-1", "a-", "10.0.0.1-7-12", "zwei wörter-1", "a\nb\0-c"] {
        suite.store().overwrite("k", holder, Some(suite.long()));
        let client = suite.client();
        let (a, b) = (client.tenure("k"), client.waiter("k"));
        assert_eq!(a.fail().holder.as_deref(), Some(holder));
        assert_eq!(b.poll_waiting().holder.as_deref(), Some(holder));
        assert_eq!(b.poll_waiting().holder.as_deref(), Some(holder));
        let not_ours = NotOurs::new(Some(holder.to_owned()));
        assert_eq!(a.probe(), redis_dlock::port::ProbeOutcome::NotOurs(not_ours));
        b.release();
        assert!(suite.store().delete("k"));
    }
}
