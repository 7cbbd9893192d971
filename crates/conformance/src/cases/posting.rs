//! Giving a key back without waiting for the reply.

use crate::suite::Suite;
use crate::tenure::{PATIENCE, Tenure};
use crossbeam_channel::{Receiver, unbounded};
use redis_dlock::Error;
use redis_dlock::port::{Claim, NotOurs, Posting, ReleaseDone, ReleaseOutcome};
use std::thread;
use std::time::Instant;

fn posting(tenure: &Tenure) -> &dyn Posting {
    tenure.processor().posting().expect("the case needs posted releases")
}

/// What receives the outcome of a posted release, and sends it on the channel.
fn done() -> (ReleaseDone, Receiver<Result<ReleaseOutcome, Error>>) {
    let (tell, told) = unbounded();
    (Box::new(move |outcome| tell.send(outcome).unwrap()), told)
}

/// Posts the release of a tenure. Its outcomes come on the channel.
fn post(tenure: &Tenure) -> Receiver<Result<ReleaseOutcome, Error>> {
    let (done, told) = done();
    posting(tenure).post_release(&tenure.claim(), PATIENCE, done);
    told
}

/// Collects replies until the outcome is told.
fn outcome(tenure: &Tenure, told: &Receiver<Result<ReleaseOutcome, Error>>) -> ReleaseOutcome {
    let start = Instant::now();
    loop {
        let is_outstanding = posting(tenure).collect();
        if let Ok(outcome) = told.try_recv() {
            assert!(told.try_recv().is_err(), "it is told once");
            return outcome.unwrap();
        }
        assert!(is_outstanding, "what is outstanding is not told yet");
        assert!(start.elapsed() < PATIENCE, "{tenure:?}: no outcome");
        thread::yield_now();
    }
}

/// Shows: L2.
pub(crate) fn frees_the_key_and_tells_how_it_ended(suite: &Suite) {
    let a = suite.client().holder("k");
    let told = post(&a);
    assert_eq!(outcome(&a, &told), ReleaseOutcome::Released { waiting: 0 });
    a.poll_gone();
    suite.client().holder("k");
}

/// Shows: S15.
pub(crate) fn comes_before_what_the_client_asks_next(suite: &Suite) {
    let client = suite.client();
    for _ in 0..20 {
        let (a, b) = (client.holder("k"), client.tenure("k"));
        let told = post(&a);
        // Nothing is waited for: the next request finds the key free all the same.
        b.acquire();
        assert_eq!(outcome(&a, &told), ReleaseOutcome::Released { waiting: 0 });
        b.release();
    }
}

/// Shows: G2, S3.
pub(crate) fn by_a_stranger_changes_nothing(suite: &Suite) {
    let a = suite.client().holder("k");
    let stranger = suite.client().tenure("k");
    let told = post(&stranger);
    assert_eq!(outcome(&stranger, &told), ReleaseOutcome::NotOurs(a.not_yours()));
    assert!(a.holds());
}

/// Shows: G2, S3.
pub(crate) fn twice_does_no_harm(suite: &Suite) {
    let a = suite.client().holder("k");
    let told = [post(&a), post(&a)];
    let outcomes = told.each_ref().map(|told| outcome(&a, told));
    assert_eq!(outcomes, [ReleaseOutcome::Released { waiting: 0 }, ReleaseOutcome::NotOurs(NotOurs::new(None))]);
}

/// Shows: L1.
pub(crate) fn hands_the_key_to_who_waits(suite: &Suite) {
    let a = suite.client().holder("k");
    let (b, mut inbox) = suite.heard_waiter("k");
    let told = post(&a);
    inbox.hear_granted(&b);
    assert!(matches!(outcome(&a, &told), ReleaseOutcome::Released { .. }));
    assert!(b.holds());
}

/// Shows: L2.
pub(crate) fn of_several_tells_each_how_it_ended(suite: &Suite) {
    several_tell(suite, |posting, claims| {
        posting.post_releases(claims, PATIENCE);
    });
}

/// Shows: L2, S15.
pub(crate) fn of_several_may_go_out_with_the_next_request(suite: &Suite) {
    several_tell(suite, |posting, claims| {
        posting.post_releases_with_next(claims, PATIENCE);
        posting.collect();
    });
    // The release comes before a later request about its key, and with one about another key.
    let client = suite.client();
    for next in ["k", "other"] {
        let (a, b) = (client.holder("k"), client.tenure(next));
        let (done, told) = done();
        posting(&a).post_releases_with_next(vec![(a.claim(), done)], PATIENCE);
        b.acquire();
        assert_eq!(outcome(&a, &told), ReleaseOutcome::Released { waiting: 0 });
        b.release();
    }
}

fn several_tell(suite: &Suite, post: impl FnOnce(&dyn Posting, Vec<(Claim<'_>, ReleaseDone)>)) {
    let client = suite.client();
    let (a, b) = (client.holder("a"), client.holder("b"));
    let stranger = suite.client().tenure("c");
    let c = suite.client().holder("c");
    let (claims, told): (Vec<_>, Vec<_>) = [&a, &stranger, &b]
        .into_iter()
        .map(|tenure| {
            let (done, told) = done();
            ((tenure.claim(), done), told)
        })
        .unzip();
    post(posting(&a), claims);
    let outcomes: Vec<_> = told.iter().map(|told| outcome(&a, told)).collect();
    let released = || ReleaseOutcome::Released { waiting: 0 };
    assert_eq!(outcomes, [released(), ReleaseOutcome::NotOurs(c.not_yours()), released()]);
    assert!(c.holds());
    client.holder("a");
    client.holder("b");
}
