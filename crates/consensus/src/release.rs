//! How a tenure ends: release, hand-over, settle.
//!
//! A release first tries the cheapest step for what it knows. A holder that knows the first waiter, by its grant or by a message, gives the key to
//! that waiter. A holder that only knows that there are waiters looks at the queue first. A holder that knows of no waiter frees the key. Each step
//! is one write. A client without an inbox has never waited, and is told nothing. So its hand-over takes two writes: a release that is refused, or a
//! release and a gift.
//!
//! | known of the queue | found | release | hand-over to a next locker | writes |
//! |---|---|---|---|---|
//! | nobody was told to wait | nobody waits | the entry is deleted | the entry is written again for the next locker | 1 |
//! | the same | somebody waits: etcd | refused; then as below | the same | 1 |
//! | the same | somebody waits: Consul | deleted, then given to the first waiter | written again, then given on, with the next locker behind | 2 |
//! | the first waiter | is not looked at | given to that one; refused if it does not wait any more, then as below | the same, with the next locker at the queue's end | 1 |
//! | somebody waits | somebody waits | given to the first waiter | the same, with the next locker at the queue's end | 1 |
//! | somebody waits | nobody waits any more | the entry is deleted | the entry is written again for the next locker | 1 |
//! | anything | the key is in its lock-delay | the entry is deleted; the waiter gets it later | the same; the next locker waits, too | 1; 2 |
//! | a request is in doubt | anything | the session is ended, and with it the hold; the key is given on | the same; the next locker begins again | 2; more |
//!
//! A hold that was [moved](super::shared) is looked at first: each of these checks the index of its entry.
//!
//! A delayed release is one write, too. It passes the entry to another session, which lives for the delay. Nobody renews or ends that session. The
//! waiters keep their places. If the release has no answer, it is tried again with the same session, and the tenure's own session is never used
//! again.
//!
//! *Why nobody is passed over without a look.* The queue's order is that in which its entries were created. So the first waiter stays the first until
//! its entry goes, and the gift checks that entry. The holder does not know how many wait behind that waiter. So the grant says that nobody does, and
//! the waiter looks when it confirms the grant. If it does not look, because it confirms several offers at once or is of an earlier version, the next
//! waiter tells it by its next poll.
//!
//! Each row is at most one look, followed by its transactions. If the key changes in between, the transaction is refused and does nothing. The
//! release then begins again with a look.
//!
//! Consul cannot check that nobody waits. So a release there may free the key although somebody does. The release sees the queue in the answer, and
//! gives the free key to the first waiter. If that fails, the waiter's next poll takes it.

use super::acquire::Acquiring;
use super::deadline::Deadline;
use super::gift::{Gift, Given};
use super::kv::{Check, Committed, Transaction, Write};
use super::names;
use super::sessions::{Doubt, KnownTenure};
use super::snapshot::{HoldingEntry, Snapshot, WaitingEntry};
use super::store::{ConsensusStore, Rewritten, is_open, until_settled};
use redis_dlock::port::{AcquireOutcome, Claim, DelayReleaseOutcome, Grant, NotOurs, ReleaseDelay, ReleaseOutcome};
use redis_dlock::{BackendFailure, Error};

/// What a release finds.
#[derive(Debug)]
enum HoldLook {
    /// The locker holds the key with this session. The snapshot has the waiters.
    Ours {
        session: String,
        snapshot: Snapshot,
    },
    NotOurs(NotOurs),
}

/// A locker that gives up its key, or its place in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Release<'a> {
    pub(super) store: &'a ConsensusStore,
    pub(super) claim: &'a Claim<'a>,
    pub(super) deadline: Deadline,
}

impl<'a> Release<'a> {
    /// Ends the tenure, or takes the locker out of the queue. The client's next locker, if there is one, gets the key if nobody waits, or else the
    /// last place.
    pub(super) fn give_up(&self, next: Option<&'a Claim<'a>>) -> Result<ReleaseOutcome, Error> {
        let (store, claim) = (self.store, self.claim);
        let Some(tenure) = store.tenure(claim, self.deadline)? else {
            return self.not_ours();
        };
        if tenure.doubt != Doubt::None {
            return self.end_in_doubt(&tenure, next);
        }
        let mut first = store.sessions.take_first(claim.locker);
        let outcome = until_settled(claim.key, || match next {
            Some(next) => {
                let outcome = self.try_hand_over(next, &tenure, first.take())?;
                if outcome.is_none() {
                    // A twin may have the next locker's session. The next attempt then uses another session.
                    store.is_with_twin(next.locker, self.deadline)?;
                    // If nobody waits any more, the next locker goes on with the session of this one.
                    store.sessions.end(next.locker);
                }
                Ok(outcome)
            }
            None => self.try_release(&tenure, first.take()),
        });
        if outcome.is_ok() {
            store.sessions.end(claim.locker);
        }
        let is_unknown_to_the_store = match &outcome {
            Ok(outcome) => matches!(outcome, ReleaseOutcome::NotOurs(_)),
            Err(error) => !is_open(error),
        };
        if let Some(next) = next.filter(|_| is_unknown_to_the_store) {
            store.sessions.end(next.locker);
        }
        outcome
    }

