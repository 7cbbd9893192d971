//! The port of a consensus store: requests in, outcomes out. Each request is a value of its own, which has the store, the claim and the limit.
//!
//! A batch of extensions and probes is executed [together](super::together). The requests of any other batch are executed one by one, and share its
//! limit.

use super::acquire::Acquiring;
use super::breaking::{Breaking, broken};
use super::deadline::Deadline;
use super::extend::Extend;
use super::inbox::ConsensusInbox;
use super::kv::{Transaction, Write};
use super::release::Release;
use super::shared::Sharing;
use super::store::ConsensusStore;
use super::timing::{CLOSING, OPENING};
use super::together::{KeptTenure, Together};
use redis_dlock::Error;
use redis_dlock::port::{
    Claim, Directory, Inbox, Limit, LockProcessor, Outcome, Request, StoreLimits, WaitQueue, one_by_one,
};
use std::time::Duration;

/// What a client asks of a store.
impl LockProcessor for ConsensusStore {
    fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        match KeptTenure::all(&self.sessions, requests) {
            Some(kept) => Together { store: self, kept: &kept, deadline: Deadline::after(limit.time()) }.run(),
            None => one_by_one(requests, limit, |request, limit| execute(self, request, Deadline::after(limit.time()))),
        }
    }

    fn between_rounds(&self, limit: Duration) {
        Sharing { store: self, deadline: Deadline::after(limit), begins: Deadline::after(limit / 2) }.share();
    }

    fn limits(&self) -> StoreLimits {
        let mut limits = self.kv.limits();
        (limits.numbers, limits.settles, limits.breaks) = (true, true, true);
        limits.asks_together = true;
        limits
    }

    fn has_answered(&self) -> bool {
        self.kv.has_answered()
    }

    fn queue(&self) -> Option<&dyn WaitQueue> {
        Some(self)
    }

    fn directory(&self) -> Option<&dyn Directory> {
        Some(self)
    }

    /// Deletes the inboxes of the clients, and ends the sessions that nobody uses. All holds and waits have ended before, so only idle sessions are
    /// left. They end by themselves if the servers do not answer now.
    fn close(&self) {
        let deadline = Deadline::after(CLOSING);
        let clients = std::mem::take(&mut *self.clients.lock());
        if !clients.is_empty() {
            let writes = clients.iter().map(|client| Write::Delete { path: self.names.inbox(client) }).collect();
            // Whatever is left is one entry.
            let _ = self.kv.commit(&Transaction { writes, ..Transaction::default() }, deadline);
        }
        self.end_idle(deadline);
        self.presence.end(&*self.kv, None, deadline);
        self.kv.close();
    }
}

impl WaitQueue for ConsensusStore {
    /// A waiter counts as live while its session lives, with or without an inbox. So the inbox is only for messages, and a client without one polls.
    /// It opens within [`OPENING`], whatever limit the client sets.
    fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error> {
        self.note_client(client);
        let listening = self.kv.listen(&self.names.inbox(client), Deadline::after(limit.min(OPENING)))?;
        Ok(Box::new(ConsensusInbox::new(listening, self.confirming())?))
    }
}

/// Executes one request. Returns an error for an unknown request, because the port may get new ones.
fn execute<'a>(store: &'a ConsensusStore, request: &'a Request<'a>, deadline: Deadline) -> Result<Outcome, Error> {
    let acquire = |claim: &'a Claim<'a>, waits| Acquiring { store, claim, waits, deadline };
    let extend = |claim: &'a Claim<'a>| Extend { store, claim, deadline };
    let release = |claim: &'a Claim<'a>| Release { store, claim, deadline };
    match request {
        Request::Acquire(claim) => acquire(claim, false).take().map(Into::into),
        Request::Join(claim) => acquire(claim, true).take().map(Into::into),
        Request::Poll(claim) => acquire(claim, true).poll().map(Into::into),
        Request::Extend(claim) => extend(claim).extend().map(Into::into),
        Request::ExtendWithNumbers(claim) => extend(claim).extend_with_numbers().map(Into::into),
        Request::Release(claim) => release(claim).give_up(None).map(Into::into),
        Request::HandOver(claim, next) => release(claim).give_up(Some(next)).map(Into::into),
        Request::DelayRelease(claim, delay) => release(claim).delay(delay).map(Into::into),
        Request::Probe(claim) => extend(claim).probe().map(Into::into),
        Request::Inspect { key } => store.look(key, deadline).map(|snapshot| snapshot.inspection().into()),
        Request::Break(order) => Breaking { store, order, deadline }.break_hold().map(Into::into),
        Request::Broken { key, locker } => broken(store, key, locker, deadline).map(Into::into),
        Request::Settle(claim) => release(claim).settle().map(Into::into),
        other => Err(other.unsupported()),
    }
}
