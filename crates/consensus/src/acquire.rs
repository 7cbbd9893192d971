//! How a locker gets a key: acquire, join, poll.
//!
//! Consul cannot check in a transaction that nobody waits, but a transaction can look. So a client may acquire the lock past the queue. It sees
//! the queue in the answer, and hands the lock to the first waiter immediately. If that hand-over has no answer, it may take the lock away later. So
//! the tenure is [doomed](super::sessions): it never begins to hold.
//!
//! Each locker is sent by one acquire alone. So a locker that is in the store before its own acquire belongs to a twin: a copy of this process that
//! runs elsewhere and makes the same lockers. The acquire then writes nothing, because its entry would replace the twin's. The answer names the
//! locker as the holder, and the client draws another identity. Both copies may have the same session, so the entry does not say which of them holds
//! the key.

use super::deadline::Deadline;
use super::gift::{Gift, Given, take_up, waiting};
use super::kv::{Check, Committed, Entry, Transaction, Write};
use super::names;
use super::sessions::{Doubt, Session};
use super::snapshot::{HoldingEntry, Snapshot};
use super::store::{ConsensusStore, is_open, until_settled};
use super::timing::{DELAYED, patience};
use redis_dlock::port::{AcquireOutcome, Busy, Claim, Grant, PollOutcome};
use redis_dlock::{Clock, Error, SystemClock};
use std::time::Duration;

/// The result of an attempt to hold a key.
enum Attempt {
    Settled(Option<AcquireOutcome>),
    /// Somebody holds the key or waits for it.
    Behind(Snapshot),
    /// Nobody may hold the key for a while.
    Delayed,
}

/// What became of a locker that stood in the queue.
enum QueueLook {
    Holds(Grant),
    Waits(Busy),
    /// It is not in the queue any more: its session has ended, or somebody has deleted its entry.
    Gone,
}

/// A locker that wants a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acquiring<'a> {
    pub(super) store: &'a ConsensusStore,
    pub(super) claim: &'a Claim<'a>,
    /// Whether it takes a place at the queue's end if the key is busy.
    pub(super) waits: bool,
    pub(super) deadline: Deadline,
}

