//! How a waiter confirms that it takes an offered key, and how a waiter that does not confirm is passed over.
//!
//! Nobody knows that a waiter has died before its session ends. So a process that gives a key to a waiter only *offers* it. The waiter writes the
//! lock's entry again, without the word "offered", and holds the key from then on. If it does not, the first waiter that has seen the offer for long
//! enough takes the key from it, and gives it to the one that waits the longest.
//!
//! | the lock's entry | is written by | its locker | others | leaves it by |
//! |---|---|---|---|---|
//! | offered | the process that gives the key to a waiter | does not hold it, and was told of no hold | wait | confirmation: held; [patience](super::timing::patience) of a waiter: offered to the next one; release, end of its session: free or given on |
//! | held | the locker itself, by its acquire, its confirmation, or a poll that has found the key free; for a waiter of an earlier version, the process that gives it the key | holds it | wait | as ever: release, hand-over, break, end of its session |
//!
//! | an offer is confirmed by | when | requests |
//! |---|---|---|
//! | the inbox, before it tells the client of the grant | the message arrives | 1 for all offers that have arrived, up to [`MOST`] |
//! | the poll of the waiter | the message was lost, merged with others, or its confirmation failed | 1 after those of the poll |
//!
//! Invariants:
//!
//! 1. A client is told of a hold only after the entry is held. So a key that is taken from an offered entry is not taken from a holder, and a
//!    client's belief needs no other bound than before.
//! 2. A confirmation and a passing over check the index of the offer, which no other write has. For each offer, at most one of them is executed, and
//!    none after the entry has changed for any other reason.
//! 3. A confirmation also checks that the session of its own tenure holds the entry: a twin has the same locker.
//! 4. Only time decides when a waiter is passed over, by the clock of the waiter that does it. A clock that runs fast costs the slow waiter its turn,
//!    but never a hold. A time in which that waiter has not looked does not count, because the store may have been away from both waiters.
//! 5. A waiter is offered the key only if its place says that it confirms. A waiter of an earlier version is given the key outright, and is not
//!    passed over. A waiter of this version takes a key that a holder of an earlier version gives it without an offer.
//! 6. A tenure that is [doomed](super::sessions) confirms nothing. Its next poll ends its session.
//! 7. One request of the inbox confirms the offers of several keys, and only the last offer of each key. The client is told of the confirmed ones
//!    before the next request is sent. If one offer is out of date, the store refuses all of them, and the next requests take half as many.
//!
//! *Why a confirmation without an answer leaves no doubt.* If it is executed later, the entry is still the offered one. So its locker has neither
//! released the key nor been passed over, and the next poll would do the same. If the entry has changed, the confirmation does nothing.
//!
//! *When a waiter whose patience ends asks.* It is told the time that is left, less a [tick](redis_dlock::port::StoreLimits::tick): the client adds a
//! tick to every such time. So it asks when its patience ends, or by its next poll if that comes first. If less than a tick is left, it asks up to a
//! tick later. A tick is a second on etcd.
//!
//! *What it costs.* A hand-over between processes is two writes. It has no more round trips than a look and one write, because the holder knows the
//! first waiter: the confirmation of a single offer looks at the key, and a waiter that comes to be the first sends the holder its entry. A write
//! takes longer than a look. A waiter that does not confirm in time loses its turn, and begins anew at the queue's end. The lease of a hold counts
//! from the last poll, as it does without a confirmation.

use super::deadline::Deadline;
use super::kv::{Change, Check, Committed, Entry, Kv, Transaction, Write};
use super::message;
use super::names::{self, Names};
use super::sessions::{Doubt, Sessions};
use super::snapshot::{Offer, Snapshot};
use redis_dlock::Error;
use redis_dlock::port::{Grant, Message};
use std::collections::VecDeque;
use std::sync::Arc;

/// How many offers one request confirms: each has three operations on Consul, of which older versions take 64.
const MOST: usize = 21;

/// Confirms offers. An inbox has it instead of the store.
#[derive(Clone, Debug)]
pub(super) struct Confirming {
    pub(super) kv: Arc<dyn Kv>,
    pub(super) names: Names,
    pub(super) sessions: Arc<Sessions>,
}

impl Confirming {
    /// Notes what a change of an inbox says of waiters. A release that knows that there are waiters does not try to free the key first. A release
    /// that knows the first waiter does not look at the key.
    pub(super) fn note_waiters(&self, change: &Change) {
        for message in message::read(change) {
            match message {
                Message::Contended { locker, .. } => match message::first_waiter(change, &self.names) {
                    Some(first) => self.sessions.note_first(&locker, Some(&first)),
                    None => self.sessions.note_wanted(&locker, true),
                },
                Message::Granted { locker, grant, .. } if grant.waiting > 0 => {
                    self.sessions.note_wanted(&locker, true);
                }
                _ => {}
            }
        }
    }

