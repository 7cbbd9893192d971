//! How a tenure is kept: extend, extend with a new number, probe.
//!
//! In these stores a session holds a key, and renewing the session is no write. But somebody may have deleted the entry, or given it to another
//! session. So a look at the key follows each renewal, and a majority confirms it.
//!
//! A look for [many](super::together) tenures says the same of each as a look for one alone.

use super::deadline::Deadline;
use super::snapshot::Snapshot;
use super::store::{ConsensusStore, Rewritten, until_settled};
use redis_dlock::Error;
use redis_dlock::port::{Claim, ExtendOutcome, Extension, NotOurs, ProbeOutcome};

/// A locker that holds a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extend<'a> {
    pub(super) store: &'a ConsensusStore,
    pub(super) claim: &'a Claim<'a>,
    pub(super) deadline: Deadline,
}

impl Extend<'_> {
    /// Renews the session of the locker, and looks whether the key is still its own. The caller counts its lease from before this call, so the time
    /// between the renewal and the look is not given away.
    pub(super) fn extend(&self) -> Result<ExtendOutcome, Error> {
        let (session, snapshot) = self.store.renew(self.claim, self.deadline)?;
        Ok(self.extended(session.as_ref().map(|session| session.id.as_str()), &snapshot))
    }

    /// Returns what comes of an extension by which this session was renewed, if one was, before the key was seen so.
    pub(super) fn extended(&self, session: Option<&str>, snapshot: &Snapshot) -> ExtendOutcome {
        match session.and_then(|session| snapshot.is_held_by(session, self.claim.locker)) {
            Some(holder) => {
                self.store.sessions.note_wanted(self.claim.locker, snapshot.waiting() > 0);
                ExtendOutcome::Extended(Extension::while_waiting(snapshot.waiting()).with_number(holder.number()))
            }
            None => ExtendOutcome::NotOurs(NotOurs::new(snapshot.locker())),
        }
    }

    /// Extends the tenure, and gives it a new number by writing the lock's entry again. No other write has that index, so no other tenure has the
    /// number. It is one number, not millions, and serves 1,024 holds.
    pub(super) fn extend_with_numbers(&self) -> Result<ExtendOutcome, Error> {
        let (claim, deadline) = (self.claim, self.deadline);
        let (session, snapshot) = self.store.renew(claim, deadline)?;
        let outcome = self.extended(session.as_ref().map(|session| session.id.as_str()), &snapshot);
        let (ExtendOutcome::Extended(extension), Some(session)) = (&outcome, &session) else { return Ok(outcome) };
        // The lease is renewed, whatever comes of the number.
        let rewritten = self.store.rewrite(claim, claim, session, snapshot.holder.as_ref(), deadline);
        let Ok(Rewritten::Done(number, _)) = rewritten else { return Ok(outcome) };
        Ok(ExtendOutcome::Extended(extension.clone().with_number(number).with_numbers(Some(number..=number))))
    }

    /// Returns whether the key is the locker's, by a read that a majority confirms. It renews nothing.
    pub(super) fn probe(&self) -> Result<ProbeOutcome, Error> {
        let (claim, sessions) = (self.claim, &self.store.sessions);
        until_settled(claim.key, || {
            let known = sessions.of(claim.locker);
            let snapshot = self.store.look(claim.key, self.deadline)?;
            if known.as_ref().is_some_and(|known| !sessions.is_as(claim.locker, known)) {
                return Ok(None);
            }
            let known = known.as_ref().map(|known| known.seen(&snapshot, claim.locker).id.as_str());
            let session = known.or_else(|| snapshot.session_of(claim.locker));
            Ok(Some(self.probed(session, &snapshot)))
        })
    }

    /// Returns what comes of a probe that has found the key so, where the locker has this session.
    pub(super) fn probed(&self, session: Option<&str>, snapshot: &Snapshot) -> ProbeOutcome {
        match session.and_then(|session| snapshot.is_held_by(session, self.claim.locker)) {
            Some(_) => ProbeOutcome::Ours,
            None => ProbeOutcome::NotOurs(NotOurs::new(snapshot.locker())),
        }
    }
}
