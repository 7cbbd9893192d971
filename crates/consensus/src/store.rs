//! The operations of a lock on a store that votes.

use super::deadline::Deadline;
use super::kv::{Check, Committed, Entry, Kv, Transaction, Write};
use super::message;
use super::names::{self, Names};
use super::sessions::{Doubt, Session, Sessions, Tenure};
use super::sight::{Sight, Waiter};
use crate::sync::{Mutex, mutant};
use redis_dlock::processor::Claim;
use redis_dlock::{BackendFailure, Error};
use redis_dlock::{Clock, SystemClock};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// A store that votes, with the sessions of one process.
#[derive(Debug)]
pub(super) struct RaftStore {
    pub(super) kv: Arc<dyn Kv>,
    pub(super) names: Names,
    pub(super) sessions: Arc<Sessions>,
    /// The clients that have used it. Somebody may have written to their inboxes, also if they do not listen.
    pub(super) clients: Mutex<BTreeSet<String>>,
}

/// How a key is given to the first waiter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gift<'a> {
    /// The locker that holds it, and its session; `None` if nobody does.
    pub(super) from: Option<(&'a str, &'a str)>,
    /// What is known of the key.
    pub(super) sight: &'a Sight,
    /// Who is to be at the queue's end.
    pub(super) next: Option<(&'a Claim<'a>, &'a Session)>,
    /// Who asks, and so learns by the answer that it has the key.
    pub(super) asker: Option<&'a str>,
}

impl<'a> Gift<'a> {
    /// A key that nobody holds.
    pub(super) fn of_nobody(sight: &'a Sight) -> Self {
        Self { from: None, sight, next: None, asker: None }
    }

    /// A key that this locker holds with this session.
    pub(super) fn of(locker: &'a str, session: &'a str, sight: &'a Sight) -> Self {
        Self { from: Some((locker, session)), ..Self::of_nobody(sight) }
    }
}

/// What came of giving a key to the first waiter.
#[derive(Clone, Debug)]
pub(super) enum Given {
    /// The first waiter holds the key. This is what is known of it now.
    Done(Sight),
    /// The key has changed since it was looked at, or nobody waits.
    Changed,
    /// Nobody may hold the key for a while.
    Delayed,
}

impl Given {
    /// Returns what is known of a key that the first waiter holds now.
    pub(super) fn done(self) -> Option<Sight> {
        match self {
            Self::Done(sight) => Some(sight),
            Self::Changed | Self::Delayed => None,
        }
    }
}

/// A key that changes under our hands is looked at again, this often at once. Each time another process has taken it or given it away.
pub(super) const TRIES: u32 = 16;

/// Returns whether a request that failed so may have done something.
pub(super) fn is_open(error: &Error) -> bool {
    matches!(error, Error::Backend { failure: BackendFailure::Unknown, .. })
}

/// Repeats `step` until it has an answer: it has none when the key has changed between its look and its transaction.
pub(super) fn until_settled<T>(key: &str, mut step: impl FnMut() -> Result<Option<T>, Error>) -> Result<T, Error> {
    for _ in 0..TRIES {
        if let Some(answer) = step()? {
            return Ok(answer);
        }
    }
    let message = format!("the key {key:?} changed hands {TRIES} times while it was asked for");
    Err(Error::backend(BackendFailure::NotExecuted, message))
}

impl RaftStore {
    pub(super) fn new(kv: Arc<dyn Kv>, root: &str) -> Self {
        Self { kv, names: Names::new(root), sessions: Arc::default(), clients: Mutex::default() }
    }

    pub(super) fn read(&self, key: &str, entries: Vec<Entry>) -> Result<Sight, Error> {
        Sight::read(entries, key, &self.names)
    }

    /// Looks at a key.
    pub(super) fn look(&self, key: &str, deadline: Deadline) -> Result<Sight, Error> {
        let entries = self.kv.look(&self.names.of(key), deadline)?;
        self.read(key, entries)
    }

    /// Executes a transaction for these lockers. If its outcome is unknown, their sessions are never used again.
    pub(super) fn commit(
        &self,
        lockers: &[&str],
        transaction: &Transaction,
        deadline: Deadline,
    ) -> Result<Committed, Error> {
        let committed = self.kv.commit(transaction, deadline);
        if committed.as_ref().is_err_and(is_open) && !mutant!(DoubtsNothing) {
            lockers.iter().for_each(|locker| self.sessions.doubt(locker, Doubt::Gains));
        }
        committed
    }

