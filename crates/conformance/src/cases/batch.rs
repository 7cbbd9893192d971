//! Many requests in one go.

use crate::suite::Suite;
use redis_dlock::port::{
    AcquireOutcome, Busy, ExtendOutcome, Limit, NotOurs, Outcome, PollOutcome, ProbeOutcome, ReleaseOutcome, Request,
};

/// Shows: S15.
pub(crate) fn answers_all_requests_in_order(suite: &Suite) {
    let client = suite.client();
    let (a, b, c, stranger) = (client.tenure("k"), client.tenure("k"), client.tenure("k"), client.tenure("k"));
    let other = client.tenure("other");
    let requests = [
        Request::Acquire(a.claim()),
        Request::Join(b.claim()),
        Request::Acquire(other.claim()),
        Request::Poll(b.claim()),
        Request::Poll(stranger.claim()),
        Request::Extend(a.claim()),
        Request::ExtendWithNumbers(b.claim()),
        Request::Probe(a.claim()),
        Request::Probe(b.claim()),
        Request::Release(b.claim()),
        Request::HandOver(a.claim(), c.claim()),
        Request::Release(c.claim()),
        Request::Probe(c.claim()),
    ];
    let outcomes = client.processor().run(&requests, Limit::Attempt(suite.long()));
    let outcomes: Vec<Outcome> = outcomes.into_iter().map(Result::unwrap).collect();
    let free = NotOurs::new(None);
    let held_by_a = |busy: &Busy| busy.holder.as_ref() == Some(&a.locker);
    match &outcomes[..] {
        [
            Outcome::Acquire(AcquireOutcome::Acquired(first)),
            Outcome::Acquire(AcquireOutcome::Busy(busy)),
            Outcome::Acquire(AcquireOutcome::Acquired(elsewhere)),
            Outcome::Poll(PollOutcome::Waiting(waiting)),
            Outcome::Poll(PollOutcome::Gone),
            Outcome::Extend(ExtendOutcome::Extended(extension)),
            Outcome::Extend(ExtendOutcome::NotOurs(not_bs)),
            Outcome::Probe(ProbeOutcome::Ours),
            Outcome::Probe(ProbeOutcome::NotOurs(not_bs_either)),
            Outcome::Release(ReleaseOutcome::NotOurs(gave_up)),
            Outcome::Release(ReleaseOutcome::Passed(passed)),
            Outcome::Release(ReleaseOutcome::Released { waiting: 0 }),
            Outcome::Probe(ProbeOutcome::NotOurs(nobodys)),
        ] => {
            assert!(held_by_a(busy) && held_by_a(waiting));
            assert_eq!((extension.waiting, &extension.numbers), (1, &None));
            assert!(first.number < passed.number && elsewhere.number > 0);
            assert_eq!([not_bs, not_bs_either, gave_up], [&a.not_yours(); 3]);
            assert_eq!(nobodys, &free);
        }
        other => panic!("{other:#?}"),
    }
}

pub(crate) fn answers_nothing_to_nothing(suite: &Suite) {
    assert!(suite.client().processor().run(&[], Limit::Attempt(suite.long())).is_empty());
}
