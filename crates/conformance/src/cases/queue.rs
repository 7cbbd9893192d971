//! Standing in the queue.

use crate::suite::Suite;
use redis_dlock::port::ReleaseOutcome;

pub(crate) fn tells_the_holder_of_its_head(suite: &Suite) {
    let (client, mut inbox) = suite.listener();
    let holder = client.holder("k");
    suite.client().waiter("k");
    inbox.hear_contended(&holder);
    suite.client().waiter("k");
    suite.client().tenure("k").fail();
    inbox.hear_nothing();
}

pub(crate) fn tells_the_holder_again_when_its_head_polls(suite: &Suite) {
    let (client, mut inbox) = suite.listener();
    let holder = client.holder("k");
    let head = suite.client().waiter("k");
    let second = suite.client().waiter("k");
    inbox.hear_contended(&holder);
    second.poll_waiting();
    inbox.hear_nothing();
    head.poll_waiting();
    inbox.hear_contended(&holder);
    head.poll_waiting();
    inbox.hear_contended(&holder);
    // Who is the head is a matter of now, not of the time of its coming.
    head.release();
    second.poll_waiting();
    inbox.hear_contended(&holder);
    inbox.hear_nothing();
}

pub(crate) fn tells_a_granted_holder_of_the_new_head(suite: &Suite) {
    let holder = suite.client().holder("k");
    let (winner, mut inbox) = suite.heard_waiter("k");
    let second = suite.client().waiter("k");
    holder.release();
    assert_eq!(inbox.hear_granted(&winner).waiting, 1);
    second.poll_waiting();
    inbox.hear_contended(&winner);
}

/// Shows: G2.
pub(crate) fn knows_nobody_that_was_not_sent(suite: &Suite) {
    let client = suite.client();
    client.tenure("k").poll_gone();
    assert_eq!(suite.holder("k"), None, "the question took nothing");
    client.holder("k");
    client.tenure("k").poll_gone();
    client.waiter("k");
    client.tenure("k").poll_gone();
    assert_eq!(suite.waiting("k"), 1, "the question queued nobody");
}

/// Shows: G2.
pub(crate) fn knows_nobody_that_gave_up(suite: &Suite) {
    let a = suite.client().holder("k");
    let b = suite.client().waiter("k");
    assert_eq!(b.release(), ReleaseOutcome::NotOurs(a.not_yours()));
    b.poll_gone();
    a.release();
    a.poll_gone();
    b.poll_gone();
    assert_eq!(suite.holder("k"), None, "no late question brings a tenure back");
}

/// Shows: G2.
pub(crate) fn knows_nobody_whose_tenure_ended(suite: &Suite) {
    let a = suite.client().holder_with("k", suite.short());
    suite.store().pass_time(suite.short());
    a.poll_gone();
    assert_eq!(suite.holder("k"), None);
    let b = suite.client().holder("k");
    a.poll_gone();
    assert!(b.holds());
}

pub(crate) fn is_entered_once_by_many_polls(suite: &Suite) {
    let a = suite.client().holder("k");
    let b = suite.client().waiter("k");
    for _ in 0..5 {
        assert_eq!(b.poll_waiting().holder.as_ref(), Some(&a.locker));
    }
    assert_eq!(suite.waiting("k"), 1);
}

/// Shows: L2.
pub(crate) fn ends_when_nobody_asks(suite: &Suite) {
    let a = suite.client().holder("k");
    let b = suite.client().tenure_with("k", suite.short());
    b.wait();
    suite.store().pass_time(suite.short() * 3);
    assert_eq!(suite.waiting("k"), 0);
    b.poll_gone();
    assert_eq!(a.release(), ReleaseOutcome::Released { waiting: 0 });
}

/// Shows: L2.
pub(crate) fn ends_after_a_hand_over_when_nobody_asks(suite: &Suite) {
    let holder = suite.client().holder("k");
    let (client, _inbox) = suite.listener();
    let winner = client.tenure_with("k", suite.short());
    winner.wait();
    let behind = suite.client().tenure_with("k", suite.short());
    behind.wait();
    assert_eq!(holder.release(), ReleaseOutcome::Released { waiting: 1 });
    suite.store().pass_time(suite.short() * 3);
    assert_eq!(suite.waiting("k"), 0);
    behind.poll_gone();
}

/// Shows: S4.
pub(crate) fn lives_as_long_as_its_longest_lease(suite: &Suite) {
    suite.client().holder("k");
    let long = suite.client().waiter("k");
    let short = suite.client().tenure_with("k", suite.short());
    short.wait();
    short.poll_waiting();
    suite.store().pass_time(suite.short() * 2);
    long.poll_waiting();
    short.poll_waiting();
    // The other way round: a longer lease prolongs the life of all.
    suite.client().holder("l");
    let short = suite.client().tenure_with("l", suite.short());
    short.wait();
    let long = suite.client().waiter("l");
    suite.store().pass_time(suite.short() * 2);
    short.poll_waiting();
    long.poll_waiting();
}

/// Shows: S4.
pub(crate) fn lives_on_by_polls(suite: &Suite) {
    suite.client().holder("k");
    let lease = suite.short() * 3;
    let b = suite.client().tenure_with("k", lease);
    b.wait();
    // Longer together than the two leases for which a queue lives, and each much shorter, because this machine may be slow.
    for _ in 0..3 {
        suite.store().pass_time(lease * 3 / 4);
        b.poll_waiting();
    }
}

pub(crate) fn is_counted(suite: &Suite) {
    assert_eq!(suite.inspect("k"), redis_dlock::port::Inspection::free());
    let a = suite.client().holder("k");
    let waiters: Vec<_> = (1..=5)
        .map(|n| {
            let waiter = suite.client().waiter("k");
            assert_eq!(suite.waiting("k"), n);
            waiter
        })
        .collect();
    waiters[2].release();
    assert_eq!(suite.waiting("k"), 4);
    assert!(suite.store().delete("k"));
    assert_eq!(suite.inspect("k"), redis_dlock::port::Inspection::free().with_waiting(4));
    assert!(!a.holds());
}
