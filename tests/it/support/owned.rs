//! A request that outlives its caller, for stores that execute a request after its caller has given it up. The models of threads have it, too.

use super::port::{Claim, Gap, Note, ReleaseDelay, Request};
use std::time::Duration;

/// A [`Request`] that owns its strings.
#[derive(Debug)]
pub(crate) struct OwnedRequest {
    claim: OwnedClaim,
    kind: Kind,
}

#[derive(Debug)]
struct OwnedClaim {
    key: String,
    client: String,
    locker: String,
    lease: Duration,
    poller_gap: Option<Gap>,
    /// The fields of [`Note`], in their order.
    note: [Option<String>; 3],
}

#[derive(Debug)]
enum Kind {
    Acquire,
    Join,
    Poll,
    Extend,
    ExtendWithNumbers,
    Release,
    /// Contains the next tenure.
    HandOver(OwnedClaim),
    /// Contains the mark and the time.
    DelayRelease(String, Duration),
    Probe,
}

impl OwnedClaim {
    fn of(claim: &Claim<'_>) -> Self {
        let Note { why, thread, host, .. } = claim.note;
        Self {
            key: claim.key.to_owned(),
            client: claim.client.to_owned(),
            locker: claim.locker.to_owned(),
            lease: claim.lease,
            poller_gap: claim.poller_gap,
            note: [why, thread, host].map(|text| text.map(str::to_owned)),
        }
    }

    fn claim(&self) -> Claim<'_> {
        let [why, thread, host] = self.note.each_ref().map(Option::as_deref);
        Claim::new(&self.key, &self.client, &self.locker, self.lease)
            .with_poller_gap(self.poller_gap)
            .with_note(Note::new(why, thread, host))
    }
}

impl OwnedRequest {
    /// Copies a request.
    pub(crate) fn of(request: &Request<'_>) -> Self {
        let kind = match request {
            Request::Acquire(_) => Kind::Acquire,
            Request::Join(_) => Kind::Join,
            Request::Poll(_) => Kind::Poll,
            Request::Extend(_) => Kind::Extend,
            Request::ExtendWithNumbers(_) => Kind::ExtendWithNumbers,
            Request::Release(_) => Kind::Release,
            Request::HandOver(_, next) => Kind::HandOver(OwnedClaim::of(next)),
            Request::DelayRelease(_, delay) => Kind::DelayRelease(delay.mark.to_owned(), delay.time),
            Request::Probe(_) => Kind::Probe,
            other => panic!("no store executes {other:?} late"),
        };
        Self { claim: OwnedClaim::of(request.claim().expect("a claim")), kind }
    }

    /// Returns the request that was copied.
    pub(crate) fn request(&self) -> Request<'_> {
        let claim = self.claim.claim();
        match &self.kind {
            Kind::Acquire => Request::Acquire(claim),
            Kind::Join => Request::Join(claim),
            Kind::Poll => Request::Poll(claim),
            Kind::Extend => Request::Extend(claim),
            Kind::ExtendWithNumbers => Request::ExtendWithNumbers(claim),
            Kind::Release => Request::Release(claim),
            Kind::HandOver(next) => Request::HandOver(claim, next.claim()),
            Kind::DelayRelease(mark, time) => Request::DelayRelease(claim, ReleaseDelay::new(mark, *time)),
            Kind::Probe => Request::Probe(claim),
        }
    }
}

#[test]
fn a_copy_is_equal_to_its_request() {
    let claim = Claim::new("key", "client", "client-1", Duration::from_secs(30))
        .with_poller_gap(Some(Gap::new(Duration::from_millis(70), Duration::from_secs(5))))
        .with_note(Note::new(Some("why"), Some("thread"), Some("host")));
    let next = Claim::new("key", "client", "client-2", Duration::from_secs(20));
    for request in [
        Request::Acquire(claim),
        Request::Join(claim),
        Request::Poll(claim),
        Request::Extend(claim),
        Request::ExtendWithNumbers(claim),
        Request::Release(claim),
        Request::HandOver(claim, next),
        Request::DelayRelease(claim, ReleaseDelay::new("a mark", Duration::from_secs(7))),
        Request::Probe(claim),
    ] {
        assert_eq!(OwnedRequest::of(&request).request(), request);
    }
}
