//! Giving a key back.

use crate::suite::Suite;
use redis_dlock::port::{NotOurs, ReleaseOutcome};

/// Shows: L2.
pub(crate) fn frees_the_key(suite: &Suite) {
    let a = suite.client().holder("k");
    assert_eq!(a.release(), ReleaseOutcome::Released { waiting: 0 });
    assert!(suite.store().leftovers().is_empty());
    suite.client().holder("k");
}

/// Shows: G2, G11, S3.
pub(crate) fn twice_does_no_harm(suite: &Suite) {
    let a = suite.client().holder("k");
    a.release();
    assert_eq!(a.release(), ReleaseOutcome::NotOurs(NotOurs::new(None)));
    let b = suite.client().holder("k");
    let c = suite.client().waiter("k");
    assert_eq!(a.release(), ReleaseOutcome::NotOurs(b.not_yours()));
    assert!(b.holds());
    assert_eq!(c.poll_waiting().holder.as_ref(), Some(&b.locker));
}

/// Shows: S3.
pub(crate) fn by_a_stranger_changes_nothing(suite: &Suite) {
    let a = suite.client().holder_with("k", suite.short());
    let b = suite.client().waiter("k");
    let stranger = suite.client().tenure("k");
    assert_eq!(stranger.release(), ReleaseOutcome::NotOurs(a.not_yours()));
    assert_eq!(suite.waiting("k"), 1);
    assert_eq!(b.poll_waiting().holder.as_ref(), Some(&a.locker));
    suite.store().pass_time(suite.short());
    assert_eq!(stranger.release(), ReleaseOutcome::NotOurs(NotOurs::new(None)), "no hand-over, either");
    assert_eq!(suite.waiting("k"), 1);
}

/// Shows: L2.
pub(crate) fn takes_a_waiter_out_of_the_queue(suite: &Suite) {
    let a = suite.client().holder("k");
    let clients = [suite.client(), suite.client(), suite.client()];
    let mut inboxes = clients.each_ref().map(|client| client.listen());
    let [first, second, third] = clients.each_ref().map(|client| client.waiter("k"));
    for _ in 0..2 {
        assert_eq!(second.release(), ReleaseOutcome::NotOurs(a.not_yours()));
        assert_eq!(suite.waiting("k"), 2);
    }
    a.release();
    inboxes[0].hear_granted(&first);
    first.release();
    inboxes[2].hear_granted(&third);
    inboxes[1].hear_nothing();
}

/// Shows: G2, S3.
pub(crate) fn of_a_lost_tenure_changes_nothing(suite: &Suite) {
    let a = suite.client().holder("k");
    suite.store().overwrite("k", "somebody-1", Some(suite.long()));
    let taken = NotOurs::new(Some("somebody-1".to_owned()));
    assert_eq!(a.release(), ReleaseOutcome::NotOurs(taken));
    assert_eq!(suite.holder("k").as_deref(), Some("somebody-1"));
    suite.store().delete("k");
}

/// Shows: S2.
pub(crate) fn passes_to_the_next_locker_when_nobody_waits(suite: &Suite) {
    let client = suite.client();
    let (a, next) = (client.tenure("k"), client.tenure("k"));
    let first = a.acquire();
    match a.release_to(&next) {
        ReleaseOutcome::Passed(grant) => {
            assert!(grant.number > first.number);
            assert_eq!(grant.waiting, 0);
        }
        other => panic!("{other:?}"),
    }
    assert!(next.holds());
    a.poll_gone();
}

/// Shows: L1.
pub(crate) fn passes_to_the_next_locker_past_the_dead(suite: &Suite) {
    let client = suite.client();
    let (a, next) = (client.holder("k"), client.tenure("k"));
    let dead = suite.client().waiter("k");
    assert!(matches!(a.release_to(&next), ReleaseOutcome::Passed(grant) if grant.waiting == suite.kept(1)));
    assert!(next.holds());
    suite.outlast_the_unheard("k");
    assert_eq!(next.release(), ReleaseOutcome::Released { waiting: 0 });
    dead.poll_gone();
}

