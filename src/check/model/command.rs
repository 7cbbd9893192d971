//! A command that is executed after its caller has given it up.

use crate::store::processor::{Claim, Gap, Request};
use std::time::Duration;

/// A command that outlives its caller.
pub(super) struct Command {
    key: String,
    client: String,
    tenure: Tenure,
    kind: Kind,
}

/// What a command says of a tenure, but for key and client.
struct Tenure {
    locker: String,
    lease: Duration,
    poller_gap: Option<Gap>,
}

enum Kind {
    Acquire,
    Join,
    Poll,
    Extend,
    ExtendWithNumbers,
    Release,
    HandOver(Tenure),
    Probe,
}

impl Tenure {
    fn of(claim: &Claim<'_>) -> Self {
        Self { locker: claim.locker.to_owned(), lease: claim.lease, poller_gap: claim.poller_gap }
    }
}

impl Command {
    pub(super) fn of(request: &Request<'_>) -> Self {
        let kind = match request {
            Request::Acquire(_) => Kind::Acquire,
            Request::Join(_) => Kind::Join,
            Request::Poll(_) => Kind::Poll,
            Request::Extend(_) => Kind::Extend,
            Request::ExtendWithNumbers(_) => Kind::ExtendWithNumbers,
            Request::Release(_) => Kind::Release,
            Request::HandOver(_, next) => Kind::HandOver(Tenure::of(next)),
            Request::Probe(_) => Kind::Probe,
        };
        let claim = request.claim();
        Self { key: claim.key.to_owned(), client: claim.client.to_owned(), tenure: Tenure::of(claim), kind }
    }

    pub(super) fn request(&self) -> Request<'_> {
        let claim = self.claim(&self.tenure);
        match &self.kind {
            Kind::Acquire => Request::Acquire(claim),
            Kind::Join => Request::Join(claim),
            Kind::Poll => Request::Poll(claim),
            Kind::Extend => Request::Extend(claim),
            Kind::ExtendWithNumbers => Request::ExtendWithNumbers(claim),
            Kind::Release => Request::Release(claim),
            Kind::HandOver(next) => Request::HandOver(claim, self.claim(next)),
            Kind::Probe => Request::Probe(claim),
        }
    }

    fn claim<'a>(&'a self, tenure: &'a Tenure) -> Claim<'a> {
        Claim::new(&self.key, &self.client, &tenure.locker, tenure.lease).with_poller_gap(tenure.poller_gap)
    }
}
