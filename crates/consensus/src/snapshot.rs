//! The state of a key at one index.
//!
//! A look returns all entries of a key as they are at one index, and so does the answer to a transaction. Each decision on such a snapshot is a
//! transaction that checks what it depends on. So a snapshot that is out of date costs another try, and does no other harm.
//!
//! The queue has the order in which the entries were created. Both stores keep the index of an entry's creation when it is written again.

use super::kv::{Check, Entry};
use super::names::{Names, Party};
use redis_dlock::Error;
use redis_dlock::port::{Busy, Claim, Inspection, Message};
use std::time::Duration;

/// Who holds a key and who waits for it.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) holder: Option<HoldingEntry>,
    /// The index of the lock's entry if nobody holds it. Programs that lock in Consul's own way leave such an entry.
    pub(super) idle: Option<u64>,
    /// The waiters. The first has waited the longest.
    pub(super) waiters: Vec<WaitingEntry>,
}

/// The holder of the key.
#[derive(Clone, Debug)]
pub(super) struct HoldingEntry {
    pub(super) party: Party,
    pub(super) session: Option<String>,
    /// The index of the entry's last write: the holder began to hold, was offered the key, got a new number, or was [moved](super::shared).
    pub(super) index: u64,
    pub(super) value: Vec<u8>,
}

/// A waiter in the queue. The lock passes to the session of its entry, and the lock's entry takes over its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WaitingEntry {
    pub(super) party: Party,
    pub(super) path: String,
    pub(super) session: String,
    pub(super) value: Vec<u8>,
}

/// An [offer](super::confirm) of a key to a locker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) key: String,
    pub(super) locker: String,
    /// The value of the lock's entry, and the index at which it was written.
    pub(super) entry: Vec<u8>,
    pub(super) index: u64,
    /// How many waited then.
    pub(super) waiting: u64,
}

impl Offer {
    /// Returns the message that makes the client ask about the key itself.
    pub(super) fn has_changed(&self) -> Message {
        Message::Changed { key: Some(self.key.clone()) }
    }
}

impl Snapshot {
    /// Reads the entries of a key.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if the lock's entry is of another kind.
    pub(super) fn read(entries: Vec<Entry>, key: &str, names: &Names) -> Result<Self, Error> {
        let (lock, queue) = (names.lock(key), names.waiters(key));
        let (mut holder, mut idle) = (None, None);
        let mut waiters = Vec::new();
        for entry in entries {
            if entry.path == lock {
                if !entry.is_ours {
                    return Err(Error::conflict(key, format!("the entry {lock:?} is no lock")));
                }
                if entry.is_held {
                    let party = Party::read(&entry.value, entry.session.as_deref());
                    holder =
                        Some(HoldingEntry { party, session: entry.session, index: entry.changed, value: entry.value });
                } else {
                    idle = Some(entry.changed);
                }
            } else if entry.path.starts_with(&queue) {
                // Without a session it is no waiter: another program has written it, or has written over the entry of a waiter.
                let Some(session) = entry.session else { continue };
                let party = Party::read(&entry.value, Some(&session));
                let waiter = WaitingEntry { party, path: entry.path, session, value: entry.value };
                waiters.push((entry.created, waiter));
            }
        }
        waiters.sort_by_key(|(created, _)| *created);
        Ok(Self { holder, idle, waiters: waiters.into_iter().map(|(_, waiter)| waiter).collect() })
    }

    /// Returns the state that a holder knows without a look: only the first waiter. Others may wait behind it.
    pub(super) fn before(first: WaitingEntry) -> Self {
        Self { holder: None, idle: None, waiters: vec![first] }
    }

    /// Returns the check that nobody holds the key, as it is here.
    pub(super) fn is_free(&self, path: String) -> Check {
        match self.idle {
            Some(index) => Check::Unchanged { path, index },
            None => Check::Free { path },
        }
    }

