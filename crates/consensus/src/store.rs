//! The state and the common steps of all operations. [`Acquiring`](super::acquire::Acquiring), [`Extend`](super::extend::Extend) and
//! [`Release`](super::release::Release) are operations.
//!
//! # How this crate is made
//!
//! | file | holds |
//! |---|---|
//! | `processor.rs` | the port: requests in, outcomes out |
//! | `acquire.rs`, `extend.rs`, `release.rs`, `breaking.rs` | the operations, each a value with the store, the claim and the limit |
//! | `together.rs` | the extensions and probes of many tenures by few requests |
//! | `directory.rs`, `presence.rs` | questions of people, and words between clients; the sessions that serve no tenure |
//! | `store.rs`, `gift.rs` | steps that several operations share: give a key on, write it again, end a session; the table of transactions |
//! | `confirm.rs` | how a waiter confirms an offered key, and how a dead one is passed over |
//! | `sessions.rs`, `shared.rs` | the sessions of a process: each tenure has one, or long holds share one |
//! | `snapshot.rs` | who holds a key and who waits, at one index |
//! | `inbox.rs`, `message.rs` | the inbox of a client, and its messages |
//! | `names.rs` | the paths and contents of entries |
//! | `kv.rs` | the trait `Kv`: what all this needs of a client of the servers |
//! | `http.rs`, `tls.rs`, `socket.rs`, `stream.rs`, `json.rs`, `url.rs`, `resolver.rs`, `deadline.rs` | what such clients are made of |
//! | `settings.rs`, `public.rs`, `server.rs` | what the public types have in common; one server, for tools |
//! | `timing.rs`, `log.rs`, `sync.rs` | lengths of time, warnings, mutexes |
//! | `etcd/`, `consul/` | the clients of etcd and Consul |
//! | `../tests/white_box/` | tests: how the requests of several clients fall between one another |
//!
//! One protocol runs on both stores, through the trait `Kv`: sessions, entries that a session holds, transactions. A tenure has a session. Its lock
//! is an entry that the session holds, and goes with the session. A waiter is an entry, too, and the order of their creation is the queue. Every
//! hand-over is one transaction: it passes the lock from the holder's session to the first waiter's, deletes the waiter's entry, and writes a message
//! to the waiter's client. The waiter then confirms the lock by another transaction.
//!
//! A request without an answer may be executed later. It names its session, and a store executes nothing for a session that has ended. So the end of
//! the session is the end of the request, and nobody has to wait for a lease: see [`sessions`](super::sessions).
//!
//! # Transactions
//!
//! | operation | transaction | writes |
//! |---|---|---|
//! | acquire | if there is no lock, and nobody waits: write the lock for the own session | 1 |
//! | join | the same; if it is busy: write the own entry among the waiters, look, and tell the holder if it is the first | 1; 2 to wait, 3 for the first |
//! | release | if the own session holds the lock, and nobody waits: delete it | 1 |
//! | release, hand-over to a waiter | if the own session holds the lock and the waiter's session its entry: pass the lock to that session, delete the entry, write a message; with a next locker, write its entry among the waiters | 1 |
//! | confirm | if the lock's entry is the one that was offered: write it again | 1 |
//! | delayed release | if the own session holds the lock: pass it to a session that nobody renews, with a mark in place of the locker | 1 |
//! | hand-over without waiters | if the own session holds the lock: write it again for the next locker | 1 |
//! | extend, poll | renew the session, then look at the key. The leader renews by itself, without a write | 0 |
//! | extend with numbers | write the lock again: the index is the number | 1 |
//! | [move](super::shared) | if the lock's entries of up to twenty holds are those that were seen: pass these locks to a session that the holds share | 1 |
//! | settle | end the session; free the key, if others share the session | 1 |
//! | break | if the lock's entry is the one that was seen: pass the lock to the first waiter, or delete it; write who broke it, and a message to the holder | 2 |
//!
//! The number of a tenure is the index of the lock's last write: etcd's revision, Consul's Raft index. The index of the message of a hand-over
//! is that of the offer, because one transaction writes both. An entry with the same text as before is no change for Consul. So a lock that is
//! written again contains its earlier index.
//!
//! The first transaction that uses an idle session has one more check and one more write, of the [mark](super::sessions). It is still one request and
//! one write to the log.

