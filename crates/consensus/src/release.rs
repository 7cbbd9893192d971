//! How a tenure is kept and how it ends: extend, probe, release, hand-over, settle.

use super::deadline::Deadline;
use super::kv::{Check, Committed, Transaction, Write};
use super::names;
use super::sessions::{Doubt, Tenure};
use super::sight::Sight;
use super::store::{Gift, Given, RaftStore, is_open, until_settled};
use crate::sync::mutant;
use redis_dlock::processor::{
    AcquireOutcome, Claim, ExtendOutcome, Extension, Grant, NotOurs, ProbeOutcome, ReleaseOutcome,
};
use redis_dlock::{BackendFailure, Error};

/// What came of writing the lock's entry anew.
enum Rewritten {
    /// It was written at this index. This is what is known of the key now.
    Done(u64, Sight),
    /// The locker does not hold it, or somebody waits.
    Changed,
    /// Nobody may hold the entry anew for a while. A server that was restarted begins the delays of its log anew, also of a key that somebody holds since.
    Delayed,
}

impl RaftStore {
    /// Renews the session of a locker, and looks whether the key is still its own: somebody may have deleted the entry.
    pub(super) fn prolong(&self, claim: &Claim<'_>, deadline: Deadline) -> Result<ExtendOutcome, Error> {
        let (session, sight) = self.renew(claim, deadline)?;
        let held = session.as_ref().and_then(|session| sight.is_held_by(&session.id, claim.locker));
        Ok(match held {
            Some(holder) => {
                self.sessions.note_wanted(claim.locker, sight.waiting() > 0);
                ExtendOutcome::Extended(Extension::while_waiting(sight.waiting()).with_number(holder.index))
            }
            None => ExtendOutcome::NotOurs(NotOurs::new(sight.locker())),
        })
    }

    /// The same, with a new number: that of a write of our own.
    pub(super) fn prolong_with_numbers(&self, claim: &Claim<'_>, deadline: Deadline) -> Result<ExtendOutcome, Error> {
        let outcome = self.prolong(claim, deadline)?;
        let (ExtendOutcome::Extended(extension), Some(tenure)) = (&outcome, self.tenure(claim, deadline)?) else {
            return Ok(outcome);
        };
        // The lease is renewed, whatever comes of the number.
        let number = match self.rewrite(claim, claim, &tenure, extension.number, deadline) {
            Ok(Rewritten::Done(index, _)) => Some(index),
            _ => None,
        };
        let Some(number) = number else { return Ok(outcome) };
        Ok(ExtendOutcome::Extended(extension.clone().with_number(number).with_numbers(Some(number..=number))))
    }

