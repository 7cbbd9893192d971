//! How a locker gets a key: acquire, join, poll.

use super::deadline::Deadline;
use super::kv::{Check, Committed, Entry, Transaction, Write};
use super::names;
use super::sessions::{Doubt, Session};
use super::sight::Sight;
use super::store::{Gift, Given, RaftStore, is_open, until_settled};
use crate::sync::mutant;
use redis_dlock::Error;
use redis_dlock::processor::{AcquireOutcome, Busy, Claim, Grant, PollOutcome};
use std::time::Duration;

/// How soon the first waiter asks again for a key in its lock-delay. The store does not tell how long that lasts.
const DELAYED: Duration = Duration::from_secs(1);

/// What came of an attempt to hold a key.
enum Attempt {
    Settled(Option<AcquireOutcome>),
    /// Somebody holds the key or waits for it.
    Behind(Sight),
    /// Nobody may hold the key for a while.
    Delayed,
}

impl RaftStore {
    /// Takes a free key, or else, with `waits`, a place at the queue's end.
    pub(super) fn take(&self, claim: &Claim<'_>, waits: bool, deadline: Deadline) -> Result<AcquireOutcome, Error> {
        let outcome = until_settled(claim.key, || {
            let session = self.session_of(claim, deadline)?;
            self.try_take(claim, &session, waits, deadline)
        });
        match &outcome {
            Ok(AcquireOutcome::Busy(_)) if !waits => self.sessions.end(claim.locker),
            // Whoever knows that nothing was done for the locker does not ask about it again.
            Err(error) if !is_open(error) => self.sessions.end(claim.locker),
            _ => {}
        }
        outcome
    }

    fn try_take(
        &self,
        claim: &Claim<'_>,
        session: &Session,
        waits: bool,
        deadline: Deadline,
    ) -> Result<Option<AcquireOutcome>, Error> {
        let mut check = Check::Free { path: self.names.lock(claim.key) };
        for is_last in [false, true] {
            let sight = match self.hold_if(check, claim, session, deadline)? {
                Attempt::Settled(outcome) => return Ok(outcome),
                Attempt::Behind(sight) => sight,
                Attempt::Delayed if waits => return self.enter(claim, session, deadline),
                Attempt::Delayed => return Ok(Some(AcquireOutcome::Busy(Busy::free(None)))),
            };
            if !is_last && sight.idle.is_some() && sight.waiters.is_empty() {
                // The entry that another program has left.
                check = sight.is_free(self.names.lock(claim.key));
                continue;
            }
            return self.behind_others(claim, session, sight, waits, deadline);
        }
        Ok(None)
    }

    /// Takes the key if a check holds. Otherwise returns what is known of the key.
    fn hold_if(
        &self,
        check: Check,
        claim: &Claim<'_>,
        session: &Session,
        deadline: Deadline,
    ) -> Result<Attempt, Error> {
        let (path, prefix) = (self.names.lock(claim.key), self.names.waiters(claim.key));
        let hold = Write::Hold { path, session: session.id.clone(), value: names::party(claim, None) };
        let transaction = Transaction {
            checks: vec![check, Check::Nothing { prefix }],
            writes: vec![hold],
            look: self.names.of(claim.key),
        };
        let sight = match self.commit(&[claim.locker], &transaction, deadline)? {
            Committed::Done { index, entries } => {
                let sight = self.read_after(claim, Doubt::Loses, entries)?;
                if sight.waiters.is_empty() {
                    return Ok(Attempt::Settled(Some(AcquireOutcome::Acquired(Grant::new(index, 0)))));
                }
                // A store that cannot check whether somebody waits has given us the key. It is the first waiter's.
                match self.give(claim.key, &Gift::of(claim.locker, &session.id, &sight), deadline) {
                    Ok(Given::Done(sight)) => sight,
                    Ok(Given::Changed | Given::Delayed) => {
                        return self.taken_back(claim, deadline).map(Attempt::Settled);
                    }
                    // If it is executed later, it takes the key from the locker.
                    Err(error) => return Err(self.left_open(claim, Doubt::Loses, &error)),
                }
            }
            Committed::Refused(Some(entries)) => self.read(claim.key, entries)?,
            Committed::Refused(None) => self.look(claim.key, deadline)?,
            Committed::NoSession => {
                self.sessions.forget_with_idle(claim.locker);
                return Ok(Attempt::Settled(None));
            }
            Committed::Delayed => return Ok(Attempt::Delayed),
        };
        Ok(Attempt::Behind(sight))
    }

    /// Reads the entries after something was done for a locker.
    fn read_after(&self, claim: &Claim<'_>, doubt: Doubt, entries: Vec<Entry>) -> Result<Sight, Error> {
        self.read(claim.key, entries).inspect_err(|_| self.sessions.doubt(claim.locker, doubt))
    }

