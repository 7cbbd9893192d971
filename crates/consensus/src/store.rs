//! What a store knows and does for all of its operations. [`Acquire`](super::acquire::Acquire), [`Extend`](super::extend::Extend) and
//! [`Release`](super::release::Release) are the operations.
//!
//! # How this crate is made
//!
//! | file | holds |
//! |---|---|
//! | `processor.rs` | the port: requests in, outcomes out |
//! | `acquire.rs`, `extend.rs`, `release.rs`, `breaking.rs` | the operations, each a value with the store, the claim and the limit |
//! | `together.rs` | the extensions and probes of many tenures by few requests |
//! | `directory.rs`, `presence.rs` | what people are told; the sessions of a process that serve no tenure |
//! | `store.rs`, `gift.rs` | what several of them do: give a key on, write it again, end a session; the table of transactions |
//! | `confirm.rs` | what a waiter does with a key that it is given, and what becomes of one that has died |
//! | `sessions.rs`, `shared.rs` | the sessions of a process: each tenure has one, or long holds share one |
//! | `snapshot.rs` | who holds a key and who waits, at one index |
//! | `inbox.rs`, `message.rs` | the inbox of a client, and what it is told |
//! | `names.rs` | where things are in the store |
//! | `kv.rs` | what all this needs of a client of the servers |
//! | `http.rs`, `tls.rs`, `socket.rs`, `stream.rs`, `json.rs`, `url.rs`, `resolver.rs`, `deadline.rs` | what such clients are made of |
//! | `settings.rs`, `public.rs`, `server.rs` | what the public types have in common; one server, for tools |
//! | `timing.rs`, `log.rs`, `sync.rs` | lengths of time, warnings, mutexes |
//! | `etcd/`, `consul/` | the clients of etcd and Consul |
//! | `../tests/white_box/` | tests: how the requests of several clients fall between one another |
//!
//! One protocol runs on both stores, through the trait `Kv`: sessions, entries that a session holds, transactions. A tenure has a session. Its
//! lock is an entry that the session holds, and so goes with it. A waiter is an entry, too; the order of their creation is the queue. Every
//! hand-over is one transaction: the lock passes from the holder's session to that of the first waiter, the waiter's entry goes, and a message to
//! its client is written. The waiter then confirms the lock, in another one.
//!
//! A request without an answer may be executed later. It names its session, and a store executes nothing for a session that has ended. So the end
//! of the session is the end of the request, and nothing has to be waited for: [`sessions`](super::sessions).
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
//! is that of the offer, because one transaction writes both. An entry that says the same as before is no change for Consul. So a lock that is
//! rewritten says the index before it.
//!
//! Whichever transaction is the first to use a session that was idle has a check and a write more, of its [mark](super::sessions), and is still one
//! request and one write to the log.

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
    /// What serves no tenure.
    pub(super) presence: Presence,
    /// The clients that have used it. Somebody may have written to their inboxes, also if they do not listen.
    pub(super) clients: Mutex<BTreeSet<String>>,
}

/// What came of writing the lock's entry again.
pub(super) enum Rewritten {
    /// It was written at this index. This is what is known of the key now.
    Done(u64, Snapshot),
    /// The locker does not hold it, or somebody waits.
    Changed,
    /// Nobody may hold the entry again for a while. A server that was restarted begins the delays of its log again, also of a key that somebody holds since.
    Delayed,
}

/// How many idle sessions are ended together. Each has a check and two operations on its mark, and Consul takes 64 of them in a transaction.
const TOGETHER: usize = 20;

/// Returns whether a request that failed so may have done something.
pub(super) fn is_open(error: &Error) -> bool {
    matches!(error, Error::Backend { failure: BackendFailure::Unknown, .. })
}

