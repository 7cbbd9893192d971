//! How a key is taken from its holder by an operator's order, and how the holder learns by whom.
//!
//! A break is one transaction. It checks the index of the lock's entry: a later hold has another index, and so has a hold whose number was renewed
//! meanwhile. The transaction gives the key to the first waiter, as a release does, or frees it. It leaves the holder's session alone, because that
//! may serve a later tenure.
//!
//! | meanwhile | effect on the order |
//! |---|---|
//! | the holder releases, or hands the lock over | the check fails, the next look shows another holder or none, and nothing is changed |
//! | its lease ends, and another process has the lock | the same |
//! | its lease ends, and another program has the lock with the same text | the check fails, the next look shows another session, and nothing is changed |
//! | the holder takes a new number | the check fails, the next look shows the same locker and session, and it is tried again with the index of now |
//! | the holder takes the key again, with another session | the same, with that session |
//! | the first waiter leaves, or its session ends | the transaction is refused, and it is tried again with the next waiter, or with nobody |
//! | a waiter comes: etcd | the transaction is refused, and it is tried again with that waiter |
//! | a waiter comes: Consul | the lock is freed, and then given to the waiter, which takes it by its next poll otherwise |
//! | another operator breaks the same hold | one of them has broken it, and the other one is told who holds the lock |
//! | the answer is lost | a late execution has the same check, so it breaks the hold that was seen, or nothing |
//!
//! A holder whose hold was broken has done nothing wrong in the store: its next renewal, probe or release finds another holder, as after any loss,
//! and asks for the order then. A request of the holder that is still on its way names its session, and checks that this session holds the lock. So
//! it does nothing to the next holder.
//!
//! A message to the holder is only a hint. It may be lost, and the holder's next probe finds the same.
//!
//! The order has an entry of its own for as long as the lease may have lasted. A session that nobody renews or ends holds that entry. So the entry
//! disappears by itself, and outlives the process that gave the order.

use super::deadline::Deadline;
use super::gift::Gift;
use super::kv::{Check, Committed, Transaction, Write};
use super::message;
use super::presence::harmless;
use super::snapshot::{HoldingEntry, Snapshot};
use super::store::{ConsensusStore, until_settled};
use super::timing::TOLD;
use redis_dlock::Error;
use redis_dlock::port::{Break, BreakOutcome, Broken};
use serde_json::{Value, json};

/// The client's name in the sessions that hold orders. No client has this name.
const OF_BREAK: &str = "(break)";

/// The longest locker that is told of the order, in bytes. Lockers of this crate are shorter, and no other program asks.
const LONGEST_LOCKER: usize = 256;

/// An order to break a hold, while it is carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Breaking<'a> {
    pub(super) store: &'a ConsensusStore,
    pub(super) order: &'a Break<'a>,
    pub(super) deadline: Deadline,
}