use super::confirm::Confirming;
use super::deadline::Deadline;
use super::gift::{Gift, Given, take_up};
use super::kv::{Check, Committed, Entry, Kv, Transaction, Write};
use super::message;
use super::names::{self, Names};
use super::presence::Presence;
use super::sessions::{Doubt, KnownTenure, Mark, Session, Sessions};
use super::snapshot::{HoldingEntry, Offer, Snapshot};
use super::timing::{TELLING, TRIES};
use crate::sync::Mutex;
use redis_dlock::port::Claim;
use redis_dlock::{BackendFailure, Clock, Error, SystemClock};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A consensus store, with the sessions of one process.
#[derive(Debug)]
pub(super) struct ConsensusStore {
    pub(super) kv: Arc<dyn Kv>,
    pub(super) names: Names,
    pub(super) sessions: Arc<Sessions>,
    /// The sessions that serve no tenure.
    pub(super) presence: Presence,
    /// The clients that have used the store. Somebody may have written to their inboxes, even if they do not listen.
    pub(super) clients: Mutex<BTreeSet<String>>,
}

/// The result of writing the lock's entry again.
pub(super) enum Rewritten {
    /// The entry was written at this index, and this is the key's state.
    Done(u64, Snapshot),
    /// The locker does not hold it, or somebody waits.
    Changed,
    /// Nobody may hold the entry again for a while. A restarted server begins the delays of its log again, even for a key that somebody holds by now.
    Delayed,
}

/// How many idle sessions are ended together. Each has a check and two operations on its mark, and Consul takes 64 of them in a transaction.
const TOGETHER: usize = 20;

/// Returns whether a request that failed with this error may have been executed.
pub(super) fn is_open(error: &Error) -> bool {
    matches!(error, Error::Backend { failure: BackendFailure::Unknown, .. })
}

/// Repeats `step` until it has an answer: it has none when the key has changed between its look and its transaction.
///
/// Each repetition means that another process has taken the key or given it away, so the processes together make progress.
pub(super) fn until_settled<T>(key: &str, mut step: impl FnMut() -> Result<Option<T>, Error>) -> Result<T, Error> {
    for _ in 0..TRIES {
        if let Some(answer) = step()? {
            return Ok(answer);
        }
    }
    let message = format!("the key {key:?} changed hands {TRIES} times while it was asked for");
    Err(Error::backend(BackendFailure::NotExecuted, message))
}

impl ConsensusStore {
    /// Makes a store on these servers. It begins without sessions.
    pub(super) fn new(kv: Arc<dyn Kv>, root: &str) -> Self {
        Self {
            sessions: Arc::new(Sessions::on(&*kv)),
            kv,
            names: Names::new(root),
            presence: Presence::default(),
            clients: Mutex::default(),
        }
    }

    /// Returns the part that confirms offers. An inbox has it instead of the store.
    pub(super) fn confirming(&self) -> Confirming {
        let (kv, names, sessions) = (Arc::clone(&self.kv), self.names.clone(), Arc::clone(&self.sessions));
        Confirming { kv, names, sessions }
    }

    /// Confirms an offer to the locker of this session. Returns the key's state then. `None` if nobody may hold the key for a while, or if the locker
    /// is doomed: its next poll ends its session.
    pub(super) fn confirmed(
        &self,
        offer: &Offer,
        session: &str,
        deadline: Deadline,
    ) -> Result<Option<Snapshot>, Error> {
        if self.sessions.is_doomed(&offer.locker) {
            return Ok(None);
        }
        let look = self.names.of(&offer.key);
        let entries = match self.confirming().confirm([(offer, session)].into_iter(), &look, deadline)? {
            Committed::Done { entries, .. } => {
                self.sessions.note_confirmed(&offer.locker, offer.index);
                entries
            }
            Committed::Refused(Some(entries)) => entries,
            Committed::Refused(None) | Committed::NoSession => return self.look(&offer.key, deadline).map(Some),
            Committed::Delayed => return Ok(None),
        };
        self.read(&offer.key, entries).map(Some)
    }

