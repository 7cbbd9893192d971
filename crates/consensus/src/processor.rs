//! The port of a store that votes.

use super::deadline::Deadline;
use super::inbox::RaftInbox;
use super::kv::{Transaction, Write};
use super::store::RaftStore;
use redis_dlock::Error;
use redis_dlock::processor::{
    Inbox, Inspection, Limit, LockProcessor, Outcome, Request, StoreLimits, WaitQueue, one_by_one,
};
use std::time::Duration;

impl LockProcessor for RaftStore {
    fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        one_by_one(requests, limit, |request, limit| self.execute(request, Deadline::after(limit.time())))
    }

    fn limits(&self) -> StoreLimits {
        let mut limits = self.kv.limits();
        (limits.numbers, limits.settles) = (true, true);
        limits
    }

    fn has_answered(&self) -> bool {
        self.kv.has_answered()
    }

    fn queue(&self) -> Option<&dyn WaitQueue> {
        Some(self)
    }

    fn close(&self) {
        let deadline = Deadline::after(CLOSING);
        let clients = std::mem::take(&mut *self.clients.lock());
        if !clients.is_empty() {
            let writes = clients.iter().map(|client| Write::Delete { path: self.names.inbox(client) }).collect();
            // Whatever is left is one entry.
            let _ = self.kv.commit(&Transaction { writes, ..Transaction::default() }, deadline);
        }
        for session in self.sessions.take_all_idle() {
            // Whatever is left ends by itself.
            if self.kv.end_session(&session.id, deadline).is_err() {
                break;
            }
        }
        self.kv.close();
    }
}

/// How long a store takes, at most, to end the sessions that nobody uses when it is closed.
const CLOSING: Duration = Duration::from_secs(1);

impl WaitQueue for RaftStore {
    fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error> {
        self.note_client(client);
        let listening = self.kv.listen(&self.names.inbox(client), Deadline::after(limit))?;
        Ok(Box::new(RaftInbox::new(listening, self.sessions.clone())?))
    }
}

impl RaftStore {
    fn execute(&self, request: &Request<'_>, deadline: Deadline) -> Result<Outcome, Error> {
        match request {
            Request::Acquire(claim) => self.take(claim, false, deadline).map(Into::into),
            Request::Join(claim) => self.take(claim, true, deadline).map(Into::into),
            Request::Poll(claim) => self.ask(claim, deadline).map(Into::into),
            Request::Extend(claim) => self.prolong(claim, deadline).map(Into::into),
            Request::ExtendWithNumbers(claim) => self.prolong_with_numbers(claim, deadline).map(Into::into),
            Request::Release(claim) => self.give_up(claim, None, deadline).map(Into::into),
            Request::HandOver(claim, next) => self.give_up(claim, Some(next), deadline).map(Into::into),
            Request::Probe(claim) => self.is_ours(claim, deadline).map(Into::into),
            Request::Inspect { key } => self.inspect(key, deadline).map(Into::into),
            Request::Settle(claim) => self.end_for_certain(claim, deadline).map(Into::into),
            other => Err(other.unsupported()),
        }
    }

    fn inspect(&self, key: &str, deadline: Deadline) -> Result<Inspection, Error> {
        let sight = self.look(key, deadline)?;
        let inspection = match sight.locker() {
            Some(locker) => Inspection::held_by(locker, None),
            None => Inspection::free(),
        };
        Ok(inspection.with_waiting(sight.waiting()))
    }
}
