//! The store of the model: [`Network`] as a processor, with the embedded store behind it.

use super::inbox::ModelInbox;
use super::network::Network;
use super::time;
use crate::error::{BackendFailure, Error};
use crate::store::processor::{
    AcquireOutcome, Break, BreakOutcome, Breaking, Broken, Claim, ExtendOutcome, Inbox, Inspection, LockProcessor,
    Numbers, Outcome, PollOutcome, ProbeOutcome, ReleaseOutcome, Request, StoreLimits, WaitQueue,
};
use shuttle::rand::{Rng, thread_rng};
use std::sync::atomic::Ordering;
use std::time::Duration;

macro_rules! outcome {
    ($self:ident, $request:expr, $limit:ident, $kind:ident) => {
        match $self.call(&$request, $limit)? {
            Outcome::$kind(outcome) => Ok(outcome),
            other => panic!("{other:?} is no answer to {:?}", $request),
        }
    };
}

impl LockProcessor for Network {
    fn acquire(&self, claim: &Claim<'_>, limit: Duration) -> Result<AcquireOutcome, Error> {
        outcome!(self, Request::Acquire(*claim), limit, Acquire)
    }

    fn extend(&self, claim: &Claim<'_>, limit: Duration) -> Result<ExtendOutcome, Error> {
        outcome!(self, Request::Extend(*claim), limit, Extend)
    }

    fn release(&self, claim: &Claim<'_>, limit: Duration) -> Result<ReleaseOutcome, Error> {
        outcome!(self, Request::Release(*claim), limit, Release)
    }

    fn inspect(&self, key: &str, limit: Duration) -> Result<Inspection, Error> {
        self.shared.store.inspect(key, limit)
    }

    fn poll(&self, claim: &Claim<'_>, limit: Duration) -> Result<PollOutcome, Error> {
        outcome!(self, Request::Poll(*claim), limit, Poll)
    }

    fn probe(&self, claim: &Claim<'_>, limit: Duration) -> Result<ProbeOutcome, Error> {
        outcome!(self, Request::Probe(*claim), limit, Probe)
    }

    fn batch(&self, requests: &[Request<'_>], limit: Duration) -> Vec<Result<Outcome, Error>> {
        requests.iter().map(|request| self.call(request, limit)).collect()
    }

    fn keeps_waiting(&self, _key: &str) -> bool {
        self.shared.seems_silent && thread_rng().gen_bool(0.5)
    }

    fn limits(&self) -> StoreLimits {
        let (command, tick) = (self.shared.lease / 4, Duration::from_millis(1));
        let extends_heard_grants = self.shared.asks_replicas;
        StoreLimits { command, tick, extends_heard_grants, ..self.shared.store.limits() }
    }

    fn queue(&self) -> Option<&dyn WaitQueue> {
        Some(self)
    }

    fn numbers(&self) -> Option<&dyn Numbers> {
        Some(self)
    }

    fn breaking(&self) -> Option<&dyn Breaking> {
        Some(self)
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

impl WaitQueue for Network {
    fn join(&self, claim: &Claim<'_>, limit: Duration) -> Result<AcquireOutcome, Error> {
        if thread_rng().gen_ratio(2, 3) {
            return outcome!(self, Request::Join(*claim), limit, Acquire);
        }
        // Acts like a store that first checks only the key.
        let busy = match outcome!(self, Request::Acquire(*claim), limit, Acquire)? {
            AcquireOutcome::Busy(busy) => busy,
            other => return Ok(other),
        };
        if thread_rng().gen_bool(0.5) {
            return Ok(AcquireOutcome::Unqueued { busy, under_way: false });
        }
        match outcome!(self, Request::Join(*claim), limit, Acquire) {
            Err(Error::Backend { failure, .. }) => {
                Ok(AcquireOutcome::Unqueued { busy, under_way: failure == BackendFailure::Unknown })
            }
            answer => answer,
        }
    }

    fn hand_over(&self, claim: &Claim<'_>, next: &Claim<'_>, limit: Duration) -> Result<ReleaseOutcome, Error> {
        outcome!(self, Request::HandOver(*claim, *next), limit, Release)
    }

    fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error> {
        time::step();
        if self.strikes(|faults| &mut faults.breaks) {
            return Err(Error::backend(BackendFailure::NotExecuted, "refused"));
        }
        let inbox = self.shared.store.open_inbox(client, limit)?;
        Ok(Box::new(ModelInbox::new(self.clone(), inbox)))
    }
}

impl Breaking for Network {
    fn break_hold(&self, order: &Break<'_>, limit: Duration) -> Result<BreakOutcome, Error> {
        Self::break_hold(self, order, limit)
    }

    fn broken(&self, claim: &Claim<'_>, limit: Duration) -> Result<Option<Broken>, Error> {
        time::step();
        let broken = self.shared.store.broken(claim, limit);
        time::step();
        broken
    }
}

impl Numbers for Network {
    fn extend_with_numbers(&self, claim: &Claim<'_>, limit: Duration) -> Result<ExtendOutcome, Error> {
        outcome!(self, Request::ExtendWithNumbers(*claim), limit, Extend)
    }
}