impl Acquiring<'_> {
    /// Takes a free key, or else a place in the queue.
    ///
    /// A locker that is told "busy" and does not wait needs its session no more, nor does one for which nothing was done: the session serves the next
    /// tenure. A locker whose outcome is unknown keeps its session, and the client settles the locker later.
    pub(super) fn take(&self) -> Result<AcquireOutcome, Error> {
        let (claim, sessions) = (self.claim, &self.store.sessions);
        // If the locker is known, a twin in this process uses the store, too. Its session goes on.
        let is_known = sessions.of(claim.locker).is_some();
        let outcome = until_settled(claim.key, || {
            let session = self.store.session_of(claim, self.deadline)?;
            self.try_take(&session)
        });
        match &outcome {
            _ if is_known => {}
            Ok(AcquireOutcome::Busy(busy)) if !self.waits || busy.holder.as_deref() == Some(claim.locker) => {
                sessions.end(claim.locker);
            }
            // The client knows that nothing was done for the locker, so it does not ask about it again.
            Err(error) if !is_open(error) => sessions.end(claim.locker),
            _ => {}
        }
        outcome
    }

    /// One attempt. `None` if the key has changed between a look and a transaction, or if the session has ended.
    ///
    /// It has two rounds, because Consul keeps the entry of a lock that another program has released. Such an entry is free but exists, so the first
    /// check fails. The second check names the index at which the entry was free.
    fn try_take(&self, session: &Session) -> Result<Option<AcquireOutcome>, Error> {
        let path = self.store.names.lock(self.claim.key);
        let mut check = Check::Free { path: path.clone() };
        for is_last in [false, true] {
            let snapshot = match self.hold_if(check, session)? {
                Attempt::Settled(outcome) => return Ok(outcome),
                Attempt::Behind(snapshot) => snapshot,
                Attempt::Delayed if self.waits => return self.enter(session),
                Attempt::Delayed => return Ok(Some(AcquireOutcome::Busy(Busy::free(None)))),
            };
            if snapshot.names(self.claim.locker) {
                return Ok(Some(AcquireOutcome::Busy(self.twin())));
            }
            if snapshot.holder.is_some() || !snapshot.waiters.is_empty() {
                return self.behind_others(session, snapshot);
            }
            if is_last || snapshot.idle.is_none() {
                return self.refused();
            }
            // Another program has left the entry.
            check = snapshot.is_free(path.clone());
        }
        Ok(None)
    }

    /// The answer to a locker that another process has as well.
    fn twin(&self) -> Busy {
        Busy::new(self.claim.locker.to_owned(), None)
    }

    /// Takes the key if a check holds. Otherwise returns what is known of the key.
    ///
    /// etcd's refusal contains the entries. Consul's does not, so this looks at the key. If the key has become free meanwhile, the attempt is
    /// repeated.
    fn hold_if(&self, check: Check, session: &Session) -> Result<Attempt, Error> {
        let (store, claim, deadline) = (self.store, self.claim, self.deadline);
        let (path, prefix) = (store.names.lock(claim.key), store.names.waiters(claim.key));
        let hold = Write::Hold { path, session: session.id.clone(), value: names::party(claim, None) };
        let mut transaction = Transaction {
            checks: vec![check, Check::Nothing { prefix }],
            writes: vec![hold],
            look: store.names.of(claim.key),
        };
        take_up(&store.names, &mut transaction, session, claim.locker);
        let snapshot = match store.commit(&[claim.locker], &transaction, deadline)? {
            Committed::Done { index, entries } => {
                let snapshot = self.read_after(Doubt::Loses, entries)?;
                if snapshot.waiters.is_empty() {
                    return Ok(Attempt::Settled(Some(AcquireOutcome::Acquired(Grant::new(index, 0)))));
                }
                // The store could not check whether somebody waits, and has given us the key. It belongs to the first waiter.
                match store.give(claim.key, &Gift::of(claim.locker, &session.id, &snapshot), deadline) {
                    Ok(Given::Done(snapshot)) => snapshot,
                    Ok(Given::Changed | Given::Delayed) => return self.taken_back().map(Attempt::Settled),
                    // If the request is executed later, it takes the key from the locker.
                    Err(error) => return Err(store.left_open(claim, Doubt::Loses, &error)),
                }
            }
            Committed::Refused(Some(entries)) => store.read(claim.key, entries)?,
            Committed::Refused(None) => store.look(claim.key, deadline)?,
            Committed::NoSession => {
                store.sessions.forget_with_idle(claim.locker);
                return Ok(Attempt::Settled(None));
            }
            Committed::Delayed => return Ok(Attempt::Delayed),
        };
        Ok(Attempt::Behind(snapshot))
    }

    /// The outcome of an attempt that was refused though nobody holds the key or waits: a twin may have the session. Otherwise `None`: the attempt is
    /// repeated.
    fn refused(&self) -> Result<Option<AcquireOutcome>, Error> {
        let is_with_twin = self.store.is_with_twin(self.claim.locker, self.deadline)?;
        Ok(is_with_twin.then(|| AcquireOutcome::Busy(self.twin())))
    }

    /// Reads the entries after something was done for the locker.
    fn read_after(&self, doubt: Doubt, entries: Vec<Entry>) -> Result<Snapshot, Error> {
        let read = self.store.read(self.claim.key, entries);
        read.inspect_err(|_| self.store.sessions.doubt(self.claim.locker, doubt))
    }

    /// The outcome of an attempt at a key that is not free, or for which others wait. An attempt that does not wait helps those who do: if nobody
    /// holds the key, it gives the key to the first waiter.
    fn behind_others(&self, session: &Session, snapshot: Snapshot) -> Result<Option<AcquireOutcome>, Error> {
        if self.waits {
            return self.enter(session);
        }
        let snapshot = match snapshot.holder {
            Some(_) => snapshot,
            None => self.store.given_on(self.claim.key, self.deadline)?,
        };
        let is_delayed = snapshot.holder.is_none() && !snapshot.waiters.is_empty();
        let busy = snapshot.holder.map(|holder| holder.busy(None)).or_else(|| is_delayed.then(|| Busy::free(None)));
        Ok(busy.map(AcquireOutcome::Busy))
    }

    /// Gives back a key that was taken past the queue, when the first waiter has gone meanwhile. The end of the session gives the key back for
    /// certain. The next attempt begins with another session, behind all that wait by then.
    fn taken_back(&self) -> Result<Option<AcquireOutcome>, Error> {
        let destroyed = self.store.destroy(self.claim, self.deadline);
        destroyed.map_err(|error| self.store.left_open(self.claim, Doubt::Loses, &error))?;
        Ok(None)
    }

    /// Takes a place at the queue's end: a new entry stands behind all existing ones.
    ///
    /// The lock may have been freed since the refusal. The process that freed it saw no waiter, so it gave the key to nobody. Therefore the answer
    /// shows the key as it is after our entry. A waiter that finds the key free there gives it to the first waiter, which may be itself.
    fn enter(&self, session: &Session) -> Result<Option<AcquireOutcome>, Error> {
        let (store, claim) = (self.store, self.claim);
        // A twin's place is left alone.
        let checks = vec![Check::Free { path: store.names.waiter(claim.key, claim.locker) }];
        let writes = vec![waiting(&store.names, claim, session)];
        let mut transaction = Transaction { checks, writes, look: store.names.of(claim.key) };
        take_up(&store.names, &mut transaction, session, claim.locker);
        let snapshot = match store.commit(&[claim.locker], &transaction, self.deadline)? {
            Committed::Done { entries, .. } => self.read_after(Doubt::Gains, entries)?,
            Committed::Refused(_) => return self.refused(),
            Committed::Delayed => return Ok(None),
            Committed::NoSession => {
                store.sessions.forget_with_idle(claim.locker);
                return Ok(None);
            }
        };
        // From here on the locker is in the queue, and the answer must say so.
        match self.resolved(session, snapshot) {
            Ok(QueueLook::Holds(grant)) => Ok(Some(AcquireOutcome::Acquired(grant))),
            Ok(QueueLook::Waits(busy)) => Ok(Some(AcquireOutcome::Busy(busy))),
            Ok(QueueLook::Gone) => {
                store.sessions.forget(claim.locker);
                Ok(None)
            }
            Err(error) => Err(store.left_open(claim, Doubt::Gains, &error)),
        }
    }

    /// Returns how much patience is left with a holder that was only [offered](super::confirm) the key. `None` if the holder has confirmed.
    fn patience(&self, holder: &HoldingEntry) -> Option<Duration> {
        let (claim, sessions) = (self.claim, &self.store.sessions);
        let other = Claim::new(claim.key, "", &holder.party.locker, holder.party.lease.unwrap_or_default());
        // The lock-delay is a part of the lease, but does not make anybody ask less often.
        let [own, other] = [claim, &other].map(|claim| patience(claim.lease.saturating_sub(claim.lock_delay())));
        let left = || sessions.patience(claim.locker, holder.index, own.max(other), SystemClock.now());
        holder.party.is_offered.then(left)
    }

    /// Returns what became of the locker, which has this session. Confirms an offer to it. Gives the key to the first waiter if it is free, or if
    /// nobody confirms the offer.
    ///
    /// A locker holds if the lock's entry names it *and* is held by its session. Its name alone might be left from a tenure whose session has ended:
    /// somebody may have written the entry again by hand. The fencing number is the index at which the entry was written. The writer is the locker
    /// that gave the key on, the locker itself, or another waiter that found the key free.
    fn resolved(&self, session: &Session, mut snapshot: Snapshot) -> Result<QueueLook, Error> {
        let (store, claim, deadline) = (self.store, self.claim, self.deadline);
        until_settled(claim.key, || {
            if let Some(offer) = snapshot.offer_to(&session.id, claim) {
                let Some(confirmed) = store.confirmed(&offer, &session.id, deadline)? else {
                    return Ok(Some(QueueLook::Waits(Busy::free(Some(DELAYED)))));
                };
                snapshot = confirmed;
            }
            if let Some(holder) = snapshot.is_held_by(&session.id, claim.locker) {
                // It may hold the key and wait as well, if an administrator gave it the key. Its release has to see that.
                match snapshot.place(claim.locker) {
                    None => store.sessions.note_first(claim.locker, snapshot.waiters.first()),
                    Some(_) => store.sessions.note_wanted(claim.locker, true),
                }
                return Ok(Some(QueueLook::Holds(Grant::new(holder.number(), snapshot.waiting()))));
            }
            let Some(place) = snapshot.place(claim.locker) else { return Ok(Some(QueueLook::Gone)) };
            let gift = match &snapshot.holder {
                None => Gift::of_nobody(&snapshot),
                Some(holder) => match self.patience(holder) {
                    Some(Duration::ZERO) => Gift::taken_from(holder, &snapshot),
                    left => {
                        store.tell_holder(claim.key, claim.locker, &snapshot, deadline);
                        let left = left.map(|left| left.saturating_sub(store.kv.limits().tick));
                        return Ok(Some(QueueLook::Waits(holder.busy(left))));
                    }
                },
            };
            snapshot = match store.give(claim.key, &gift.asked_by(claim.locker), deadline)? {
                Given::Done(snapshot) => snapshot,
                Given::Changed => store.look(claim.key, deadline)?,
                // The first waiter asks again soon, and tells the others by taking the key.
                Given::Delayed => {
                    return Ok(Some(QueueLook::Waits(Busy::free((place == 0).then_some(DELAYED)))));
                }
            };
            Ok(None)
        })
    }

    /// Returns what became of the locker, and renews its session.
    ///
    /// The renewal comes first. A locker that is told that it holds, or waits, has a session that certainly lives from then on.
    pub(super) fn poll(&self) -> Result<PollOutcome, Error> {
        let (store, claim, deadline) = (self.store, self.claim, self.deadline);
        let doubt = store.sessions.of(claim.locker).map_or(Doubt::None, |tenure| tenure.doubt);
        if doubt == Doubt::Loses {
            store.destroy(claim, deadline)?;
            return Ok(PollOutcome::Gone);
        }
        let (Some(session), snapshot) = store.renew(claim, deadline)? else { return Ok(PollOutcome::Gone) };
        Ok(match self.resolved(&session, snapshot)? {
            QueueLook::Holds(grant) => PollOutcome::Acquired(grant),
            QueueLook::Waits(busy) => PollOutcome::Waiting(busy),
            QueueLook::Gone => {
                // A request without an answer may still be on its way. After the end of its session it does nothing.
                if doubt != Doubt::None {
                    if !session.is_shared {
                        store.kv.end_session(&session.id, deadline)?;
                    }
                    store.sessions.forget(claim.locker);
                }
                store.sessions.end(claim.locker);
                PollOutcome::Gone
            }
        })
    }
}
