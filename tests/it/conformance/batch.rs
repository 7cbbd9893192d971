//! Many requests in one go.

use super::suite::{LONG, Suite};
use redis_dlock::{AcquireOutcome, Busy, ExtendOutcome, Outcome, PollOutcome, ProbeOutcome, ReleaseOutcome, Request};

/// Shows: S15.
pub(crate) fn answers_all_requests_in_order(suite: &Suite) {
    let client = suite.client();
    let (a, b, c, stranger) = (client.tenure("k"), client.tenure("k"), client.tenure("k"), client.tenure("k"));
    let other = client.tenure("other");
    let requests = [
        Request::Acquire(a.acquire_request(false)),
        Request::Acquire(b.acquire_request(true)),
        Request::Acquire(other.acquire_request(false)),
        Request::Poll(b.poll_request()),
        Request::Poll(stranger.poll_request()),
        Request::Extend(a.extend_request(false)),
        Request::Extend(b.extend_request(true)),
        Request::Probe(a.probe_request()),
        Request::Probe(b.probe_request()),
        Request::Release(b.release_request(None)),
        Request::Release(a.release_request(Some(&c))),
        Request::Release(c.release_request(None)),
        Request::Probe(c.probe_request()),
    ];
    let outcomes = client.processor.batch(&requests, LONG);
    let outcomes: Vec<Outcome> = outcomes.into_iter().map(Result::unwrap).collect();
    let free = redis_dlock::NotOurs { holder: None };
    let held_by_a = |busy: &Busy| busy.holder == a.locker;
    match &outcomes[..] {
        [
            Outcome::Acquire(AcquireOutcome::Acquired(first)),
            Outcome::Acquire(AcquireOutcome::Busy(busy)),
            Outcome::Acquire(AcquireOutcome::Acquired(elsewhere)),
            Outcome::Poll(PollOutcome::Waiting(waiting)),
            Outcome::Poll(PollOutcome::Gone),
            Outcome::Extend(ExtendOutcome::Extended { waiting: 1, numbers: None }),
            Outcome::Extend(ExtendOutcome::NotOurs(not_bs)),
            Outcome::Probe(ProbeOutcome::Ours),
            Outcome::Probe(ProbeOutcome::NotOurs(not_bs_either)),
            Outcome::Release(ReleaseOutcome::NotOurs(gave_up)),
            Outcome::Release(ReleaseOutcome::Passed(passed)),
            Outcome::Release(ReleaseOutcome::Released { waiting: 0 }),
            Outcome::Probe(ProbeOutcome::NotOurs(nobodys)),
        ] => {
            assert!(held_by_a(busy) && held_by_a(waiting));
            assert!(first.number < elsewhere.number && elsewhere.number < passed.number);
            assert_eq!([not_bs, not_bs_either, gave_up], [&a.not_yours(); 3]);
            assert_eq!(nobodys, &free);
        }
        other => panic!("{other:#?}"),
    }
}

pub(crate) fn answers_nothing_to_nothing(suite: &Suite) {
    assert!(suite.client().processor.batch(&[], LONG).is_empty());
}