impl Breaking<'_> {
    /// Takes the key from the locker that was seen to hold it.
    pub(super) fn break_hold(&self) -> Result<BreakOutcome, Error> {
        let (store, order) = (self.store, self.order);
        let (mut telling, mut seen) = (None, None);
        until_settled(order.key, || {
            let snapshot = store.look(order.key, self.deadline)?;
            let holder = snapshot.holder.as_ref().filter(|holder| holder.party.locker == order.locker);
            // Other programs may write the same text into all of their holds. A locker of this crate has one hold at a time, but may take it again
            // with another session.
            let is_seen = |holder: &&HoldingEntry| {
                let session = seen.get_or_insert_with(|| holder.session.clone());
                *session == holder.session || holder.party.client.is_some()
            };
            let holder = holder.filter(is_seen);
            let Some(holder) = holder else {
                return Ok(Some(BreakOutcome::NotHeldBy { holder: snapshot.locker() }));
            };
            // Opens a session for the first try, and another one if the store did not know the last one any more.
            let session = match telling.take() {
                Some(session) => session,
                None => self.open_session(holder)?,
            };
            let found = match self.take(&snapshot, holder, &session)? {
                Committed::Done { entries, .. } => store.read(order.key, entries)?,
                Committed::NoSession => return Ok(None),
                Committed::Refused(_) | Committed::Delayed => {
                    telling = Some(session);
                    return Ok(None);
                }
            };
            let is_left_free = found.holder.is_none() && !found.waiters.is_empty();
            // A store that cannot check whether somebody waits may have freed the key although somebody does. If this fails, the waiter's next poll
            // takes the key.
            let given = is_left_free.then(|| store.given_on(order.key, self.deadline).ok()).flatten();
            let found = given.unwrap_or(found);
            Ok(Some(BreakOutcome::Broken { next: found.locker(), waiting: found.waiting() }))
        })
    }

    /// One attempt, with what the look has shown. The checks find what has changed since.
    ///
    /// Gives the key to the first waiter, or frees it if nobody waits, or if nobody may hold it for a while.
    fn take(&self, snapshot: &Snapshot, holder: &HoldingEntry, session: &str) -> Result<Committed, Error> {
        let (kv, names, key) = (&self.store.kv, &self.store.names, self.order.key);
        let path = names.lock(key);
        let mut checks = vec![holder.is_unchanged(path.clone())];
        if let Some(first) = snapshot.waiters.first() {
            let mut gift = Gift::taken_from(holder, snapshot).transaction(key, first, names);
            self.tell(&mut gift, holder, session);
            match kv.commit(&gift, self.deadline)? {
                Committed::Delayed => {}
                committed => return Ok(committed),
            }
        } else {
            checks.push(Check::Nothing { prefix: names.waiters(key) });
        }
        let mut free = Transaction { checks, writes: vec![Write::Delete { path }], look: names.of(key) };
        self.tell(&mut free, holder, session);
        kv.commit(&free, self.deadline)
    }

    /// Has a transaction tell the holder, by a message and by an entry.
    ///
    /// A transaction of etcd writes an entry once. So if the first waiter belongs to the same client, one message says that something else has come
    /// about, too. Where an inbox shows only its last message, a later message would replace this one, and only a probe would tell the break. So the
    /// order has an entry of its own there, as words have.
    fn tell(&self, transaction: &mut Transaction, holder: &HoldingEntry, session: &str) {
        let (order, names, session) = (self.order, &self.store.names, session.to_owned());
        if let Some(client) = &holder.party.client {
            let path = names.inbox(client);
            let session = session.clone();
            let value = |is_merged| message::broken(order.key, order.locker, is_merged);
            let write = if self.store.kv.shows_the_last() {
                Write::Hold { path: format!("{path}/{session}"), session, value: value(false) }
            } else {
                let said = transaction.writes.len();
                transaction.writes.retain(|write| !matches!(write, Write::Say { path: other, .. } if *other == path));
                let value = value(transaction.writes.len() < said);
                Write::Say { path, session, value }
            };
            transaction.writes.push(write);
        }
        if order.locker.len() <= LONGEST_LOCKER {
            let path = names.broken(order.key, order.locker) + &session;
            let value = json!({ "by": order.by, "reason": order.reason }).to_string().into_bytes();
            transaction.writes.push(Write::Hold { path, session, value });
        }
    }

    /// The holder needs no order after its own deadline: it knows then that it has lost the lock. The process that gave the order looks for it after
    /// a lost reply.
    fn open_session(&self, holder: &HoldingEntry) -> Result<String, Error> {
        let kv = &*self.store.kv;
        let time = holder.party.lease.unwrap_or_default().clamp(TOLD, kv.limits().longest_lease);
        kv.open_session(harmless(kv, time), OF_BREAK, self.deadline)
    }
}

/// Returns by whom and why the hold of a locker was broken. Of several orders the last one counts: only a locker that another program writes
/// is broken more than once. Anybody with the right to write may have written an entry there, so one that cannot be read says nothing.
pub(super) fn broken(
    store: &ConsensusStore,
    key: &str,
    locker: &str,
    deadline: Deadline,
) -> Result<Option<Broken>, Error> {
    if locker.len() > LONGEST_LOCKER {
        return Ok(None);
    }
    let entries = store.kv.look(&store.names.broken(key, locker), deadline)?;
    Ok(entries.into_iter().max_by_key(|entry| entry.changed).and_then(|entry| {
        let order: Value = serde_json::from_slice(&entry.value).ok()?;
        let word = |name: &str| order.get(name)?.as_str().map(str::to_owned);
        Some(Broken::new(word("by")?, word("reason")?))
    }))
}