    /// Writes the lock's entry anew in the name of a locker of the same client, with the same session.
    fn rewrite(
        &self,
        claim: &Claim<'_>,
        next: &Claim<'_>,
        tenure: &Tenure,
        after: Option<u64>,
        deadline: Deadline,
    ) -> Result<Rewritten, Error> {
        let path = self.names.lock(claim.key);
        let from = tenure.session.id.clone();
        let mut checks = vec![Check::HeldBy { path: path.clone(), session: from.clone() }];
        let is_passed = claim.locker != next.locker;
        if is_passed {
            checks.push(Check::Nothing { prefix: self.names.waiters(claim.key) });
        }
        let value = names::party(next, after);
        let has_own_life = self.kv.life(next) != tenure.session.life;
        let write = if is_passed && has_own_life {
            let to = self.session_of(next, deadline)?.id;
            Write::Pass { path, from, to, value }
        } else {
            Write::Hold { path, session: from, value }
        };
        let transaction = Transaction { checks, writes: vec![write], look: self.names.of(claim.key) };
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

    /// Returns whether the key is this locker's.
    pub(super) fn is_ours(&self, claim: &Claim<'_>, deadline: Deadline) -> Result<ProbeOutcome, Error> {
        let sight = self.look(claim.key, deadline)?;
        let tenure = self.sessions.of(claim.locker);
        let session =
            tenure.as_ref().map(|tenure| tenure.session.id.as_str()).or_else(|| sight.session_of(claim.locker));
        let ours = session.is_some_and(|session| sight.is_held_by(session, claim.locker).is_some());
        Ok(if ours { ProbeOutcome::Ours } else { ProbeOutcome::NotOurs(NotOurs::new(sight.locker())) })
    }

    /// Ends a tenure, or takes a locker out of the queue.
    pub(super) fn give_up(
        &self,
        claim: &Claim<'_>,
        next: Option<&Claim<'_>>,
        deadline: Deadline,
    ) -> Result<ReleaseOutcome, Error> {
        let Some(tenure) = self.tenure(claim, deadline)? else {
            return Ok(ReleaseOutcome::NotOurs(NotOurs::new(self.look(claim.key, deadline)?.locker())));
        };
        if tenure.doubt != Doubt::None {
            return self.end_in_doubt(claim, &tenure, next, deadline);
        }
        let outcome = until_settled(claim.key, || match next {
            Some(next) => self.try_hand_over(claim, next, &tenure, deadline),
            None => self.try_release(claim, &tenure, deadline),
        });
        if outcome.is_ok() {
            self.sessions.end(claim.locker);
        }
        let is_unknown_to_the_store = match &outcome {
            Ok(outcome) => matches!(outcome, ReleaseOutcome::NotOurs(_)),
            Err(error) => !is_open(error),
        };
        if let Some(next) = next.filter(|_| is_unknown_to_the_store) {
            self.sessions.end(next.locker);
        }
        outcome
    }

    fn try_release(
        &self,
        claim: &Claim<'_>,
        tenure: &Tenure,
        deadline: Deadline,
    ) -> Result<Option<ReleaseOutcome>, Error> {
        let session = &tenure.session.id;
        // Most often nobody waits, and then this is all.
        if !tenure.is_wanted
            && let Some(outcome) = self.free(claim, session, deadline)?
        {
            return Ok(Some(outcome));
        }
        let sight = self.look(claim.key, deadline)?;
        let (session, sight) = match self.held(claim, sight, deadline)? {
            Ok(held) => held,
            Err(other) => return Ok(Some(ReleaseOutcome::NotOurs(other))),
        };
        if sight.waiters.is_empty() {
            return self.free(claim, &session, deadline);
        }
        match self.give(claim.key, &Gift::of(claim.locker, &session, &sight), deadline)? {
            Given::Done(sight) => Ok(Some(released(sight.waiting()))),
            Given::Changed => Ok(None),
            // Who waits gets it later.
            Given::Delayed => self.free(claim, &session, deadline),
        }
    }

    /// Returns the session with which a locker holds the key, and who waits beside it; or who holds it otherwise. The locker leaves the
    /// queue: an administrator may have given the key to one that waited.
    fn held(
        &self,
        claim: &Claim<'_>,
        mut sight: Sight,
        deadline: Deadline,
    ) -> Result<Result<(String, Sight), NotOurs>, Error> {
        if sight.place(claim.locker).is_some() {
            let write = Write::Delete { path: self.names.waiter(claim.key, claim.locker) };
            let transaction = Transaction { checks: Vec::new(), writes: vec![write], look: self.names.of(claim.key) };
            // Since the look it may have been given the key.
            sight = match self.commit(&[claim.locker], &transaction, deadline)? {
                Committed::Done { entries, .. } if !mutant!(LeavesTheQueueUnlooked) => self.read(claim.key, entries)?,
                _ => sight,
            };
            sight.waiters.retain(|waiter| waiter.party.locker != claim.locker);
        }
        let holder = sight.holder.as_ref().filter(|holder| holder.party.locker == claim.locker);
        Ok(match holder.and_then(|holder| holder.session.clone()) {
            Some(session) => Ok((session, sight)),
            None => Err(NotOurs::new(sight.locker())),
        })
    }

    /// Deletes the lock's entry. `None` if the locker does not hold it, or somebody waits.
    fn free(&self, claim: &Claim<'_>, session: &str, deadline: Deadline) -> Result<Option<ReleaseOutcome>, Error> {
        let path = self.names.lock(claim.key);
        let checks = vec![
            Check::HeldBy { path: path.clone(), session: session.to_owned() },
            Check::Nothing { prefix: self.names.waiters(claim.key) },
        ];
        let transaction = Transaction { checks, writes: vec![Write::Delete { path }], look: self.names.of(claim.key) };
        let Committed::Done { entries, .. } = self.commit(&[claim.locker], &transaction, deadline)? else {
            return Ok(None);
        };
        let sight = self.read(claim.key, entries)?;
        let waiting = sight.waiting();
        // A store that cannot check whether somebody waits has freed the key for the first of them. If this fails, the next poll does it.
        let given = if waiting > 0 && !mutant!(FreesUnlooked) { self.given_on(claim.key, deadline).ok() } else { None };
        Ok(Some(released(given.map_or(waiting, |sight| sight.waiting()))))
    }

    fn try_hand_over(
        &self,
        claim: &Claim<'_>,
        next: &Claim<'_>,
        tenure: &Tenure,
        deadline: Deadline,
    ) -> Result<Option<ReleaseOutcome>, Error> {
        if !self.lives_for(claim, tenure, next, deadline)? {
            return Ok(Some(ReleaseOutcome::NotOurs(NotOurs::new(self.look(claim.key, deadline)?.locker()))));
        }
        let sight = if tenure.is_wanted {
            self.look(claim.key, deadline)?
        } else {
            match self.rewrite(claim, next, tenure, None, deadline)? {
                Rewritten::Done(index, sight) if sight.waiters.is_empty() => {
                    return Ok(Some(ReleaseOutcome::Passed(Grant::new(index, 0))));
                }
                // A store that cannot check whether somebody waits has passed the key over the first waiter.
                Rewritten::Done(index, sight) => {
                    let outcome = self.passed_over(next, index, &sight, deadline);
                    return outcome.map(Some).map_err(|error| self.left_open(next, Doubt::Loses, &error));
                }
                Rewritten::Changed | Rewritten::Delayed => self.look(claim.key, deadline)?,
            }
        };
        let (session, sight) = match self.held(claim, sight, deadline)? {
            Ok(held) => held,
            Err(other) => return Ok(Some(ReleaseOutcome::NotOurs(other))),
        };
        if sight.waiters.is_empty() {
            return match self.rewrite(claim, next, tenure, None, deadline)? {
                Rewritten::Done(index, sight) => Ok(Some(ReleaseOutcome::Passed(Grant::new(index, sight.waiting())))),
                Rewritten::Changed => Ok(None),
                Rewritten::Delayed => self.free_for(claim, next, &session, deadline),
            };
        }
        let behind = self.session_of(next, deadline)?;
        let gift = Gift { next: Some((next, &behind)), ..Gift::of(claim.locker, &session, &sight) };
        match self.give(claim.key, &gift, deadline)? {
            Given::Done(sight) => Ok(sight.holder.map(|holder| ReleaseOutcome::Queued(holder.busy()))),
            Given::Changed => Ok(None),
            Given::Delayed => self.free_for(claim, next, &session, deadline),
        }
    }

    /// Deletes the lock's entry, which nobody may hold anew for a while, and has the next locker wait.
    fn free_for(
        &self,
        claim: &Claim<'_>,
        next: &Claim<'_>,
        session: &str,
        deadline: Deadline,
    ) -> Result<Option<ReleaseOutcome>, Error> {
        if self.free(claim, session, deadline)?.is_none() {
            return Ok(None);
        }
        self.begin_anew(next, deadline).map(Some)
    }

    /// Has the next locker ask for the key, since the tenure that it should go on with has ended.
    fn begin_anew(&self, next: &Claim<'_>, deadline: Deadline) -> Result<ReleaseOutcome, Error> {
        // Whatever comes of that, the earlier tenure has ended.
        match self.take(next, true, deadline).map_err(|error| self.left_open(next, Doubt::Gains, &error))? {
            AcquireOutcome::Acquired(grant) => Ok(ReleaseOutcome::Passed(grant)),
            AcquireOutcome::Busy(busy) => Ok(ReleaseOutcome::Queued(busy)),
            other => {
                Err(self.left_open(next, Doubt::Gains, &Error::unsupported(format!("an attempt came to {other:?}"))))
            }
        }
    }

    /// Gives a key that the next locker has been given to the first waiter, and puts the next locker at the queue's end.
    fn passed_over(
        &self,
        next: &Claim<'_>,
        index: u64,
        sight: &Sight,
        deadline: Deadline,
    ) -> Result<ReleaseOutcome, Error> {
        let session = self.session_of(next, deadline)?;
        let gift = Gift { next: Some((next, &session)), ..Gift::of(next.locker, &session.id, sight) };
        let sight = match self.give(next.key, &gift, deadline)?.done() {
            Some(sight) => sight,
            None => self.look(next.key, deadline)?,
        };
        if sight.is_held_by(&session.id, next.locker).is_some() {
            // Whoever waited has gone. If another one came since, it waits for the next release.
            return Ok(ReleaseOutcome::Passed(Grant::new(index, sight.waiting())));
        }
        match sight.holder.filter(|_| sight.waiters.iter().any(|waiter| waiter.party.locker == next.locker)) {
            Some(holder) => Ok(ReleaseOutcome::Queued(holder.busy())),
            None => Err(Error::backend(BackendFailure::Unknown, "the lock was taken away while it was handed over")),
        }
    }

    /// Ends a tenure of which a request may still be on its way: the end of its session ends both.
    fn end_in_doubt(
        &self,
        claim: &Claim<'_>,
        tenure: &Tenure,
        next: Option<&Claim<'_>>,
        deadline: Deadline,
    ) -> Result<ReleaseOutcome, Error> {
        let held = self.look(claim.key, deadline)?.is_held_by(&tenure.session.id, claim.locker).is_some();
        let sight = self.destroy(claim, deadline)?;
        if !held {
            return Ok(ReleaseOutcome::NotOurs(NotOurs::new(sight.locker())));
        }
        match next {
            Some(next) => self.begin_anew(next, deadline),
            None => Ok(released(sight.waiting())),
        }
    }

    /// Makes sure that no request of a locker takes effect any more, and that it neither holds nor waits.
    pub(super) fn end_for_certain(&self, claim: &Claim<'_>, deadline: Deadline) -> Result<(), Error> {
        self.destroy(claim, deadline).map(drop)
    }
}

fn released(waiting: u64) -> ReleaseOutcome {
    ReleaseOutcome::Released { waiting }
}