    /// Reads the entries of a key in an answer.
    pub(super) fn read(&self, key: &str, entries: Vec<Entry>) -> Result<Snapshot, Error> {
        Snapshot::read(entries, key, &self.names)
    }

    /// Looks at a key.
    pub(super) fn look(&self, key: &str, deadline: Deadline) -> Result<Snapshot, Error> {
        let entries = self.kv.look(&self.names.of(key), deadline)?;
        self.read(key, entries)
    }

    /// Reads one entry as a majority has it.
    pub(super) fn entry(&self, path: &str, deadline: Deadline) -> Result<Option<Entry>, Error> {
        Ok(self.kv.look(path, deadline)?.into_iter().find(|entry| entry.path == path))
    }

    /// Executes a transaction for these lockers. If its outcome is unknown, their sessions are never used again: the transaction may be executed as
    /// long as the sessions that it names live. A transaction that the store has refused did nothing, so it leaves no doubt.
    pub(super) fn commit(
        &self,
        lockers: &[&str],
        transaction: &Transaction,
        deadline: Deadline,
    ) -> Result<Committed, Error> {
        let committed = self.kv.commit(transaction, deadline);
        if committed.as_ref().is_err_and(is_open) {
            lockers.iter().for_each(|locker| self.sessions.doubt(locker, Doubt::Gains));
        }
        if let Ok(Committed::Done { index, .. }) = &committed {
            lockers.iter().for_each(|locker| self.sessions.note_taken_up(locker, *index));
        }
        committed
    }

    /// Looks why a transaction that takes up a locker's session was refused. If the session is the reason, this forgets it, and the next attempt has
    /// another one. Returns `true` if a twin has the session: its mark has changed. A person may have deleted a mark that has gone.
    pub(super) fn is_with_twin(&self, locker: &str, deadline: Deadline) -> Result<bool, Error> {
        let Some(KnownTenure { session, .. }) = self.sessions.of(locker) else { return Ok(false) };
        let Mark::Left(index) = session.mark else { return Ok(false) };
        let found = self.entry(&self.names.mark(&session.id), deadline)?.map(|entry| entry.changed);
        if found != index {
            self.sessions.forget(locker);
        }
        Ok(found != index && found.is_some())
    }

    /// Ends the sessions that nobody uses. Leaves a session that a twin has taken up since, because it may hold something now.
    pub(super) fn end_idle(&self, deadline: Deadline) {
        for some in self.sessions.take_all_idle().chunks(TOGETHER) {
            let mut transaction = Transaction::default();
            some.iter().for_each(|session| take_up(&self.names, &mut transaction, session, ""));
            // The sessions that are left end by themselves.
            let Ok(Committed::Done { .. }) = self.kv.commit(&transaction, deadline) else { return };
            if some.iter().any(|session| self.kv.end_session(&session.id, deadline).is_err()) {
                return;
            }
        }
    }