    /// Returns what is known of a tenure. The session of one that another processor began stands in its entry.
    pub(super) fn tenure(&self, claim: &Claim<'_>, deadline: Deadline) -> Result<Option<Tenure>, Error> {
        if let Some(tenure) = self.sessions.of(claim.locker) {
            return Ok(Some(tenure));
        }
        let sight = self.look(claim.key, deadline)?;
        Ok(sight.session_of(claim.locker).map(|session| Tenure::of_another(session, claim.client, self.kv.life(claim))))
    }

    /// Returns the session of a locker that begins, and gives it one if it has none.
    pub(super) fn session_of(&self, claim: &Claim<'_>, deadline: Deadline) -> Result<Session, Error> {
        match self.sessions.of(claim.locker) {
            Some(tenure) => Ok(tenure.session),
            None => {
                self.note_client(claim.client);
                self.sessions.begin(&*self.kv, claim, deadline)
            }
        }
    }

    /// Remembers a client, to delete its inbox at the close.
    pub(super) fn note_client(&self, client: &str) {
        let mut clients = self.clients.lock();
        if !clients.contains(client) {
            clients.insert(client.to_owned());
        }
    }

    /// Renews the session of a locker, and looks at the key. There is no session if it has ended, and with it whatever it held.
    pub(super) fn renew(&self, claim: &Claim<'_>, deadline: Deadline) -> Result<(Option<Session>, Sight), Error> {
        until_settled(claim.key, || {
            let Some(tenure) = self.tenure(claim, deadline)? else {
                return Ok(Some((None, self.look(claim.key, deadline)?)));
            };
            let (sent_at, term) = (SystemClock.now(), self.kv.term());
            if !mutant!(RenewsNothing) && !self.lives(claim, &tenure.session.id, deadline)? {
                self.sessions.forget(claim.locker);
                return Ok(Some((None, self.look(claim.key, deadline)?)));
            }
            let sight = self.look(claim.key, deadline)?;
            // The look is by whoever leads now. If that is another server than before, the renewal may have been in vain.
            if self.kv.term() != term {
                return Ok(None);
            }
            self.sessions.note_renewed(claim.locker, sent_at);
            Ok(Some((Some(tenure.session), sight)))
        })
    }

    /// Renews a session of a locker. `false` is certain: nothing with this session takes effect any more.
    fn lives(&self, claim: &Claim<'_>, session: &str, deadline: Deadline) -> Result<bool, Error> {
        for _ in 0..TRIES {
            if self.kv.renew(session, deadline)? {
                return Ok(true);
            }
            if mutant!(BelievesRenewals) {
                return Ok(false);
            }
            // A server that has just begun to lead may not know the session yet. The entries are those of the majority: what the session
            // holds would have ended with it.
            if self.look(claim.key, deadline)?.session_of(claim.locker) != Some(session) {
                self.sessions.doubt(claim.locker, Doubt::Gains);
                self.kv.end_session(session, deadline)?;
                return Ok(false);
            }
        }
        Err(Error::backend(BackendFailure::Unknown, "the servers do not renew a session that has not ended"))
    }

    /// Makes sure that the session of a tenure lives for the whole lease of the next one from now on, because another locker goes on with it. Returns `false`
    /// if it has ended.
    pub(super) fn lives_for(
        &self,
        claim: &Claim<'_>,
        tenure: &Tenure,
        next: &Claim<'_>,
        deadline: Deadline,
    ) -> Result<bool, Error> {
        Ok(SystemClock.now() + self.kv.life(next).needed <= tenure.session.until
            || self.renew(claim, deadline)?.0.is_some())
    }

    /// Makes an error of one that came after something was done for a locker: its outcome is unknown, and its session is never used again.
    pub(super) fn left_open(&self, claim: &Claim<'_>, doubt: Doubt, error: &Error) -> Error {
        self.sessions.doubt(claim.locker, doubt);
        Error::backend(BackendFailure::Unknown, error.to_string())
    }

    /// The writes that give a key to the first waiter, and say so to it.
    fn giving(&self, key: &str, gift: &Gift<'_>, to: &Waiter) -> Transaction {
        let path = self.names.lock(key);
        let (session, value) = (to.session.clone(), names::from_now(&to.value));
        let (check, hold) = match gift.from {
            Some((_, from)) => (
                Check::HeldBy { path: path.clone(), session: from.to_owned() },
                Write::Pass { path, from: from.to_owned(), to: session.clone(), value },
            ),
            None => (gift.sight.is_free(path.clone()), Write::Hold { path, session: session.clone(), value }),
        };
        let mut writes = vec![hold, Write::Delete { path: to.path.clone() }];
        let others = gift.sight.waiting() - 1 + u64::from(gift.next.is_some());
        if let Some(client) = &to.party.client
            && gift.asker != Some(to.party.locker.as_str())
            && !mutant!(GivesUnsaid)
        {
            let value = message::granted(key, &to.party.locker, others);
            writes.push(Write::Say { path: self.names.inbox(client), session: session.clone(), value });
        }
        let still_waits = Check::HeldBy { path: to.path.clone(), session };
        let checks = if mutant!(GivesUnchecked) { vec![check] } else { vec![check, still_waits] };
        Transaction { checks, writes, look: self.names.of(key) }
    }