/// Shows: G3, G5.
pub(crate) fn passes_with_a_lease_that_begins_anew(suite: &Suite) {
    let lease = suite.short() * 4;
    let client = suite.client();
    let (a, next) = (client.tenure_with("k", lease), client.tenure_with("k", lease));
    a.acquire();
    // Each part is far from the end of the lease; together they are longer.
    suite.store().pass_time(lease * 5 / 8);
    assert!(matches!(a.release_to(&next), ReleaseOutcome::Passed(_)));
    suite.store().pass_time(lease / 2);
    assert!(next.holds());
}

pub(crate) fn passes_with_the_lease_of_the_next_locker(suite: &Suite) {
    let client = suite.client();
    let (a, next) = (client.holder("k"), client.tenure_with("k", suite.short()));
    a.release_to(&next);
    assert!(suite.is_left(suite.inspect("k").remaining, suite.short()));
    suite.store().pass_time(suite.short());
    next.poll_gone();
}

/// Shows: G8, S5.
pub(crate) fn queues_the_next_locker_when_somebody_waits(suite: &Suite) {
    let (one, two, three) = (suite.client(), suite.client(), suite.client());
    let (mut inbox_of_one, mut inbox_of_two) = (one.listen(), two.listen());
    let (a, next) = (one.holder("k"), one.tenure("k"));
    let b = two.waiter("k");
    inbox_of_one.hear_contended(&a);
    let c = three.waiter("k");
    match a.release_to(&next) {
        ReleaseOutcome::Queued(busy) => {
            assert_eq!(busy.holder.as_ref(), Some(&b.locker));
            assert!(suite.is_left(busy.remaining, suite.long()));
            assert!(busy.remaining.is_none_or(|left| left >= suite.short()));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(inbox_of_two.hear_granted(&b).waiting, 2, "the one behind it, and the next locker");
    assert_eq!(next.poll_waiting().holder.as_ref(), Some(&b.locker));
    a.poll_gone();
    // The one behind has no inbox: it is dead, and the next locker's turn comes.
    assert_eq!(b.release(), ReleaseOutcome::Released { waiting: suite.kept(1) });
    assert_eq!(inbox_of_one.hear_granted(&next).waiting, suite.kept(1));
    suite.outlast_the_unheard("k");
    assert_eq!(next.release(), ReleaseOutcome::Released { waiting: 0 });
    c.poll_gone();
}

/// Shows: G2, G11, S3.
pub(crate) fn repeated_with_the_same_next_locker_changes_nothing(suite: &Suite) {
    let (client, _inbox) = suite.listener();
    let (a, next) = (client.holder("k"), client.tenure("k"));
    assert!(matches!(a.release_to(&next), ReleaseOutcome::Passed(_)));
    assert_eq!(a.release_to(&next), ReleaseOutcome::NotOurs(next.not_yours()));
    assert!(next.holds());
    assert_eq!(suite.waiting("k"), 0);

    let (waiter, _other_inbox) = suite.listener();
    let (b, last) = (waiter.waiter("k"), client.tenure("k"));
    assert!(matches!(next.release_to(&last), ReleaseOutcome::Queued(_)));
    assert_eq!(next.release_to(&last), ReleaseOutcome::NotOurs(b.not_yours()));
    assert_eq!(suite.waiting("k"), 1);
}

/// Shows: G2, S3.
pub(crate) fn by_a_stranger_leaves_its_next_locker_unknown(suite: &Suite) {
    let client = suite.client();
    let (a, next) = (client.tenure("k"), client.tenure("k"));
    assert_eq!(a.release_to(&next), ReleaseOutcome::NotOurs(NotOurs::new(None)));
    next.poll_gone();
    let b = suite.client().holder("k");
    assert_eq!(a.release_to(&next), ReleaseOutcome::NotOurs(b.not_yours()));
    next.poll_gone();
    assert_eq!(suite.waiting("k"), 0);
}