    /// What comes of an attempt at a key that is not free, or for which others wait.
    fn behind_others(
        &self,
        claim: &Claim<'_>,
        session: &Session,
        sight: Sight,
        waits: bool,
        deadline: Deadline,
    ) -> Result<Option<AcquireOutcome>, Error> {
        if !waits {
            let sight = if sight.holder.is_none() { self.given_on(claim.key, deadline)? } else { sight };
            let is_delayed = sight.holder.is_none() && !sight.waiters.is_empty();
            let busy = sight.holder.map(|holder| holder.busy()).or_else(|| is_delayed.then(|| Busy::free(None)));
            return Ok(busy.map(AcquireOutcome::Busy));
        }
        self.enter(claim, session, deadline)
    }

    /// Gives back a key that was taken over those who wait, when the first of them has gone meanwhile.
    fn taken_back(&self, claim: &Claim<'_>, deadline: Deadline) -> Result<Option<AcquireOutcome>, Error> {
        self.destroy(claim, deadline).map_err(|error| self.left_open(claim, Doubt::Loses, &error))?;
        Ok(None)
    }

    /// Takes a place at the queue's end.
    fn enter(&self, claim: &Claim<'_>, session: &Session, deadline: Deadline) -> Result<Option<AcquireOutcome>, Error> {
        let transaction = Transaction {
            checks: Vec::new(),
            writes: vec![self.waiting(claim, session)],
            look: self.names.of(claim.key),
        };
        let sight = match self.commit(&[claim.locker], &transaction, deadline)? {
            Committed::Done { entries, .. } => self.read_after(claim, Doubt::Gains, entries)?,
            Committed::Refused(_) | Committed::Delayed => return Ok(None),
            Committed::NoSession => {
                self.sessions.forget_with_idle(claim.locker);
                return Ok(None);
            }
        };
        // From here on the locker is in the queue, and the answer must say so.
        let outcome = self.resolved(claim, session, sight, deadline);
        match outcome {
            Ok(PollOutcome::Acquired(grant)) => Ok(Some(AcquireOutcome::Acquired(grant))),
            Ok(PollOutcome::Waiting(busy)) => Ok(Some(AcquireOutcome::Busy(busy))),
            Ok(_) => {
                self.sessions.forget(claim.locker);
                Ok(None)
            }
            Err(error) => Err(self.left_open(claim, Doubt::Gains, &error)),
        }
    }

    /// Returns what became of a locker that has this session. Gives a free key to the first waiter.
    fn resolved(
        &self,
        claim: &Claim<'_>,
        session: &Session,
        mut sight: Sight,
        deadline: Deadline,
    ) -> Result<PollOutcome, Error> {
        until_settled(claim.key, || {
            if let Some(holder) = sight.is_held_by(&session.id, claim.locker) {
                self.sessions.note_wanted(claim.locker, sight.waiting() > 0);
                return Ok(Some(PollOutcome::Acquired(Grant::new(holder.index, sight.waiting()))));
            }
            let Some(place) = sight.place(claim.locker) else { return Ok(Some(PollOutcome::Gone)) };
            if let Some(holder) = &sight.holder {
                self.tell_holder(claim.key, claim.locker, &sight, deadline);
                return Ok(Some(PollOutcome::Waiting(holder.busy())));
            }
            let gift = Gift { asker: Some(claim.locker), ..Gift::of_nobody(&sight) };
            sight = match self.give(claim.key, &gift, deadline)? {
                Given::Done(sight) => sight,
                Given::Changed => self.look(claim.key, deadline)?,
                // The first waiter asks again soon, and tells the others by taking the key.
                Given::Delayed => {
                    return Ok(Some(PollOutcome::Waiting(Busy::free((place == 0).then_some(DELAYED)))));
                }
            };
            Ok(None)
        })
    }

    /// Returns what became of a locker, and renews its session.
    pub(super) fn ask(&self, claim: &Claim<'_>, deadline: Deadline) -> Result<PollOutcome, Error> {
        let doubt = self.sessions.of(claim.locker).map_or(Doubt::None, |tenure| tenure.doubt);
        if doubt == Doubt::Loses && !mutant!(HoldsWhatIsForfeit) {
            self.destroy(claim, deadline)?;
            return Ok(PollOutcome::Gone);
        }
        let (Some(session), sight) = self.renew(claim, deadline)? else { return Ok(PollOutcome::Gone) };
        let outcome = self.resolved(claim, &session, sight, deadline)?;
        if outcome == PollOutcome::Gone {
            // A request without an answer may still be on its way. After the end of its session it does nothing.
            if doubt != Doubt::None {
                self.kv.end_session(&session.id, deadline)?;
                self.sessions.forget(claim.locker);
            }
            self.sessions.end(claim.locker);
        }
        Ok(outcome)
    }
}
