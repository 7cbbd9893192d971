//! The store of the model: [`Network`] as a processor, with the embedded store behind it.

use super::inbox::ModelInbox;
use super::network::Network;
use super::time;
use crate::error::{BackendFailure, Error};
use crate::port::{
    AcquireOutcome, Claim, Inbox, Limit, LockProcessor, Operations, Outcome, Posting, ReleaseDone, ReleaseOutcome,
    Request, StoreLimits, WaitQueue,
};
use shuttle::rand::{Rng, thread_rng};
use std::time::{Duration, Instant};

impl LockProcessor for Network {
    fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        // What the clients' threads send together takes the way of the scripts.
        let is_call = matches!(limit, Limit::Call(_));
        let run = |request: &Request<'_>| match request {
            Request::Join(claim) if is_call => self.join(claim, limit.time()),
            Request::Inspect { .. } => self.shared.store.run_one(*request, limit),
            Request::Break(order) => self.break_hold(order, limit.time()).map(Into::into),
            Request::Broken { .. } => self.look_for_break(*request, limit),
            request => self.call(request, limit.time()),
        };
        requests.iter().map(run).collect()
    }

    fn keeps_waiting(&self, _key: &str) -> bool {
        self.shared.seems_silent && thread_rng().gen_bool(0.5)
    }

    fn is_expected_soon(&self, _key: &str, _since: Instant) -> bool {
        thread_rng().gen_bool(0.5)
    }

    fn limits(&self) -> StoreLimits {
        let (command, tick) = (self.shared.lease / 4, Duration::from_millis(1));
        let extends_heard_grants = self.shared.asks_replicas;
        StoreLimits { command, tick, extends_heard_grants, ..self.shared.store.limits() }
    }

    fn queue(&self) -> Option<&dyn WaitQueue> {
        Some(self)
    }

    fn posting(&self) -> Option<&dyn Posting> {
        self.shared.posts.then_some(self)
    }

    fn close(&self) {
        self.end();
    }
}

impl Posting for Network {
    fn post_release(&self, claim: &Claim<'_>, _: Duration, done: ReleaseDone) -> bool {
        done(self.call(&Request::Release(*claim), Duration::ZERO).and_then(ReleaseOutcome::try_from));
        false
    }

    fn keeps_back(&self) -> bool {
        true
    }

    fn collect(&self) -> bool {
        false
    }
}

impl WaitQueue for Network {
    fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error> {
        time::step();
        if self.strikes(|faults| &mut faults.breaks) {
            return Err(Error::backend(BackendFailure::NotExecuted, "refused"));
        }
        let inbox = self.shared.store.open_inbox(client, limit)?;
        Ok(Box::new(ModelInbox::new(self.clone(), inbox)))
    }
}

impl Network {
    fn join(&self, claim: &Claim<'_>, limit: Duration) -> Result<Outcome, Error> {
        if thread_rng().gen_ratio(2, 3) {
            return self.call(&Request::Join(*claim), limit);
        }
        // Acts like a store that first checks only the key.
        let busy = match self.call(&Request::Acquire(*claim), limit)?.try_into()? {
            AcquireOutcome::Busy(busy) => busy,
            other => return Ok(other.into()),
        };
        if thread_rng().gen_bool(0.5) {
            return Ok(AcquireOutcome::Unqueued { busy, under_way: false }.into());
        }
        match self.call(&Request::Join(*claim), limit) {
            Err(Error::Backend { failure, .. }) => {
                Ok(AcquireOutcome::Unqueued { busy, under_way: failure == BackendFailure::Unknown }.into())
            }
            answer => answer,
        }
    }

    fn look_for_break(&self, request: Request<'_>, limit: Limit) -> Result<Outcome, Error> {
        time::step();
        let broken = self.shared.store.run_one(request, limit);
        time::step();
        broken
    }
}