    /// Returns the holder if this session holds the key for this locker. The locker alone does not prove it: a session of etcd may have ended, and
    /// another program may have written the entry. The session alone does not prove it, either: it may be that of the client's next locker. A locker
    /// that is only offered the key does not hold it.
    pub(super) fn is_held_by(&self, session: &str, locker: &str) -> Option<&HoldingEntry> {
        self.is_of(session, locker).filter(|holder| !holder.party.is_offered)
    }

    /// Returns the offer of the key to a locker, if it has this session.
    pub(super) fn offer_to(&self, session: &str, claim: &Claim<'_>) -> Option<Offer> {
        let holder = self.is_of(session, claim.locker).filter(|holder| holder.party.is_offered)?;
        let (key, locker) = (claim.key.to_owned(), claim.locker.to_owned());
        Some(Offer { key, locker, entry: holder.value.clone(), index: holder.index, waiting: self.waiting() })
    }

    fn is_of(&self, session: &str, locker: &str) -> Option<&HoldingEntry> {
        self.holder
            .as_ref()
            .filter(|holder| holder.session.as_deref() == Some(session) && holder.party.locker == locker)
    }

    /// Returns whether a locker holds or waits, whatever its session.
    pub(super) fn names(&self, locker: &str) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.party.locker == locker) || self.place(locker).is_some()
    }

    /// Returns the session of a locker that holds or waits.
    pub(super) fn session_of(&self, locker: &str) -> Option<&str> {
        let holder = self.holder.as_ref().filter(|holder| holder.party.locker == locker);
        let waiter = || self.waiters.iter().find(|waiter| waiter.party.locker == locker);
        holder.map_or_else(|| waiter().map(|waiter| waiter.session.as_str()), |holder| holder.session.as_deref())
    }

    /// Returns the holder if a [shared](super::shared) session holds the key for this locker.
    pub(super) fn moved(&self, locker: &str) -> Option<&HoldingEntry> {
        self.holder.as_ref().filter(|holder| holder.party.locker == locker && holder.party.is_moved)
    }

    /// Returns whether this session holds the key, or a place in its queue, for any locker.
    pub(super) fn shows(&self, session: &str) -> bool {
        let holder = self.holder.as_ref().and_then(|holder| holder.session.as_deref());
        holder == Some(session) || self.waiters.iter().any(|waiter| waiter.session == session)
    }

    /// Returns the locker that holds the key.
    pub(super) fn locker(&self) -> Option<String> {
        self.holder.as_ref().map(|holder| holder.party.locker.clone())
    }

    /// Returns the place of a locker in the queue.
    pub(super) fn place(&self, locker: &str) -> Option<usize> {
        self.waiters.iter().position(|waiter| waiter.party.locker == locker)
    }

    /// Returns the answer to a person's question about the key.
    pub(super) fn inspection(&self) -> Inspection {
        let inspection = match self.locker() {
            Some(locker) => Inspection::held_by(locker, None),
            None => Inspection::free(),
        };
        inspection.with_waiting(self.waiting())
    }

    /// Returns how many wait.
    pub(super) fn waiting(&self) -> u64 {
        self.waiters.len() as u64
    }
}

impl HoldingEntry {
    /// Returns the number of the tenure: the index at which it began, or at which its number was renewed.
    pub(super) fn number(&self) -> u64 {
        self.party.number.filter(|_| self.party.is_moved).unwrap_or(self.index)
    }

    /// Returns the check that its locker still holds the key. Where others [share](super::shared) the session, it checks that the entry is unchanged.
    pub(super) fn holds(&self, path: String) -> Check {
        match &self.session {
            Some(session) if !self.party.is_moved => Check::HeldBy { path, session: session.clone() },
            _ => self.is_unchanged(path),
        }
    }

    /// Returns the check that the entry is unchanged.
    pub(super) fn is_unchanged(&self, path: String) -> Check {
        Check::Unchanged { path, index: self.index }
    }

    /// Returns the answer for an asker that must wait. The store does not say how long the lock stays held. `left` is the time after which the asker
    /// may pass an unconfirmed offer over. The asker asks again then.
    pub(super) fn busy(&self, left: Option<Duration>) -> Busy {
        Busy::new(self.party.locker.clone(), left)
    }
}