    /// Looks at the key.
    fn look(&self) -> Result<Snapshot, Error> {
        self.store.look(self.claim.key, self.deadline)
    }

    /// The outcome for a locker that has no session.
    fn not_ours(&self) -> Result<ReleaseOutcome, Error> {
        Ok(ReleaseOutcome::NotOurs(NotOurs::new(self.look()?.locker())))
    }

    /// One attempt to free the key or give it to the first waiter, which the locker may know. `None` if the key has changed between the look and the
    /// transaction.
    fn try_release(&self, tenure: &KnownTenure, first: Option<WaitingEntry>) -> Result<Option<ReleaseOutcome>, Error> {
        // Most often nobody waits, and then this is all.
        if !tenure.is_wanted
            && !tenure.session.is_shared
            && let Some(outcome) = self.free(self.is_held_by(&tenure.session.id))?
        {
            return Ok(Some(outcome));
        }
        let (session, snapshot) = match self.found(tenure, first)? {
            HoldLook::Ours { session, snapshot } => (session, snapshot),
            HoldLook::NotOurs(other) => return Ok(Some(ReleaseOutcome::NotOurs(other))),
        };
        if snapshot.waiters.is_empty() {
            return self.free(self.holds(&session, &snapshot));
        }
        match self.store.give(self.claim.key, &self.gift(&session, &snapshot), self.deadline)? {
            Given::Done(snapshot) => Ok(Some(released(snapshot.waiting()))),
            Given::Changed => Ok(None),
            // The waiter gets the key later.
            Given::Delayed => self.free(self.holds(&session, &snapshot)),
        }
    }

    fn is_held_by(&self, session: &str) -> Check {
        Check::HeldBy { path: self.store.names.lock(self.claim.key), session: session.to_owned() }
    }

    /// Returns the check that the locker still holds the key. Where others [share](super::shared) the session, it checks that the entry is still the
    /// one of the snapshot.
    fn holds(&self, session: &str, snapshot: &Snapshot) -> Check {
        match snapshot.moved(self.claim.locker) {
            Some(holder) => holder.holds(self.store.names.lock(self.claim.key)),
            None => self.is_held_by(session),
        }
    }