    /// Gives a key that this session holds, or that nobody holds, to the first waiter. With a next locker, that one goes to the queue's
    /// end in the same step. The asker is not told of what it is answered.
    pub(super) fn give(&self, key: &str, gift: &Gift<'_>, deadline: Deadline) -> Result<Given, Error> {
        let Some(head) = gift.sight.waiters.first() else { return Ok(Given::Changed) };
        let mut lockers: Vec<_> = gift.from.iter().map(|(locker, _)| *locker).chain(gift.asker).collect();
        let mut transaction = self.giving(key, gift, head);
        if let Some((claim, session)) = gift.next {
            transaction.writes.push(self.waiting(claim, session));
            lockers.push(claim.locker);
        }
        Ok(match self.commit(&lockers, &transaction, deadline)? {
            Committed::Done { entries, .. } => Given::Done(self.read(key, entries)?),
            Committed::Refused(_) | Committed::NoSession => Given::Changed,
            Committed::Delayed => Given::Delayed,
        })
    }

    /// The write that puts a locker into the queue.
    pub(super) fn waiting(&self, claim: &Claim<'_>, session: &Session) -> Write {
        let path = self.names.waiter(claim.key, claim.locker);
        Write::Hold { path, session: session.id.clone(), value: names::party(claim, None) }
    }

    /// Lets go of a key that this session may hold, where the end of a session that holds one would keep others out for a while. If this
    /// fails, they wait for that while.
    fn let_go(&self, key: &str, session: &Session, deadline: Deadline) {
        if !self.kv.keeps_shut(session.life) {
            return;
        }
        let path = self.names.lock(key);
        let checks = vec![Check::HeldBy { path: path.clone(), session: session.id.clone() }];
        let transaction = Transaction { checks, writes: vec![Write::Delete { path }], look: String::new() };
        let _ = self.kv.commit(&transaction, deadline.at_most(TELLING));
    }

    /// Ends a session and what it holds. Afterwards no request of the locker takes effect. Gives the key to the first waiter if it is free
    /// then.
    pub(super) fn destroy(&self, claim: &Claim<'_>, deadline: Deadline) -> Result<Sight, Error> {
        if let Some(tenure) = self.tenure(claim, deadline)? {
            if !mutant!(LeavesSessions) {
                self.let_go(claim.key, &tenure.session, deadline);
                self.kv.end_session(&tenure.session.id, deadline)?;
            }
            self.sessions.forget(claim.locker);
        }
        self.given_on(claim.key, deadline)
    }

    /// Gives a key that nobody holds to the first waiter, and returns what is known of the key then. If somebody waits and nobody holds it
    /// even then, nobody may hold it for a while.
    pub(super) fn given_on(&self, key: &str, deadline: Deadline) -> Result<Sight, Error> {
        until_settled(key, || {
            let sight = self.look(key, deadline)?;
            if sight.holder.is_some() || sight.waiters.is_empty() {
                return Ok(Some(sight));
            }
            Ok(match self.give(key, &Gift::of_nobody(&sight), deadline)? {
                Given::Done(sight) => Some(sight),
                Given::Changed => None,
                Given::Delayed => Some(sight),
            })
        })
    }

    /// Has the holder know that somebody waits, if this locker is the first to wait. Nobody depends on it: a holder also learns it when it
    /// extends its lease.
    pub(super) fn tell_holder(&self, key: &str, locker: &str, sight: &Sight, deadline: Deadline) {
        let holder = sight.holder.as_ref().map(|holder| &holder.party);
        let Some((client, holder)) = holder.and_then(|party| Some((party.client.as_ref()?, &party.locker))) else {
            return;
        };
        if let Some(first) = sight.waiters.first().filter(|waiter| waiter.party.locker == locker) {
            let (path, value) = (self.names.inbox(client), message::contended(key, holder, locker));
            let write = Write::Say { path, session: first.session.clone(), value };
            let transaction = Transaction { checks: Vec::new(), writes: vec![write], look: String::new() };
            let _ = self.kv.commit(&transaction, deadline.at_most(TELLING));
        }
    }
}

/// How long a request may take, at most, on which nobody depends: a waiter's message to the holder, or letting go of a key before the
/// session ends.
const TELLING: Duration = Duration::from_millis(500);
