//! A command that is executed after its caller has given it up.

use crate::store::processor::{AcquireRequest, ExtendRequest, Gap, PollRequest, ProbeRequest, ReleaseRequest, Request};
use std::time::Duration;

/// A command that outlives its caller.
pub(super) struct Command {
    key: String,
    locker: String,
    lease: Duration,
    kind: Kind,
}

enum Kind {
    Acquire { wait: bool },
    Poll,
    Extend { fresh_numbers: bool },
    Release { next: Option<(String, Duration)>, gap: Option<Gap> },
    Probe,
}

impl Command {
    pub(super) fn of(request: &Request<'_>) -> Self {
        let (key, locker, lease, kind) = match *request {
            Request::Acquire(AcquireRequest { key, locker, lease, wait }) => {
                (key, locker, lease, Kind::Acquire { wait })
            }
            Request::Poll(PollRequest { key, locker, lease }) => (key, locker, lease, Kind::Poll),
            Request::Extend(ExtendRequest { key, locker, lease, fresh_numbers }) => {
                (key, locker, lease, Kind::Extend { fresh_numbers })
            }
            Request::Release(ReleaseRequest { key, locker, lease, next, gap }) => {
                (key, locker, lease, Kind::Release { next: next.map(|(next, lease)| (next.to_owned(), lease)), gap })
            }
            Request::Probe(ProbeRequest { key, locker }) => (key, locker, Duration::ZERO, Kind::Probe),
        };
        Self { key: key.to_owned(), locker: locker.to_owned(), lease, kind }
    }

    pub(super) fn request(&self) -> Request<'_> {
        let (key, locker, lease) = (&*self.key, &*self.locker, self.lease);
        match &self.kind {
            Kind::Acquire { wait } => Request::Acquire(AcquireRequest { key, locker, lease, wait: *wait }),
            Kind::Poll => Request::Poll(PollRequest { key, locker, lease }),
            Kind::Extend { fresh_numbers } => {
                Request::Extend(ExtendRequest { key, locker, lease, fresh_numbers: *fresh_numbers })
            }
            Kind::Release { next, gap } => {
                let next = next.as_ref().map(|(next, lease)| (&**next, *lease));
                Request::Release(ReleaseRequest { key, locker, lease, next, gap: *gap })
            }
            Kind::Probe => Request::Probe(ProbeRequest { key, locker }),
        }
    }
}