    /// Returns the gift of the key to the first waiter, with the same check.
    fn gift<'s>(&'s self, session: &'s str, snapshot: &'s Snapshot) -> Gift<'s> {
        match snapshot.moved(self.claim.locker) {
            Some(holder) => Gift::taken_from(holder, snapshot),
            None => Gift::of(self.claim.locker, session, snapshot),
        }
    }

    /// Returns the same as [`held`](Self::held), without a look if the locker knows the first waiter. The transaction that follows is refused if the
    /// locker does not hold the key, or if that waiter does not wait any more.
    fn found(&self, tenure: &KnownTenure, first: Option<WaitingEntry>) -> Result<HoldLook, Error> {
        // A message may have named a waiter of another key.
        let is_of_key = |first: &WaitingEntry| first.path.starts_with(&self.store.names.waiters(self.claim.key));
        match first.filter(|first| is_of_key(first) && !tenure.session.is_shared) {
            Some(first) => Ok(HoldLook::Ours { session: tenure.session.id.clone(), snapshot: Snapshot::before(first) }),
            None => self.held(self.look()?),
        }
    }

    /// Returns the session with which the locker holds the key, and the waiters. If another one holds the key, returns that holder. The locker leaves
    /// the queue: an administrator may have given the key to one that waited.
    fn held(&self, mut snapshot: Snapshot) -> Result<HoldLook, Error> {
        let (store, claim) = (self.store, self.claim);
        if snapshot.place(claim.locker).is_some() {
            let write = Write::Delete { path: store.names.waiter(claim.key, claim.locker) };
            let transaction = Transaction { checks: Vec::new(), writes: vec![write], look: store.names.of(claim.key) };
            // The locker may have been given the key since the look.
            snapshot = match store.commit(&[claim.locker], &transaction, self.deadline)? {
                Committed::Done { entries, .. } => store.read(claim.key, entries)?,
                _ => snapshot,
            };
            snapshot.waiters.retain(|waiter| waiter.party.locker != claim.locker);
        }
        let holder = snapshot.holder.as_ref().filter(|holder| holder.party.locker == claim.locker);
        Ok(match holder.and_then(|holder| holder.session.clone()) {
            Some(session) => HoldLook::Ours { session, snapshot },
            None => HoldLook::NotOurs(NotOurs::new(snapshot.locker())),
        })
    }

    /// Deletes the lock's entry, the one write of an uncontended release. `None` if the locker does not hold it, or somebody waits.
    fn free(&self, check: Check) -> Result<Option<ReleaseOutcome>, Error> {
        let (store, claim) = (self.store, self.claim);
        let path = store.names.lock(claim.key);
        let checks = vec![check, Check::Nothing { prefix: store.names.waiters(claim.key) }];
        let transaction = Transaction { checks, writes: vec![Write::Delete { path }], look: store.names.of(claim.key) };
        let Committed::Done { entries, .. } = store.commit(&[claim.locker], &transaction, self.deadline)? else {
            return Ok(None);
        };
        let waiting = store.read(claim.key, entries)?.waiting();
        let given = (waiting > 0).then(|| store.given_on(claim.key, self.deadline).ok()).flatten();
        Ok(Some(released(given.map_or(waiting, |snapshot| snapshot.waiting()))))
    }

    /// One attempt to give the key to the first waiter, with the next locker at the queue's end, or to the next locker.
    ///
    /// The next locker goes on with the same session if that lives long enough. In that case only the lock's entry changes. If it waits, it has a
    /// session of its own, because the earlier one must be free to end.
    fn try_hand_over(
        &self,
        next: &'a Claim<'a>,
        tenure: &KnownTenure,
        first: Option<WaitingEntry>,
    ) -> Result<Option<ReleaseOutcome>, Error> {
        let (store, claim, deadline) = (self.store, self.claim, self.deadline);
        let (own, is_shared) = (&tenure.session, tenure.session.is_shared);
        if !is_shared && !store.lives_for(claim, tenure, next, deadline)? {
            return self.not_ours().map(Some);
        }
        if !tenure.is_wanted
            && !is_shared
            && let Rewritten::Done(index, snapshot) = store.rewrite(claim, next, own, None, deadline)?
        {
            if snapshot.waiters.is_empty() {
                return Ok(Some(ReleaseOutcome::Passed(Grant::new(index, 0))));
            }
            let outcome = self.passed_over(next, index, &snapshot);
            return outcome.map(Some).map_err(|error| store.left_open(next, Doubt::Loses, &error));
        }
        let (session, snapshot) = match self.found(tenure, first)? {
            HoldLook::Ours { session, snapshot } => (session, snapshot),
            HoldLook::NotOurs(other) => return Ok(Some(ReleaseOutcome::NotOurs(other))),
        };
        if snapshot.waiters.is_empty() {
            return match store.rewrite(claim, next, own, snapshot.holder.as_ref(), deadline)? {
                Rewritten::Done(index, snapshot) => {
                    Ok(Some(ReleaseOutcome::Passed(Grant::new(index, snapshot.waiting()))))
                }
                Rewritten::Changed => Ok(None),
                Rewritten::Delayed => self.free_for(next, self.holds(&session, &snapshot)),
            };
        }
        let behind = store.session_of(next, deadline)?;
        match store.give(claim.key, &self.gift(&session, &snapshot).then(next, &behind), deadline)? {
            Given::Done(snapshot) => Ok(snapshot.holder.map(|holder| ReleaseOutcome::Queued(holder.busy(None)))),
            Given::Changed => Ok(None),
            Given::Delayed => self.free_for(next, self.holds(&session, &snapshot)),
        }
    }

    /// Deletes the lock's entry, and has the next locker wait: nobody may hold the key for a while.
    fn free_for(&self, next: &Claim<'_>, check: Check) -> Result<Option<ReleaseOutcome>, Error> {
        if self.free(check)?.is_none() {
            return Ok(None);
        }
        self.begin_anew(next).map(Some)
    }

    /// Has the next locker ask for the key, since the tenure that it should go on with has ended. The outcome for the earlier tenure does not depend
    /// on it.
    fn begin_anew(&self, next: &Claim<'_>) -> Result<ReleaseOutcome, Error> {
        let acquire = Acquiring { store: self.store, claim: next, waits: true, deadline: self.deadline };
        let open = |error: &Error| self.store.left_open(next, Doubt::Gains, error);
        match acquire.take().map_err(|error| open(&error))? {
            AcquireOutcome::Acquired(grant) => Ok(ReleaseOutcome::Passed(grant)),
            AcquireOutcome::Busy(busy) => Ok(ReleaseOutcome::Queued(busy)),
            other => Err(open(&Error::unsupported(format!("the attempt of the next locker came to {other:?}")))),
        }
    }

    /// Takes the key from the next locker, gives it to the first waiter, and puts the next locker at the queue's end: a store that cannot check
    /// whether somebody waits has passed the first waiter over.
    fn passed_over(&self, next: &Claim<'_>, index: u64, snapshot: &Snapshot) -> Result<ReleaseOutcome, Error> {
        let (store, deadline) = (self.store, self.deadline);
        let session = store.session_of(next, deadline)?;
        let gift = Gift::of(next.locker, &session.id, snapshot).then(next, &session);
        let snapshot = match store.give(next.key, &gift, deadline)?.done() {
            Some(snapshot) => snapshot,
            None => store.look(next.key, deadline)?,
        };
        if snapshot.is_held_by(&session.id, next.locker).is_some() {
            // The waiter has gone. If another one has come since, it waits for the next release.
            return Ok(ReleaseOutcome::Passed(Grant::new(index, snapshot.waiting())));
        }
        match snapshot.holder.filter(|_| snapshot.waiters.iter().any(|waiter| waiter.party.locker == next.locker)) {
            Some(holder) => Ok(ReleaseOutcome::Queued(holder.busy(None))),
            None => Err(Error::backend(BackendFailure::Unknown, "the lock was taken away while it was handed over")),
        }
    }

    /// Passes the key to a session that ends after the delay, with a mark in place of the locker.
    ///
    /// The session is known here by the mark until the answer comes, so a repetition passes the key to the same session. The session begins before
    /// the transaction. So a repetition renews it first, and the delay counts from the last try.
    pub(super) fn delay(&self, delay: &ReleaseDelay<'_>) -> Result<DelayReleaseOutcome, Error> {
        let (store, claim) = (self.store, self.claim);
        let outcome = until_settled(claim.key, || {
            let snapshot = self.look()?;
            let is_ours =
                |holder: &&HoldingEntry| holder.party.locker == claim.locker || holder.party.locker == delay.mark;
            match snapshot.holder.as_ref().filter(is_ours).filter(|holder| holder.session.is_some()) {
                Some(holder) => self.try_delay(delay, holder),
                None => Ok(Some(DelayReleaseOutcome::NotOurs(NotOurs::new(snapshot.locker())))),
            }
        });
        if outcome.is_ok() {
            // Nobody may renew or end the session of the delay, so it is forgotten. The tenure's own session may serve another tenure.
            store.sessions.forget(delay.mark);
            store.sessions.end(claim.locker);
        }
        outcome
    }

    /// One attempt. `None` if the key has changed since the look, or the session of the delay has ended.
    fn try_delay(&self, delay: &ReleaseDelay<'_>, holder: &HoldingEntry) -> Result<Option<DelayReleaseOutcome>, Error> {
        let (store, claim, from) = (self.store, self.claim, holder.session.clone().unwrap_or_default());
        let session = store.sessions.of_delay(&*store.kv, delay, self.deadline)?;
        let path = store.names.lock(claim.key);
        let value = names::delayed(delay.mark, claim.note.why);
        let write = if session == from {
            Write::Hold { path: path.clone(), session, value }
        } else {
            Write::Pass { path: path.clone(), from, to: session, value }
        };
        let checks = vec![holder.holds(path)];
        let transaction = Transaction { checks, writes: vec![write], look: String::new() };
        Ok(match store.commit(&[claim.locker], &transaction, self.deadline)? {
            Committed::Done { .. } => Some(DelayReleaseOutcome::Delayed),
            Committed::NoSession => {
                store.sessions.forget(delay.mark);
                None
            }
            Committed::Refused(_) | Committed::Delayed => None,
        })
    }

    /// Ends a tenure that may still have a request on its way. The end of its session ends both.
    ///
    /// A usual release would not do: the request could take the key for the locker after it. The outcome is what the look before the end has shown.
    /// If the end has no answer, the client repeats the release, and the repetition finds nothing.
    fn end_in_doubt(&self, tenure: &KnownTenure, next: Option<&Claim<'_>>) -> Result<ReleaseOutcome, Error> {
        let snapshot = self.look()?;
        let held = snapshot.is_held_by(&tenure.seen(&snapshot, self.claim.locker).id, self.claim.locker).is_some();
        let snapshot = self.store.destroy(self.claim, self.deadline)?;
        if !held {
            return Ok(ReleaseOutcome::NotOurs(NotOurs::new(snapshot.locker())));
        }
        match next {
            Some(next) => self.begin_anew(next),
            None => Ok(released(snapshot.waiting())),
        }
    }

    /// Makes sure that no request of the locker takes effect any more, and that it neither holds nor waits.
    pub(super) fn settle(&self) -> Result<(), Error> {
        self.store.destroy(self.claim, self.deadline).map(drop)
    }
}

fn released(waiting: u64) -> ReleaseOutcome {
    ReleaseOutcome::Released { waiting }
}
