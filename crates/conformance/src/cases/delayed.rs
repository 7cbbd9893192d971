//! Delayed releases: the tenure has ended, and a mark keeps everybody out for a while.

use crate::suite::Suite;
use crate::tenure::{PATIENCE, Tenure};
use redis_dlock::Error;
use redis_dlock::port::{
    Break, BreakOutcome, DelayReleaseOutcome, ExtendOutcome, Inspection, NotOurs, Operations, PollOutcome,
    ProbeOutcome, ReleaseDelay, ReleaseOutcome,
};
use std::time::Duration;

/// The mark of a tenure, as a client makes it: no locker, and with spaces.
fn mark_of(tenure: &Tenure) -> String {
    format!("delayed-release locker={} held=5 name=é-7 v=1", tenure.locker)
}

fn try_delay(tenure: &Tenure, time: Duration) -> Result<DelayReleaseOutcome, Error> {
    let mark = mark_of(tenure);
    tenure.processor().delay_release(&tenure.claim(), ReleaseDelay::new(&mark, time), PATIENCE)
}

/// Ends a tenure that holds the key. Returns the mark.
fn delay(tenure: &Tenure, time: Duration) -> String {
    assert_eq!(try_delay(tenure, time).unwrap(), DelayReleaseOutcome::Delayed);
    mark_of(tenure)
}

/// Shows: G1, G2, G13, S3.
pub(crate) fn keeps_everybody_out_as_a_holder_does(suite: &Suite) {
    let a = suite.client().holder("k");
    let mark = delay(&a, suite.long());
    let held = NotOurs::new(Some(mark.clone()));
    let seen = suite.inspect("k");
    assert_eq!((seen.holder.as_ref(), seen.waiting), (Some(&mark), 0));
    assert!(suite.is_left(seen.remaining, suite.long()), "{seen:?}");
    assert_eq!(a.poll(), PollOutcome::Gone);
    assert_eq!(a.extend(), ExtendOutcome::NotOurs(held.clone()));
    assert_eq!(a.probe(), ProbeOutcome::NotOurs(held.clone()));
    assert_eq!(a.release(), ReleaseOutcome::NotOurs(held));
    let busy = suite.client().tenure("k").fail();
    assert_eq!(busy.holder.as_ref(), Some(&mark), "the release of the ended tenure has changed nothing");
    assert!(suite.store().delete("k"));
    suite.client().holder("k");
}

pub(crate) fn ends_with_its_time(suite: &Suite) {
    let a = suite.client().holder("k");
    delay(&a, suite.short());
    suite.store().pass_time(suite.short());
    assert_eq!(suite.inspect("k"), Inspection::free());
    assert_eq!(try_delay(&a, suite.long()).unwrap(), DelayReleaseOutcome::NotOurs(NotOurs::new(None)));
    suite.client().holder("k");
}

/// A reply was lost. The time counts from the last request.
/// Shows: G2.
pub(crate) fn can_be_repeated(suite: &Suite) {
    let a = suite.client().holder("k");
    delay(&a, suite.short());
    let mark = delay(&a, suite.short() * 20);
    suite.store().pass_time(suite.short());
    assert_eq!(suite.holder("k").as_ref(), Some(&mark));
    assert!(suite.store().delete("k"));
    assert_eq!(try_delay(&a, suite.long()).unwrap(), DelayReleaseOutcome::NotOurs(NotOurs::new(None)));
    let b = suite.client().holder("k");
    assert_eq!(try_delay(&a, suite.long()).unwrap(), DelayReleaseOutcome::NotOurs(b.not_yours()));
    assert!(b.holds());
}

/// Shows: S3.
pub(crate) fn of_a_stranger_changes_nothing(suite: &Suite) {
    let (a, b) = (suite.client().holder("k"), suite.client().tenure("k"));
    assert_eq!(try_delay(&b, suite.long()).unwrap(), DelayReleaseOutcome::NotOurs(a.not_yours()));
    assert!(a.holds());
    a.release();
    assert_eq!(try_delay(&a, suite.long()).unwrap(), DelayReleaseOutcome::NotOurs(NotOurs::new(None)));
    assert_eq!(suite.inspect("k"), Inspection::free());
}

/// It is no new way in: the key goes to its first waiter when somebody asks after the end.
/// Shows: G7, G8, L1.
pub(crate) fn leaves_the_queue_and_gives_the_key_to_its_first_afterwards(suite: &Suite) {
    let a = suite.client().tenure("k");
    let number = a.acquire().number;
    let b = suite.client().waiter("k");
    let time = suite.short();
    let mark = delay(&a, time);
    let c = suite.client().waiter("k");
    for waiter in [&b, &c] {
        let busy = waiter.poll_waiting();
        assert_eq!(busy.holder.as_ref(), Some(&mark));
        assert!(suite.is_left(busy.remaining, time), "{busy:?}");
    }
    assert_eq!(suite.waiting("k"), 2);
    suite.store().pass_time(time);
    assert!(b.poll_acquired().number > number);
    assert_eq!(c.poll_waiting().holder.as_ref(), Some(&b.locker));
}

pub(crate) fn can_be_broken(suite: &Suite) {
    let a = suite.client().holder("k");
    let b = suite.client().waiter("k");
    let mark = delay(&a, suite.long());
    let broken = |locker: &str| {
        let client = suite.client();
        client.processor().break_hold(&Break::new("k", locker, "operator-1", "no more"), PATIENCE).unwrap()
    };
    assert_eq!(broken(&a.locker), BreakOutcome::NotHeldBy { holder: Some(mark.clone()) });
    assert!(matches!(broken(&mark), BreakOutcome::Broken { .. }));
    b.poll_acquired();
    assert_eq!(try_delay(&a, suite.long()).unwrap(), DelayReleaseOutcome::NotOurs(b.not_yours()));
}

/// Shows: S6.
pub(crate) fn that_is_refused_leaves_the_key_with_its_holder(suite: &Suite) {
    let a = suite.client().holder("k");
    let refused = suite.while_denied(&["SET"], || try_delay(&a, suite.long()));
    assert!(matches!(refused, Err(Error::Denied { .. })), "{refused:?}");
    assert!(a.holds());
}
