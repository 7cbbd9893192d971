//! How a key is taken from its holder by an operator's order, and how the holder learns by whom.
//!
//! It is one transaction, which checks that the lock's entry is the one that names the locker which was seen: a later hold, and a number that was
//! renewed meanwhile, have another index. The key goes to the first waiter in it, as in a release, or is free. The holder's session is left
//! alone: it may serve a later tenure.
//!
//! | meanwhile | becomes of the order |
//! |---|---|
//! | the holder releases, or hands the lock over | the check fails, the next look shows another holder or none, and nothing is changed |
//! | its lease ends, and another process has the lock | the same |
//! | another program has it then, with the same text | the check fails, the next look shows another session, and nothing is changed |
//! | the holder takes a new number | the check fails, the next look shows the same locker and session, and it is tried again with the index of now |
//! | the holder takes the key again, with another session | the same, with that session |
//! | the first waiter leaves, or its session ends | the transaction is refused, and it is tried again with the next waiter, or with nobody |
//! | a waiter comes: etcd | the transaction is refused, and it is tried again with that waiter |
//! | a waiter comes: Consul | the lock is freed, and then given to the waiter, which takes it by its next poll otherwise |
//! | another operator breaks the same hold | one of them has broken it, and the other one is told who holds the lock |
//! | the answer is lost | a late execution has the same check, so it breaks the hold that was seen, or nothing |
//!
//! A holder whose hold was broken has done nothing wrong in the store: its next renewal, probe or release finds another holder, as after any loss,
//! and asks for the order then. A request of its own that is still on its way names its session, and checks that this session holds the lock.
//! So it does nothing to whoever has the lock now.
//!
//! A message to the holder is only a hint. It may be lost, and the holder's next probe finds the same.
//!
//! The order stands in an entry of its own for as long as the lease may have lasted. A session that nobody renews or ends holds it, so it goes by
//! itself, and it outlives the process that gave the order.

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

/// What the sessions are called that hold orders: no client's.
const OF_BREAK: &str = "(break)";

/// The longest locker that is told, in bytes. Those of our locks are shorter, and nobody else asks.
const LONGEST_LOCKER: usize = 256;

/// An order that is carried out.
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
            // Other programs may write one text into all of their holds. A locker of ours has one hold at a time, but may take it again with another
            // session.
            let is_seen = |holder: &&HoldingEntry| {
                let session = seen.get_or_insert_with(|| holder.session.clone());
                *session == holder.session || holder.party.client.is_some()
            };
            let holder = holder.filter(is_seen);
            let Some(holder) = holder else {
                return Ok(Some(BreakOutcome::NotHeldBy { holder: snapshot.locker() }));
            };
            // For each try if the one before did not know it any more, or none yet.
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
            // A store that cannot check whether somebody waits has freed it although somebody does, who takes it otherwise.
            let given = is_left_free.then(|| store.given_on(order.key, self.deadline).ok()).flatten();
            let found = given.unwrap_or(found);
            Ok(Some(BreakOutcome::Broken { next: found.locker(), waiting: found.waiting() }))
        })
    }

    /// One attempt, with what the look has shown. Whatever has changed since is found by the checks.
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
    /// A transaction of etcd writes an entry once. If the first waiter is of the same client, one message says that something else has come
    /// about, too. Where an inbox shows its last message alone, another one would replace this one, and nothing but a probe would tell
    /// the break. So it has an entry of its own there, as words have.
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

    /// By its own deadline the holder knows without being told. Who gave the order looks for it after a lost reply.
    fn open_session(&self, holder: &HoldingEntry) -> Result<String, Error> {
        let kv = &*self.store.kv;
        let time = holder.party.lease.unwrap_or_default().clamp(TOLD, kv.limits().longest_lease);
        kv.open_session(harmless(kv, time), OF_BREAK, self.deadline)
    }
}

/// Returns by whom and why the hold of a locker was broken. Of several orders the last one counts: only a locker that another program writes is
/// broken
/// more than once. Anybody with the right to write may have written an entry there, so one that cannot be read says nothing.
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