    /// Returns what is known of a tenure. If another processor began it, this reads its session from its entry: a client may take a lock with one
    /// processor and release it with another. Such a session never serves another tenure here, because this processor does not know whether all of
    /// its requests were answered.
    pub(super) fn tenure(&self, claim: &Claim<'_>, deadline: Deadline) -> Result<Option<KnownTenure>, Error> {
        if let Some(tenure) = self.sessions.of(claim.locker) {
            return Ok(Some(tenure));
        }
        let snapshot = self.look(claim.key, deadline)?;
        let is_moved = snapshot.moved(claim.locker).is_some();
        let of = |session| KnownTenure::of_another(session, is_moved, claim.client, self.kv.life(claim));
        Ok(snapshot.session_of(claim.locker).map(of))
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

    /// Renews the session of a locker, and looks at the key. Returns no session if it has ended, and with it all that it held. If it is undecided
    /// whether a hold was [moved](super::shared), this renews both of its sessions, and returns the one that the look shows.
    ///
    /// A leader of etcd that was replaced may renew leases in vain until it hears that it was ([issue
    /// 15247](https://github.com/etcd-io/etcd/issues/15247)). So a renewal counts only if its answer has the same term as the look that follows it,
    /// because the present leader answers the look.
    pub(super) fn renew(&self, claim: &Claim<'_>, deadline: Deadline) -> Result<(Option<Session>, Snapshot), Error> {
        until_settled(claim.key, || {
            let Some(tenure) = self.tenure(claim, deadline)? else {
                return Ok(Some((None, self.look(claim.key, deadline)?)));
            };
            let (sent_at, term) = (SystemClock.now(), self.kv.term());
            let mut renewed = Vec::new();
            for session in tenure.sessions() {
                if self.lives(claim, session, deadline)? {
                    renewed.push(session);
                }
            }
            let snapshot = self.look(claim.key, deadline)?;
            if self.kv.term() != term {
                return Ok(None);
            }
            let is_renewed = |session: &str| renewed.contains(&session);
            let counts = self.sessions.note_renewed(claim, &tenure, is_renewed, &snapshot, sent_at);
            let session = tenure.seen(&snapshot, claim.locker);
            if counts == Some(false)
                && tenure.moving.is_some()
                && snapshot.is_held_by(&session.id, claim.locker).is_some()
            {
                let message = "it is not known yet which session holds the key";
                return Err(Error::backend(BackendFailure::Unknown, message));
            }
            Ok(counts.map(|counts| (counts.then(|| session.clone()), snapshot)))
        })
    }

    /// Renews a session of a locker. `false` is certain: no request that names this session takes effect any more, except those of others that
    /// [share](super::shared) it.
    ///
    /// A server that has just begun to lead may not know a session yet, because it has not applied all of the log. Consul then answers a renewal with
    /// "not found", and does not end such a session on request. So after a renewal that finds no session, this reads the entries from a majority: the
    /// session's entries would have ended with it. Otherwise a waiter would be taken for gone, leave its entry behind, and be given the lock (shown
    /// by the restart of all servers in `tests/faults`).
    fn lives(&self, claim: &Claim<'_>, session: &str, deadline: Deadline) -> Result<bool, Error> {
        for _ in 0..TRIES {
            if self.kv.renew(session, deadline)? {
                return Ok(true);
            }
            let snapshot = self.look(claim.key, deadline)?;
            if snapshot.session_of(claim.locker) != Some(session) {
                // The next locker of the client may go on with it.
                if !snapshot.shows(session) && self.sessions.begin_end(claim.locker, session) {
                    self.kv.end_session(session, deadline)?;
                    self.sessions.forget(claim.locker);
                }
                return Ok(false);
            }
        }
        Err(Error::backend(BackendFailure::Unknown, "the servers do not renew a session that has not ended"))
    }

    /// Makes sure that the session of a tenure lives for the whole lease of the next one from now on, because another locker goes on with it.
    /// Returns `false` if it has ended.
    pub(super) fn lives_for(
        &self,
        claim: &Claim<'_>,
        tenure: &KnownTenure,
        next: &Claim<'_>,
        deadline: Deadline,
    ) -> Result<bool, Error> {
        Ok(SystemClock.now() + self.kv.life(next).needed <= tenure.session.until
            || self.renew(claim, deadline)?.0.is_some())
    }

    /// Converts an error that came after something was done for a locker: its outcome is unknown, and its session is never used again.
    ///
    /// The error may say that nothing was done, which is true only of the last request. A client that relied on it would forget the locker, and
    /// nobody would ever give back its hold or its place in the queue.
    pub(super) fn left_open(&self, claim: &Claim<'_>, doubt: Doubt, error: &Error) -> Error {
        self.sessions.doubt(claim.locker, doubt);
        // The text of the new error says again that the store failed.
        let words = match error {
            Error::Backend { message, .. } => message.clone(),
            other => other.to_string(),
        };
        Error::backend(BackendFailure::Unknown, words)
    }

    /// Gives a key that this session holds, or that nobody holds, to the first waiter.
    ///
    /// It is one transaction, so the key is free at no moment, and at no moment the waiter has it and still waits. The message is a part of the
    /// transaction: a waiter that is given a key is told so, or asks because it has missed a message. The index of the transaction is that of the
    /// [offer](super::confirm), in the message as in the entry.
    pub(super) fn give(&self, key: &str, gift: &Gift<'_>, deadline: Deadline) -> Result<Given, Error> {
        let Some(head) = gift.snapshot.waiters.first() else { return Ok(Given::Changed) };
        let transaction = gift.transaction(key, head, &self.names);
        Ok(match self.commit(&gift.lockers(), &transaction, deadline)? {
            Committed::Done { entries, .. } => {
                // The transaction was executed, whatever a person has written among the entries.
                let read = self.read(key, entries);
                let doubt = |_: &_| gift.lockers().iter().for_each(|locker| self.sessions.doubt(locker, Doubt::Gains));
                Given::Done(read.inspect_err(doubt)?)
            }
            Committed::Refused(_) | Committed::NoSession => Given::Changed,
            Committed::Delayed => Given::Delayed,
        })
    }

    /// Gives a key that nobody holds to the first waiter, and returns the key's state then. If that state has waiters and no holder, nobody may hold
    /// the key for a while.
    ///
    /// A key is free while somebody waits when its holder's session has ended, when a person has deleted its entry, or when a release did not see
    /// a waiter that came at the same time. Nobody is told of any of these. So each poll of a waiter, each attempt and each end of a session gives
    /// such a key on.
    pub(super) fn given_on(&self, key: &str, deadline: Deadline) -> Result<Snapshot, Error> {
        until_settled(key, || {
            let snapshot = self.look(key, deadline)?;
            if snapshot.holder.is_some() || snapshot.waiters.is_empty() {
                return Ok(Some(snapshot));
            }
            Ok(match self.give(key, &Gift::of_nobody(&snapshot), deadline)? {
                Given::Done(snapshot) => Some(snapshot),
                Given::Changed => None,
                Given::Delayed => Some(snapshot),
            })
        })
    }

    /// Writes the lock's entry again for a locker of the same client: for the same locker, which gets a new number, or for the next one. The next
    /// locker goes on with the same session, unless it needs one that lives longer, or others [share](super::shared) that session. `holder` is the
    /// entry as it was seen.
    ///
    /// The next locker is only given the key if nobody waits. A transaction without an answer may still give it the key. Both lockers are then in
    /// doubt, and the next one is doomed, because the end of the first one's session would end its hold, too.
    pub(super) fn rewrite(
        &self,
        claim: &Claim<'_>,
        next: &Claim<'_>,
        session: &Session,
        holder: Option<&HoldingEntry>,
        deadline: Deadline,
    ) -> Result<Rewritten, Error> {
        let path = self.names.lock(claim.key);
        let is_passed = claim.locker != next.locker;
        let mut value = names::party(next, holder.filter(|_| !is_passed).map(|holder| holder.index));
        let moved = holder.filter(|holder| holder.party.is_moved);
        let from = moved.and_then(|moved| moved.session.clone()).unwrap_or_else(|| session.id.clone());
        let mut checks = vec![match moved {
            Some(moved) => moved.holds(path.clone()),
            None => Check::HeldBy { path: path.clone(), session: from.clone() },
        }];
        if is_passed {
            checks.push(Check::Nothing { prefix: self.names.waiters(claim.key) });
        } else if moved.is_some() {
            value = names::moved(&value, None).unwrap_or(value);
        }
        let has_own_life = moved.is_some() || self.kv.life(next) != session.life;
        let own = (is_passed && has_own_life).then(|| self.session_of(next, deadline)).transpose()?;
        let write = match &own {
            Some(session) => Write::Pass { path, from, to: session.id.clone(), value },
            None => Write::Hold { path, session: from, value },
        };
        let mut transaction = Transaction { checks, writes: vec![write], look: self.names.of(claim.key) };
        if let Some(session) = own {
            take_up(&self.names, &mut transaction, &session, next.locker);
        }
        let committed = self.commit(&[claim.locker, next.locker], &transaction, deadline);
        if is_passed && !has_own_life && committed.as_ref().is_err_and(is_open) {
            self.sessions.doubt_pass(claim.locker, next.locker);
        }
        let (index, entries) = match committed? {
            Committed::Done { index, entries } => (index, entries),
            Committed::Delayed => return Ok(Rewritten::Delayed),
            Committed::Refused(_) | Committed::NoSession => return Ok(Rewritten::Changed),
        };
        if is_passed && !has_own_life {
            self.sessions.pass(claim.locker, next.locker);
        }
        Ok(Rewritten::Done(index, self.read(claim.key, entries)?))
    }

    /// Ends a locker's session and all that it holds. A [shared](super::shared) session goes on. Afterwards no request of the locker takes effect.
    /// Gives the key to the first waiter if the key is free then: the end of a session frees a key without a look at the queue.
    ///
    /// If the end has no answer, the tenure stays known, and a repeated call ends the same session again.
    pub(super) fn destroy(&self, claim: &Claim<'_>, deadline: Deadline) -> Result<Snapshot, Error> {
        if let Some(tenure) = self.tenure(claim, deadline)? {
            if !tenure.session.is_shared {
                self.let_go(claim.key, &tenure.session, deadline);
                self.kv.end_session(&tenure.session.id, deadline)?;
            }
            // After the end of its own session the hold is not moved any more. Until then another thread may have sent a move.
            if tenure.is_moved() || self.sessions.of(claim.locker).is_some_and(|tenure| tenure.is_moved()) {
                self.free_moved(claim, deadline)?;
            }
            self.sessions.forget(claim.locker);
        }
        self.given_on(claim.key, deadline)
    }

    /// Deletes the lock's entry if a [shared](super::shared) session holds it for this locker. Afterwards no request about that hold takes effect:
    /// each checks an index that the entry has no longer.
    fn free_moved(&self, claim: &Claim<'_>, deadline: Deadline) -> Result<(), Error> {
        until_settled(claim.key, || {
            let snapshot = self.look(claim.key, deadline)?;
            let Some(holder) = snapshot.moved(claim.locker) else { return Ok(Some(())) };
            let path = self.names.lock(claim.key);
            let (checks, writes) = (vec![holder.holds(path.clone())], vec![Write::Delete { path }]);
            let committed = self.kv.commit(&Transaction { checks, writes, look: String::new() }, deadline)?;
            Ok(matches!(committed, Committed::Done { .. }).then_some(()))
        })
    }

    /// Deletes the lock's entry if this session holds it, on a store where the end of such a session keeps others out for a while.
    ///
    /// Consul lets nobody lock an entry for a while after a session with a lock-delay has ended while it held it, whoever ends the session: 15 s
    /// for `consul lock` and Go's `api.Lock`; the tenure's lock-delay for ours, or a lease on an agent's node. So a client that ends a session
    /// because a request had no answer frees the key first, if it can. If this fails, others wait for the lock-delay: an attempt is told "busy", a
    /// waiter takes or keeps its place, and the first waiter asks every second.
    fn let_go(&self, key: &str, session: &Session, deadline: Deadline) {
        if !self.kv.keeps_shut(session.life) {
            return;
        }
        let path = self.names.lock(key);
        let checks = vec![Check::HeldBy { path: path.clone(), session: session.id.clone() }];
        let transaction = Transaction { checks, writes: vec![Write::Delete { path }], look: String::new() };
        let _ = self.kv.commit(&transaction, deadline.at_most(TELLING));
    }

    /// Tells the holder that somebody waits, so that it gives the key back between its own threads, or while it lingers, before its lease ends. Only
    /// the first in the queue tells it, each time it asks. The message may be lost: a holder also sees the waiters when it extends its lease.
    pub(super) fn tell_holder(&self, key: &str, locker: &str, snapshot: &Snapshot, deadline: Deadline) {
        let holder = snapshot.holder.as_ref().map(|holder| &holder.party);
        let Some((client, holder)) = holder.and_then(|party| Some((party.client.as_ref()?, &party.locker))) else {
            return;
        };
        if let Some(first) = snapshot.waiters.first().filter(|waiter| waiter.party.locker == locker) {
            let (path, value) = (self.names.inbox(client), message::contended(key, holder, first));
            let write = Write::Say { path, session: first.session.clone(), value };
            let transaction = Transaction { checks: Vec::new(), writes: vec![write], look: String::new() };
            let _ = self.kv.commit(&transaction, deadline.at_most(TELLING));
        }
    }
}