/// Repeats `step` until it has an answer: it has none when the key has changed between its look and its transaction.
///
/// Each time another process has taken the key or given it away, so all of them together get on.
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
    /// A store on these servers, which begins without sessions.
    pub(super) fn new(kv: Arc<dyn Kv>, root: &str) -> Self {
        Self {
            sessions: Arc::new(Sessions::on(&*kv)),
            kv,
            names: Names::new(root),
            presence: Presence::default(),
            clients: Mutex::default(),
        }
    }

    /// Returns what confirms offers. An inbox has it instead of the store.
    pub(super) fn confirming(&self) -> Confirming {
        let (kv, names, sessions) = (Arc::clone(&self.kv), self.names.clone(), Arc::clone(&self.sessions));
        Confirming { kv, names, sessions }
    }

    /// Confirms an offer to the locker of this session. Returns what is known of the key then. `None` if nobody may hold it for a while, or if the
    /// locker must not: it is doomed, and its next poll ends its session.
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

    /// Reads the entries of a key, which an answer has.
    pub(super) fn read(&self, key: &str, entries: Vec<Entry>) -> Result<Snapshot, Error> {
        Snapshot::read(entries, key, &self.names)
    }

    /// Looks at a key.
    pub(super) fn look(&self, key: &str, deadline: Deadline) -> Result<Snapshot, Error> {
        let entries = self.kv.look(&self.names.of(key), deadline)?;
        self.read(key, entries)
    }

    /// Reads one entry, as the majority has it.
    pub(super) fn entry(&self, path: &str, deadline: Deadline) -> Result<Option<Entry>, Error> {
        Ok(self.kv.look(path, deadline)?.into_iter().find(|entry| entry.path == path))
    }

    /// Executes a transaction for these lockers. If its outcome is unknown, their sessions are never used again: it may be executed at any later
    /// time, for as long as the sessions live that it names. A transaction that the store has refused was executed and did nothing, so it leaves no
    /// doubt.
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

    /// Looks why a transaction was refused that takes up the session of a locker. If the session is the reason, it is forgotten, and the next
    /// attempt has another one. Returns `true` if a twin has it: a mark that has gone may have been deleted by a person, one that has changed
    /// has another owner.
    pub(super) fn is_with_twin(&self, locker: &str, deadline: Deadline) -> Result<bool, Error> {
        let Some(KnownTenure { session, .. }) = self.sessions.of(locker) else { return Ok(false) };
        let Mark::Left(index) = session.mark else { return Ok(false) };
        let found = self.entry(&self.names.mark(&session.id), deadline)?.map(|entry| entry.changed);
        if found != index {
            self.sessions.forget(locker);
        }
        Ok(found != index && found.is_some())
    }

    /// Ends the sessions that nobody uses. One that a twin has taken up since is left alone: it may hold something now.
    pub(super) fn end_idle(&self, deadline: Deadline) {
        for some in self.sessions.take_all_idle().chunks(TOGETHER) {
            let mut transaction = Transaction::default();
            some.iter().for_each(|session| take_up(&self.names, &mut transaction, session, ""));
            // Whatever is left ends by itself.
            let Ok(Committed::Done { .. }) = self.kv.commit(&transaction, deadline) else { return };
            if some.iter().any(|session| self.kv.end_session(&session.id, deadline).is_err()) {
                return;
            }
        }
    }

    /// Returns what is known of a tenure. The session of one that another processor began stands in its entry: a client may release with one
    /// processor what it has taken with another. Such a session goes on to the end of its life, and back into no pool of ours, because nobody here
    /// knows whether its requests were answered.
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

    /// Renews the session of a locker, and looks at the key. There is no session if it has ended, and with it whatever it held. Both sessions of a
    /// hold are renewed of which nobody knows whether it was [moved](super::shared), and that with which it is seen is returned.
    ///
    /// A leader of etcd that was replaced may renew a lease in vain until it hears of it
    /// ([issue 15247](https://github.com/etcd-io/etcd/issues/15247)). So a renewal counts only if its answer has the same term as the look that
    /// follows it, which the leader of now answers.
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

    /// Renews a session of a locker. `false` is certain: no request that names this session takes effect any more, but for those by which others
    /// [share](super::shared) it.
    ///
    /// A server that has just begun to lead may not know a session yet, because it has not applied all of the log. Consul then answers a renewal
    /// with "not found", and ends nothing when it is asked to. So a renewal that finds no session is checked with the entries of the majority:
    /// what the session holds would have ended with it. Otherwise a waiter would be taken for gone, leave its entry behind, and be given the lock
    /// (shown by the restart of all servers in `tests/faults`).
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

    /// Makes an error of one that came after something was done for a locker: its outcome is unknown, and its session is never used again.
    ///
    /// The error itself may say that nothing was done, and be right about the last request alone. A client that believed it would forget the
    /// locker, and with it a hold or a place in the queue that nobody ever gives back.
    pub(super) fn left_open(&self, claim: &Claim<'_>, doubt: Doubt, error: &Error) -> Error {
        self.sessions.doubt(claim.locker, doubt);
        Error::backend(BackendFailure::Unknown, error.to_string())
    }

    /// Gives a key that this session holds, or that nobody holds, to the first waiter.
    ///
    /// It is one transaction, so there is no moment in which the key is free, and none in which the waiter has it and still waits. The message is
    /// a part of it: whoever is given a key has been told so, or asks because it has missed a message. The index of the transaction is that of the
    /// [offer](super::confirm), in the message as in the entry.
    pub(super) fn give(&self, key: &str, gift: &Gift<'_>, deadline: Deadline) -> Result<Given, Error> {
        let Some(head) = gift.snapshot.waiters.first() else { return Ok(Given::Changed) };
        let transaction = gift.transaction(key, head, &self.names);
        Ok(match self.commit(&gift.lockers(), &transaction, deadline)? {
            Committed::Done { entries, .. } => {
                // It was executed, whatever else a person has written there.
                let read = self.read(key, entries);
                let doubt = |_: &_| gift.lockers().iter().for_each(|locker| self.sessions.doubt(locker, Doubt::Gains));
                Given::Done(read.inspect_err(doubt)?)
            }
            Committed::Refused(_) | Committed::NoSession => Given::Changed,
            Committed::Delayed => Given::Delayed,
        })
    }

    /// Gives a key that nobody holds to the first waiter, and returns what is known of the key then. If somebody waits and nobody holds it
    /// even then, nobody may hold it for a while.
    ///
    /// A key is free while somebody waits when its holder's session has ended, when a person has deleted its entry, or when a release did not see
    /// a waiter that came at the same time. Nobody is told of any of these. So whoever comes along and sees it gives the key on: each poll of a
    /// waiter, each attempt, each end of a session.
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

    /// Writes the lock's entry again in the name of a locker of the same client: the same one, for a new number, or the next one, which goes on
    /// with the same session unless it needs one that lives longer, or others [share](super::shared) that one. `holder` is the entry as it was seen.
    ///
    /// The next locker is only given the key if nobody waits. A transaction without an answer may still give it the key: then both lockers are in
    /// doubt, and the next one is doomed, because the end of the first one's session would end it, too.
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

    /// Ends a session and what it holds; a [shared](super::shared) one goes on. Afterwards no request of the locker takes effect. Gives the key to the
    /// first waiter if it is free then: the end of a session frees a key without looking at the queue.
    ///
    /// If the end has no answer, the tenure stays known, and whoever asks for its end again ends the same session again.
    pub(super) fn destroy(&self, claim: &Claim<'_>, deadline: Deadline) -> Result<Snapshot, Error> {
        if let Some(tenure) = self.tenure(claim, deadline)? {
            if !tenure.session.is_shared {
                self.let_go(claim.key, &tenure.session, deadline);
                self.kv.end_session(&tenure.session.id, deadline)?;
            }
            // After the end of its own session the hold is not moved any more. Until then another thread may have sent that.
            if tenure.is_moved() || self.sessions.of(claim.locker).is_some_and(|tenure| tenure.is_moved()) {
                self.free_moved(claim, deadline)?;
            }
            self.sessions.forget(claim.locker);
        }
        self.given_on(claim.key, deadline)
    }

    /// Deletes the lock's entry if a [shared](super::shared) session holds it for this locker. Afterwards no request about that hold takes effect: each
    /// checks an index that the entry has no more.
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

    /// Deletes the lock's entry if this session holds it, where the end of a session that holds one would keep others out for a while.
    ///
    /// Consul lets nobody lock an entry for a while after a session with a lock-delay has ended while it held it, whoever ends the session: 15 s
    /// for `consul lock` and Go's `api.Lock`; the tenure's lock-delay for ours, or a lease on an agent's node. So a client that ends one because
    /// a request had no answer lets go of the key first, if it can. If this fails, others wait for that while: an attempt is told "busy",
    /// a waiter takes or keeps its place, and the first one asks every second.
    fn let_go(&self, key: &str, session: &Session, deadline: Deadline) {
        if !self.kv.keeps_shut(session.life) {
            return;
        }
        let path = self.names.lock(key);
        let checks = vec![Check::HeldBy { path: path.clone(), session: session.id.clone() }];
        let transaction = Transaction { checks, writes: vec![Write::Delete { path }], look: String::new() };
        let _ = self.kv.commit(&transaction, deadline.at_most(TELLING));
    }

    /// Has the holder know that somebody waits, so that it gives the key back between its own threads, or from its lingering, before its lease
    /// ends. It is told once, by the first in the queue. Nobody depends on it: a holder also learns it when it
    /// extends its lease.
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
