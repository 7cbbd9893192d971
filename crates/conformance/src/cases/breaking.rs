//! Taking a key from its holder by force.

use crate::inbox_reader::InboxReader;
use crate::suite::Suite;
use crate::tenure::{PATIENCE, Tenure};
use redis_dlock::Error;
use redis_dlock::port::{Break, BreakOutcome, Broken, Gap, Message, NotOurs, Operations, ProbeOutcome, ReleaseOutcome};

const BY: &str = "operator-1-c0ffee";
const WHY: &str = "hangs since noon: {} \"quoted\" \\ é";

/// Whoever breaks is somebody else than the holder.
fn try_break(suite: &Suite, key: &str, locker: &str) -> Result<BreakOutcome, Error> {
    let client = suite.client();
    client.processor().break_hold(&Break::new(key, locker, BY, WHY), PATIENCE)
}

fn break_hold(suite: &Suite, locker: &str) -> BreakOutcome {
    try_break(suite, "k", locker).unwrap()
}

fn broken(next: Option<&Tenure>, waiting: u64) -> BreakOutcome {
    BreakOutcome::Broken { next: next.map(|next| next.locker.clone()), waiting }
}

fn not_held_by(holder: Option<&str>) -> BreakOutcome {
    BreakOutcome::NotHeldBy { holder: holder.map(str::to_owned) }
}

/// By whom the store says that the tenure was broken.
fn told(tenure: &Tenure) -> Option<Broken> {
    tenure.processor().broken(&tenure.key, &tenure.locker, PATIENCE).unwrap()
}

fn hear_broken(inbox: &mut InboxReader, tenure: &Tenure) {
    let message = Message::Broken { key: tenure.key.clone(), locker: tenure.locker.clone() };
    assert_eq!(inbox.hear(), message);
}

/// Shows: S3.
pub(crate) fn frees_the_key_of_the_locker_that_was_seen(suite: &Suite) {
    let a = suite.client().holder("k");
    assert_eq!(told(&a), None);
    assert_eq!(break_hold(suite, &a.locker), broken(None, 0));
    assert_eq!(a.probe(), ProbeOutcome::NotOurs(NotOurs::new(None)));
    assert_eq!(told(&a), Some(Broken::new(BY, WHY)));
    let b = suite.client().holder("k");
    assert_eq!(a.probe(), ProbeOutcome::NotOurs(b.not_yours()));
    assert_eq!((told(&a), told(&b)), (Some(Broken::new(BY, WHY)), None));
}

/// Shows: G2, S3.
pub(crate) fn of_another_locker_changes_nothing(suite: &Suite) {
    let (a, b) = (suite.client().tenure("k"), suite.client().tenure("k"));
    assert_eq!(break_hold(suite, &a.locker), not_held_by(None));
    a.acquire();
    for stranger in [b.locker.as_str(), "", "k", &a.locker[..a.locker.len() - 1], &format!("{} ", a.locker)] {
        assert_eq!(break_hold(suite, stranger), not_held_by(Some(&a.locker)), "{stranger:?}");
    }
    assert_eq!(try_break(suite, "other", &a.locker).unwrap(), not_held_by(None));
    assert!(a.holds() && told(&a).is_none() && told(&b).is_none());
}

/// Shows: S3, S4.
pub(crate) fn of_a_waiter_changes_nothing(suite: &Suite) {
    let a = suite.client().holder("k");
    let (b, mut inbox) = suite.heard_waiter("k");
    assert_eq!(break_hold(suite, &b.locker), not_held_by(Some(&a.locker)));
    assert_eq!((suite.waiting("k"), told(&b)), (1, None));
    suite.store().delete("k");
    // Nobody has it, and it is not given away for that.
    assert_eq!(break_hold(suite, &a.locker), not_held_by(None));
    assert_eq!((suite.holder("k"), suite.waiting("k")), (None, 1));
    inbox.hear_nothing();
    b.poll_acquired();
}

/// Shows: G2, G11, S3.
pub(crate) fn twice_does_no_harm(suite: &Suite) {
    let a = suite.client().holder("k");
    let (b, mut inbox) = suite.heard_waiter("k");
    assert_eq!(break_hold(suite, &a.locker), broken(Some(&b), 0));
    for _ in 0..2 {
        assert_eq!(break_hold(suite, &a.locker), not_held_by(Some(&b.locker)));
    }
    assert_eq!(a.release(), ReleaseOutcome::NotOurs(b.not_yours()));
    a.poll_gone();
    inbox.hear_granted(&b);
    assert!(b.holds());
}