    /// Confirms offers to the lockers of these sessions in one transaction, which looks at a prefix. Each is of another key: etcd takes no two
    /// writes of one entry.
    ///
    /// The transaction does not go through [`ConsensusStore::commit`](super::store::ConsensusStore::commit), because it leaves no doubt: it checks the
    /// index, so a late execution does what the next poll would do, or nothing.
    pub(super) fn confirm<'a>(
        &self,
        offers: impl Iterator<Item = (&'a Offer, &'a str)>,
        look: &str,
        deadline: Deadline,
    ) -> Result<Committed, Error> {
        let mut transaction = Transaction { look: look.to_owned(), ..Transaction::default() };
        for (offer, session) in offers {
            let (path, session) = (self.names.lock(&offer.key), session.to_owned());
            transaction.checks.push(Check::Unchanged { path: path.clone(), index: offer.index });
            transaction.checks.push(Check::HeldBy { path: path.clone(), session: session.clone() });
            transaction.writes.push(Write::Hold { path, session, value: names::from_now(&offer.entry) });
        }
        self.kv.commit(&transaction, deadline)
    }
}

/// The offers that have arrived in an inbox. The first ones are confirmed together. The client is told of them before the next request is sent,
/// because a request to distant servers takes long.
#[derive(Debug)]
pub(super) struct Offers {
    confirming: Confirming,
    heard: VecDeque<Offer>,
    /// How many offers the next request confirms, at most. After a refusal it is half of those that were refused together, because one outdated offer
    /// has all of them refused.
    most: usize,
}

impl Offers {
    pub(super) fn new(confirming: Confirming) -> Self {
        Self { confirming, heard: VecDeque::new(), most: MOST }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.heard.is_empty()
    }

    /// Takes an offer in. It replaces an earlier one of its key.
    pub(super) fn push(&mut self, offer: Offer) {
        self.heard.retain(|earlier| earlier.key != offer.key);
        self.heard.push_back(offer);
    }

    /// Sends one request at most. Returns messages for the client: a grant, or the hint to ask itself. An offer that a poll of the client has
    /// confirmed needs no message.
    pub(super) fn confirm_some(&mut self, deadline: Deadline) -> Vec<Message> {
        let (mut told, mut asked) = (Vec::new(), Vec::new());
        for offer in self.heard.drain(..self.most.min(self.heard.len())) {
            match self.confirming.sessions.of(&offer.locker) {
                Some(tenure) if tenure.confirmed == Some(offer.index) => {}
                Some(tenure) if tenure.doubt != Doubt::Loses => asked.push((offer, tenure.session.id)),
                // Another processor may know the locker.
                _ => told.push(offer.has_changed()),
            }
        }
        if asked.is_empty() {
            return told;
        }
        let offers = asked.iter().map(|(offer, session)| (offer, session.as_str()));
        // One transaction looks at one key.
        let look =
            if let [(offer, _)] = asked.as_slice() { self.confirming.names.of(&offer.key) } else { String::new() };
        match self.confirming.confirm(offers, &look, deadline) {
            Ok(Committed::Done { index, entries }) => {
                self.most = MOST.min(2 * self.most);
                told.extend(asked.iter().map(|(offer, _)| self.granted(offer, index, &entries)));
            }
            Ok(_) if asked.len() > 1 => {
                self.most = asked.len() / 2;
                asked.into_iter().rev().for_each(|(offer, _)| self.heard.push_front(offer));
            }
            Ok(_) => told.extend(asked.iter().map(|(offer, _)| offer.has_changed())),
            // If the server hangs, each further request would delay all other messages to the client.
            Err(_) => {
                let others = self.heard.drain(..);
                told.extend(asked.into_iter().map(|(offer, _)| offer).chain(others).map(|offer| offer.has_changed()));
            }
        }
        told
    }

    /// Returns the message about a hold that was confirmed at this index. `entries` are those of the key, and empty if the request did not look.
    fn granted(&self, offer: &Offer, index: u64, entries: &[Entry]) -> Message {
        let Confirming { names, sessions, .. } = &self.confirming;
        let (key, locker) = (offer.key.clone(), offer.locker.clone());
        let seen = Snapshot::read(entries.to_vec(), &key, names).ok().filter(|seen| seen.holder.is_some());
        let waiting = seen.as_ref().map_or(offer.waiting, Snapshot::waiting);
        // An empty queue is not noted: a waiter may have come since, and have said so.
        match seen.as_ref().and_then(|seen| seen.waiters.first()) {
            Some(first) => sessions.note_first(&locker, Some(first)),
            None if waiting > 0 => sessions.note_wanted(&locker, true),
            None => {}
        }
        Message::Granted { key, locker, grant: Grant::new(index, waiting) }
    }
}
