//! The port of a store that votes.

use super::deadline::Deadline;
use super::inbox::RaftInbox;
use super::kv::{Transaction, Write};
use super::store::RaftStore;
use redis_dlock::Error;
use redis_dlock::processor::{
    AcquireOutcome, Claim, ExtendOutcome, Inbox, Inspection, LockProcessor, Numbers, PollOutcome, ProbeOutcome,
    ReleaseOutcome, Settling, Status, StoreLimits, WaitQueue,
};
use std::time::Duration;

impl LockProcessor for RaftStore {
    fn acquire(&self, claim: &Claim<'_>, limit: Duration) -> Result<AcquireOutcome, Error> {
        self.take(claim, false, Deadline::after(limit))
    }

    fn extend(&self, claim: &Claim<'_>, limit: Duration) -> Result<ExtendOutcome, Error> {
        self.prolong(claim, Deadline::after(limit))
    }

    fn release(&self, claim: &Claim<'_>, limit: Duration) -> Result<ReleaseOutcome, Error> {
        self.give_up(claim, None, Deadline::after(limit))
    }

    fn inspect(&self, key: &str, limit: Duration) -> Result<Inspection, Error> {
        let sight = self.look(key, Deadline::after(limit))?;
        let inspection = match sight.locker() {
            Some(locker) => Inspection::held_by(locker, None),
            None => Inspection::free(),
        };
        Ok(inspection.with_waiting(sight.waiting()))
    }

    fn poll(&self, claim: &Claim<'_>, limit: Duration) -> Result<PollOutcome, Error> {
        self.ask(claim, Deadline::after(limit))
    }

    fn probe(&self, claim: &Claim<'_>, limit: Duration) -> Result<ProbeOutcome, Error> {
        self.is_ours(claim, Deadline::after(limit))
    }

    fn limits(&self) -> StoreLimits {
        self.kv.limits()
    }

    fn status(&self) -> Status {
        Status::answering().with_has_answered(self.kv.has_answered())
    }

    fn queue(&self) -> Option<&dyn WaitQueue> {
        Some(self)
    }

    fn numbers(&self) -> Option<&dyn Numbers> {
        Some(self)
    }

    fn settling(&self) -> Option<&dyn Settling> {
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
    fn join(&self, claim: &Claim<'_>, limit: Duration) -> Result<AcquireOutcome, Error> {
        self.take(claim, true, Deadline::after(limit))
    }

    fn hand_over(&self, claim: &Claim<'_>, next: &Claim<'_>, limit: Duration) -> Result<ReleaseOutcome, Error> {
        self.give_up(claim, Some(next), Deadline::after(limit))
    }

    fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error> {
        self.note_client(client);
        let listening = self.kv.listen(&self.names.inbox(client), Deadline::after(limit))?;
        Ok(Box::new(RaftInbox::new(listening, self.sessions.clone())?))
    }
}

impl Numbers for RaftStore {
    fn extend_with_numbers(&self, claim: &Claim<'_>, limit: Duration) -> Result<ExtendOutcome, Error> {
        self.prolong_with_numbers(claim, Deadline::after(limit))
    }
}

impl Settling for RaftStore {
    fn settle(&self, claim: &Claim<'_>, limit: Duration) -> Result<(), Error> {
        self.end_for_certain(claim, Deadline::after(limit))
    }
}