/// Shows: G7, G8, S2, S4.
pub(crate) fn gives_the_key_to_the_first_waiter_with_a_greater_number(suite: &Suite) {
    let clients = [suite.client(), suite.client(), suite.client()];
    let [mut inbox_of_holder, mut first, mut second] = clients.each_ref().map(|client| client.listen());
    let a = clients[0].tenure("k");
    let number = a.acquire().number;
    let b = clients[1].tenure_with("k", suite.short() * 10);
    b.wait();
    inbox_of_holder.hear_contended(&a);
    let c = clients[2].waiter("k");
    assert_eq!(break_hold(suite, &a.locker), broken(Some(&b), 1));
    let granted = first.hear_granted(&b);
    assert!(granted.number > number && granted.waiting == 1, "{granted:?}");
    hear_broken(&mut inbox_of_holder, &a);
    assert!(b.holds() && suite.is_left(suite.inspect("k").remaining, b.lease), "its own lease");
    second.hear_nothing();
    assert_eq!(b.release(), ReleaseOutcome::Released { waiting: 0 });
    second.hear_granted(&c);
}

pub(crate) fn tells_the_holder(suite: &Suite) {
    let (client, mut inbox) = suite.listener();
    let a = client.holder("k");
    assert_eq!(break_hold(suite, &a.locker), broken(None, 0));
    hear_broken(&mut inbox, &a);
    assert_eq!(break_hold(suite, &a.locker), not_held_by(None));
    inbox.hear_nothing();
}

/// Shows: L1.
pub(crate) fn passes_over_those_who_are_not_heard(suite: &Suite) {
    let a = suite.client().holder("k");
    let (client, mut inbox) = suite.listener();
    let (_dead, b) = (suite.client().waiter("k"), client.waiter("k"));
    assert_eq!(break_hold(suite, &a.locker), broken(Some(&b), suite.kept(1)));
    inbox.hear_granted(&b);
    b.release();
    let c = suite.client().holder("k");
    assert_eq!(break_hold(suite, &c.locker), broken(None, suite.kept(1)));
    assert_eq!(suite.holder("k"), None);
}

pub(crate) fn of_a_holder_of_any_shape(suite: &Suite) {
    for (holder, lease) in [("10.0.0.5-17", Some(suite.long())), ("", None), ("no dash, but spaces", None), ("-", None)]
    {
        suite.store().overwrite("k", holder, lease);
        assert_eq!(break_hold(suite, "somebody-1"), not_held_by(Some(holder)));
        assert_eq!(break_hold(suite, holder), broken(None, 0), "{holder:?}");
        assert_eq!(suite.holder("k"), None);
    }
    let (client, mut inbox) = suite.listener();
    suite.store().overwrite("k", "10.0.0.5-17", None);
    let b = client.waiter("k");
    assert_eq!(break_hold(suite, "10.0.0.5-17"), broken(Some(&b), 0));
    inbox.hear_granted(&b);
}

/// Who has lost the reply looks for it, perhaps after the end of a short lease.
pub(crate) fn is_told_after_the_lease_would_have_ended(suite: &Suite) {
    let lease = suite.short();
    let a = suite.client().holder_with("k", lease);
    assert_eq!(break_hold(suite, &a.locker), broken(None, 0));
    suite.store().pass_time(lease * 2);
    assert_eq!(told(&a), Some(Broken::new(BY, WHY)));
}

/// Shows: G1, S3.
pub(crate) fn of_a_lease_that_has_ended_changes_nothing(suite: &Suite) {
    let a = suite.client().holder_with("k", suite.short());
    suite.store().pass_time(suite.short());
    assert_eq!(break_hold(suite, &a.locker), not_held_by(None));
    assert_eq!(told(&a), None);
}

/// Shows: G8.
pub(crate) fn of_a_poller_leaves_the_gap_as_it_is(suite: &Suite) {
    let gap = Gap::new(PATIENCE, PATIENCE * 2);
    let (client, mut inbox) = suite.listener();
    let (a, b) = (suite.client().holder("k"), client.waiter("k"));
    assert_eq!(a.release_with(None, gap), ReleaseOutcome::Released { waiting: 1 });
    assert!(suite.store().take("k", "10.0.0.5-17", suite.long()));
    assert_eq!(break_hold(suite, "10.0.0.5-17"), broken(None, 1));
    assert_eq!((suite.holder("k"), b.poll_waiting().holder), (None, None), "it is free for other pollers");
    inbox.hear_nothing();
    suite.store().pass_time_of_gaps("k", gap.every);
    b.poll_acquired();
}

/// Shows: S6.
pub(crate) fn that_is_refused_leaves_the_key_with_its_holder(suite: &Suite) {
    let (client, mut inbox) = suite.listener();
    let a = suite.client().holder("k");
    let refused = |commands: &[&'static str]| {
        for command in commands {
            let outcome = suite.while_denied(&[command], || try_break(suite, "k", &a.locker));
            assert!(matches!(outcome, Err(Error::Denied { .. })), "{command}: {outcome:?}");
            assert!(a.holds() && told(&a).is_none(), "{command}");
        }
    };
    refused(&["DEL"]);
    let b = client.waiter("k");
    refused(&["INCR", "LPOP", "SET"]);
    assert_eq!(b.poll_waiting().holder.as_ref(), Some(&a.locker));
    inbox.hear_nothing();
    assert_eq!(break_hold(suite, &a.locker), broken(Some(&b), 0));
    inbox.hear_granted(&b);
}
