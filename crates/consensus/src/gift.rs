//! Parts of transactions: how a key is given to the first waiter, and how an idle session is taken up.
//!
//! In both, another process may be ahead of us: the waiter may have left, or a twin may use the same session. A check of the transaction decides.

use super::kv::{Check, Transaction, Write};
use super::message;
use super::names::{self, Names};
use super::sessions::{Mark, Session};
use super::snapshot::{HoldingEntry, Snapshot, WaitingEntry};
use redis_dlock::port::Claim;

/// The owner that a key is taken from.
#[derive(Clone, Copy, Debug)]
enum Giver<'a> {
    Nobody,
    /// This locker holds it with this session, and gives it away.
    Locker(&'a str, &'a str),
    /// An operator takes it from this holder, or a waiter takes it because the holder does not confirm. The transaction checks the index of the
    /// entry, not its session: a session may hold the same key again for the next locker of its client, and an entry that was written by hand has no
    /// session.
    Holder(&'a HoldingEntry),
}

/// How a key is given to the first waiter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gift<'a> {
    giver: Giver<'a>,
    /// What is known of the key.
    pub(super) snapshot: &'a Snapshot,
    /// The locker that is put at the queue's end.
    next: Option<(&'a Claim<'a>, &'a Session)>,
    /// The locker that asks. It learns by the answer that it has the key.
    asker: Option<&'a str>,
}

impl<'a> Gift<'a> {
    /// A key that nobody holds.
    pub(super) fn of_nobody(snapshot: &'a Snapshot) -> Self {
        Self { giver: Giver::Nobody, snapshot, next: None, asker: None }
    }

    /// A key that this locker holds with this session.
    pub(super) fn of(locker: &'a str, session: &'a str, snapshot: &'a Snapshot) -> Self {
        Self { giver: Giver::Locker(locker, session), ..Self::of_nobody(snapshot) }
    }

    /// A key that is taken from this holder, as the snapshot shows it. A later hold keeps the key, even one of the same locker.
    pub(super) fn taken_from(holder: &'a HoldingEntry, snapshot: &'a Snapshot) -> Self {
        Self { giver: Giver::Holder(holder), ..Self::of_nobody(snapshot) }
    }

    /// Sets the locker that the same step puts at the queue's end.
    pub(super) fn then(self, next: &'a Claim<'a>, session: &'a Session) -> Self {
        Self { next: Some((next, session)), ..self }
    }

    /// Sets the locker that needs no message, because the answer tells it.
    pub(super) fn asked_by(self, locker: &'a str) -> Self {
        Self { asker: Some(locker), ..self }
    }

    /// The writes that give or offer the key to a waiter, and tell the waiter. The locker that asks knows by the answer, and confirms nothing.
    ///
    /// The waiter must still wait: its entry must be held by the session that the snapshot names. Otherwise the lock could pass to a session that has
    /// ended, which etcd would refuse. It could also pass to a session that has left the queue and lives on, which nobody would notice.
    pub(super) fn transaction(&self, key: &str, to: &WaitingEntry, names: &Names) -> Transaction {
        let path = names.lock(key);
        let is_told = self.asker != Some(to.party.locker.as_str());
        let value = if is_told { names::offered(&to.value) } else { names::from_now(&to.value) };
        let session = to.session.clone();
        let pass =
            |path, from: &str| Write::Pass { path, from: from.to_owned(), to: session.clone(), value: value.clone() };
        let (check, hold) = match self.giver {
            Giver::Locker(_, from) => {
                (Check::HeldBy { path: path.clone(), session: from.to_owned() }, pass(path, from))
            }
            Giver::Holder(holder) => {
                (holder.is_unchanged(path.clone()), pass(path, holder.session.as_deref().unwrap_or_default()))
            }
            Giver::Nobody => (
                self.snapshot.is_free(path.clone()),
                Write::Hold { path, session: session.clone(), value: value.clone() },
            ),
        };
        let mut writes = vec![hold, Write::Delete { path: to.path.clone() }];
        let others = self.snapshot.waiting() - 1 + u64::from(self.next.is_some());
        if let Some(client) = &to.party.client
            && is_told
        {
            let value = message::granted(key, &to.party.locker, others, &value);
            writes.push(Write::Say { path: names.inbox(client), session: session.clone(), value });
        }
        let still_waits = Check::HeldBy { path: to.path.clone(), session };
        let checks = vec![check, still_waits];
        let mut transaction = Transaction { checks, writes, look: names.of(key) };
        if let Some((claim, session)) = self.next {
            transaction.writes.push(waiting(names, claim, session));
            take_up(names, &mut transaction, session, claim.locker);
        }
        transaction
    }

    /// The lockers for which the transaction does something. If it has no answer, all of them are in doubt.
    pub(super) fn lockers(&self) -> Vec<&str> {
        let from = if let Giver::Locker(locker, _) = self.giver { Some(locker) } else { None };
        from.into_iter().chain(self.asker).chain(self.next.map(|(claim, _)| claim.locker)).collect()
    }
}

/// The write that puts a locker into the queue.
pub(super) fn waiting(names: &Names, claim: &Claim<'_>, session: &Session) -> Write {
    let path = names.waiter(claim.key, claim.locker);
    Write::Hold { path, session: session.id.clone(), value: names::place(claim) }
}

/// Adds to a transaction that it takes up an idle session. The transaction is refused if a twin has taken the session up.
pub(super) fn take_up(names: &Names, transaction: &mut Transaction, session: &Session, locker: &str) {
    let Mark::Left(index) = session.mark else { return };
    let path = names.mark(&session.id);
    transaction.checks.push(match index {
        Some(index) => Check::Unchanged { path: path.clone(), index },
        None => Check::Free { path: path.clone() },
    });
    transaction.writes.push(Write::Hold { path, session: session.id.clone(), value: locker.into() });
}

/// The result of giving a key to the first waiter.
#[derive(Clone, Debug)]
pub(super) enum Given {
    /// The first waiter holds the key, and this is the key's state.
    Done(Snapshot),
    /// The key has changed since it was looked at, or nobody waits.
    Changed,
    /// Nobody may hold the key for a while.
    Delayed,
}

impl Given {
    /// Returns what is known of a key that the first waiter holds now.
    pub(super) fn done(self) -> Option<Snapshot> {
        match self {
            Self::Done(snapshot) => Some(snapshot),
            Self::Changed | Self::Delayed => None,
        }
    }
}
