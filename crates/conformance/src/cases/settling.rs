//! Ending a locker for certain.

use crate::suite::Suite;
use crate::tenure::{PATIENCE, Tenure};
use redis_dlock::port::Operations;

fn settle(tenure: &Tenure) {
    tenure.processor().settle(&tenure.claim(), PATIENCE).unwrap();
}

/// Shows: L2.
pub(crate) fn frees_the_key_of_a_holder(suite: &Suite) {
    let a = suite.client().holder("k");
    settle(&a);
    a.poll_gone();
    suite.client().holder("k");
}

/// Shows: S3.
pub(crate) fn of_a_locker_that_was_never_sent_changes_nothing(suite: &Suite) {
    let a = suite.client().holder("k");
    let stranger = suite.client().tenure("k");
    settle(&stranger);
    stranger.poll_gone();
    assert!(a.holds());
}

/// Shows: G2, S3.
pub(crate) fn twice_does_no_harm(suite: &Suite) {
    let a = suite.client().holder("k");
    settle(&a);
    let b = suite.client().holder("k");
    settle(&a);
    assert!(b.holds());
}

/// Shows: L1.
pub(crate) fn takes_a_waiter_out_of_the_queue(suite: &Suite) {
    let a = suite.client().holder("k");
    let b = suite.client().waiter("k");
    settle(&b);
    b.poll_gone();
    assert_eq!(suite.waiting("k"), 0);
    assert!(a.holds());
}
