//! How a waiter confirms that it takes the key which it is offered, and how a waiter that does not is passed over.
//!
//! A waiter that has died is given the key like any other: nobody knows of its death before its session ends. So whoever gives a key to a waiter
//! only *offers* it. The waiter writes the lock's entry again, without the word "offered", and holds the key from then on. If it does
//! not, the first waiter that has seen the offer for long enough takes the key from it, for whoever waits the longest.
//!
//! | the lock's entry | is written by | its locker | others | leaves it by |
//! |---|---|---|---|---|
//! | offered | whoever gives the key to a waiter | does not hold it, and was told of no hold | wait | confirmation: held; [patience](super::timing::patience) of a waiter: offered to the next one; release, end of its session: free or given on |
//! | held | the locker itself, by its acquire, its confirmation, or a poll that has found the key free; for a waiter of an earlier version, whoever gives it the key | holds it | wait | as ever: release, hand-over, break, end of its session |
//!
//! | an offer is confirmed by | when | requests |
//! |---|---|---|
//! | the inbox, before it tells the client of the grant | the message arrives | 1 for all offers that have arrived, up to [`MOST`] |
//! | the poll of the waiter, and any other question of it | the message was lost, merged with others, or its confirmation failed | 1 after those of the question |
//!
//! Invariants:
//!
//! 1. A client is told of a hold only after the entry is held. So nothing that is taken from an offered entry is taken from a holder, and what a
//!    client believes needs no other bound than before.
//! 2. A confirmation and a passing over check the index of the offer, which no other write has. Of those for one offer at most one is executed,
//!    and none after the entry has changed for any other reason.
//! 3. A confirmation also checks that the session of its own tenure holds the entry: a twin has the same locker.
//! 4. Only time decides when a waiter is passed over, and by no clock but that of the waiter that does it. A clock that runs fast, or a machine
//!    that was suspended, costs the slow one its turn, and never a hold.
//! 5. A waiter is offered the key only if its place says that it confirms. One of an earlier version is given it outright, and is not passed
//!    over. A waiter of now believes a holder of an earlier version that gives it the key outright.
//! 6. A tenure that is [doomed](super::sessions) confirms nothing.
//!
//! *Why a confirmation without an answer leaves no doubt.* If it is executed later, the entry is still the one that was offered, so its locker has
//! neither released it nor been passed over. Then it is what the next poll would do. After anything else it does nothing.
//!
//! *Why no request waits for the patience to end.* The waiters ask every sixth of the lease anyway. A store that counts in coarse units would be
//! asked too late by the time that is left, and is asked in turn then.
//!
//! *What it costs.* A hand-over between processes is two writes and one round trip more. What a waiter can lose is its turn: one that does not
//! confirm in time begins anew at the queue's end. What holds the key is counted as before, from the last poll.

use super::deadline::Deadline;
use super::kv::{Check, Committed, Kv, Transaction, Write};
use super::names::{self, Names};
use super::sessions::{Doubt, Sessions};
use redis_dlock::Error;
use redis_dlock::port::{Grant, Message};
use std::sync::Arc;

/// How many offers one request confirms: each has three operations on Consul, of which older versions take 64.
const MOST: usize = 21;

/// An offer of a key to a locker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) key: String,
    pub(super) locker: String,
    /// What the lock's entry says, and the index at which that was written.
    pub(super) entry: Vec<u8>,
    pub(super) index: u64,
    /// How many waited then.
    pub(super) waiting: u64,
}

/// What confirms offers.
#[derive(Clone, Debug)]
pub(super) struct Confirming {
    pub(super) kv: Arc<dyn Kv>,
    pub(super) names: Names,
    pub(super) sessions: Arc<Sessions>,
}

impl Confirming {
    /// Confirms offers of which the inbox has heard. Returns what the client is to be told: of a grant, or to ask itself.
    pub(super) fn confirm_all(&self, offers: &[Offer], deadline: Deadline) -> Vec<Message> {
        offers.chunks(MOST).flat_map(|some| self.confirm_some(some, deadline)).collect()
    }

    fn confirm_some(&self, some: &[Offer], deadline: Deadline) -> Vec<Message> {
        let session = |offer: &Offer| self.sessions.of(&offer.locker).map(|tenure| tenure.session.id);
        let sessions: Option<Vec<_>> = some.iter().map(session).collect();
        let confirmed = sessions.map(|sessions| {
            let offers: Vec<_> = some.iter().zip(sessions.iter().map(String::as_str)).collect();
            self.confirm(&offers, "", deadline)
        });
        match confirmed {
            Some(Ok(Committed::Done { index, .. })) => some.iter().map(|offer| self.granted(offer, index)).collect(),
            // One of them keeps all from theirs.
            None | Some(Ok(_)) if some.len() > 1 => {
                some.chunks(1).flat_map(|offer| self.confirm_some(offer, deadline)).collect()
            }
            _ => some.iter().map(|offer| Message::Changed { key: Some(offer.key.clone()) }).collect(),
        }
    }

    /// Confirms offers to the lockers of these sessions in one transaction, which looks at a prefix.
    ///
    /// It is not sent by the store's way for transactions, because it leaves no doubt: with the index checked, one that is executed late does what
    /// the next question would do, or nothing.
    pub(super) fn confirm(
        &self,
        offers: &[(&Offer, &str)],
        look: &str,
        deadline: Deadline,
    ) -> Result<Committed, Error> {
        let mut transaction = Transaction { look: look.to_owned(), ..Transaction::default() };
        for (offer, session) in offers {
            if self.sessions.of(&offer.locker).is_some_and(|tenure| tenure.doubt == Doubt::Loses) {
                return Ok(Committed::Refused(None));
            }
            let (path, session) = (self.names.lock(&offer.key), (*session).to_owned());
            transaction.checks.push(Check::Unchanged { path: path.clone(), index: offer.index });
            transaction.checks.push(Check::HeldBy { path: path.clone(), session: session.clone() });
            transaction.writes.push(Write::Hold { path, session, value: names::from_now(&offer.entry) });
        }
        self.kv.commit(&transaction, deadline)
    }

    fn granted(&self, offer: &Offer, index: u64) -> Message {
        if offer.waiting > 0 {
            self.sessions.note_wanted(&offer.locker, true);
        }
        let (key, locker) = (offer.key.clone(), offer.locker.clone());
        Message::Granted { key, locker, grant: Grant::new(index, offer.waiting) }
    }
}
