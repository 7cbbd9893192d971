//! What the store tells people: who holds a key and who waits, which locks there are, and what clients say of themselves.
//!
//! | asked | requests | writes |
//! |---|---|---|
//! | who holds a key and who waits | a look | 0 |
//! | a page of a list | one read of some of the entries; another one for a key with more entries than a page; one for each page of names that are no texts | 0 |
//! | a record, for the first time | a session, a look, a transaction | 2 |
//! | the same record again | the renewal of its session, a look | 0 |
//! | the records of clients | a look each | 0 |
//! | words to a client | a transaction; before the first ones, a session | 1; 2 |
//!
//! No lock depends on any of them, and none of them writes to an entry of a lock. A session of the client or the process holds every entry that they
//! write, so no entry outlives them for long.
//!
//! A page of a list shows each key as it is at one index, because all of its entries are on one page. Pages follow the order of the paths. So a key
//! that is held or waited for all the time is on a page, whatever happens to other keys meanwhile. A key that passes from one process to another is
//! listed with one of them as its holder, because it passes in one transaction. A key that is freed or taken between two pages may be listed or not.
//! No key comes twice, because its name determines its place.

use super::deadline::Deadline;
use super::kv::{Committed, Entry, Transaction, Write};
use super::message;
use super::names::decoded;
use super::store::{ConsensusStore, until_settled};
use redis_dlock::Error;
use redis_dlock::port::{Directory, Inspection, KeyFilter, ListPage, Parties};
use std::collections::BTreeMap;
use std::time::Duration;

/// How many waiting lockers are named.
const MOST_NAMED: usize = 100;

/// The store, with the deadline of a person's request. Its transactions are for no locker, so one without an answer leaves no locker in doubt.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    store: &'a ConsensusStore,
    deadline: Deadline,
}

impl Directory for ConsensusStore {
    /// Nobody but the leader knows how much of a session is left, so there is no remaining time.
    fn parties(&self, key: &str, limit: Duration) -> Result<Parties, Error> {
        let snapshot = self.look(key, Deadline::after(limit))?;
        let waiting = snapshot.waiters.iter().take(MOST_NAMED).map(|waiter| waiter.party.locker.clone()).collect();
        Ok(Parties::new(snapshot.locker(), None).with_waiting(waiting, snapshot.waiting()))
    }

    fn list(&self, keys: &KeyFilter, from: Option<&str>, limit: Duration) -> Result<ListPage, Error> {
        Asked { store: self, deadline: Deadline::after(limit) }.list(keys, from)
    }

    fn put_record(&self, client: &str, text: &str, life: Duration, limit: Duration) -> Result<(), Error> {
        Asked { store: self, deadline: Deadline::after(limit) }.put_record(client, text, life)
    }

    fn remove_record(&self, client: &str, limit: Duration) -> Result<(), Error> {
        let deadline = Deadline::after(limit);
        Asked { store: self, deadline }.remove(&self.names.record(client))?;
        self.presence.end(&*self.kv, Some(client), deadline);
        Ok(())
    }

    /// Reads one after another, because the first ones matter most. Once some are read, this leaves out those that fail or have no time left.
    fn records(&self, clients: &[&str], limit: Duration) -> Result<Vec<Option<String>>, Error> {
        let deadline = Deadline::after(limit);
        let text = |entry: Entry| String::from_utf8_lossy(&entry.value).into_owned();
        let mut records = Vec::with_capacity(clients.len());
        for client in clients {
            match self.entry(&self.names.record(client), deadline) {
                Ok(entry) => records.push(entry.map(text)),
                Err(Error::Backend { .. }) if !records.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        records.resize(clients.len(), None);
        Ok(records)
    }

    /// The store does not know who listens, so the words count as heard.
    fn say(&self, client: &str, _key: &str, text: &str, limit: Duration) -> Result<bool, Error> {
        Asked { store: self, deadline: Deadline::after(limit) }.say(client, text)
    }
}

impl Asked<'_> {
    fn list(&self, keys: &KeyFilter, from: Option<&str>) -> Result<ListPage, Error> {
        let (kv, names) = (&self.store.kv, &self.store.names);
        let (Some(first), Some(begin)) = (names.page(None), names.page(from)) else {
            let hint = "give what the page before has told, or None to begin";
            return Err(Error::invalid_config("page of a list", format!("{from:?}"), hint));
        };
        let (entries, has_more) = kv.page(&first, &begin, self.deadline)?;
        let (entries, next) = if has_more { self.whole(entries)? } else { (entries, None) };
        Ok(ListPage::new(listed(self.store, entries, keys), next))
    }

    /// The session is renewed each time, which is no write, and the entry is only written if it is not there.
    fn put_record(&self, client: &str, text: &str, life: Duration) -> Result<(), Error> {
        let Self { store, deadline } = *self;
        let path = store.names.record(client);
        until_settled(client, || {
            let session = store.presence.session(&*store.kv, client, life, life, deadline)?;
            let found = store.entry(&path, deadline)?;
            if found.is_some_and(|entry| entry.session.as_ref() == Some(&session) && entry.value == text.as_bytes()) {
                return Ok(Some(()));
            }
            let write = Write::Hold { path: path.clone(), session: session.clone(), value: text.into() };
            match self.write(write)? {
                Committed::Done { .. } => return Ok(Some(())),
                Committed::NoSession => store.presence.forget(&session),
                // Another session of the client holds the entry.
                Committed::Refused(_) | Committed::Delayed => self.remove(&path)?,
            }
            Ok(None)
        })
    }

    /// Writes the words where the client listens.
    ///
    /// Where an inbox shows only its last message, words would replace a grant, and one answer would replace another. A poll would find the grant,
    /// but nothing would find the answer. So words have entries of their own there.
    fn say(&self, client: &str, text: &str) -> Result<bool, Error> {
        let Self { store, deadline } = *self;
        // A client sends itself a greeting when it begins to listen.
        let own = store.clients.lock().contains(client).then_some(client);
        until_settled(client, || {
            let session = store.presence.voice(&*store.kv, own, deadline)?;
            let (path, value, holder) = (store.names.inbox(client), message::said(text), session.clone());
            let write = if store.kv.shows_the_last() {
                Write::Hold { path: format!("{path}/{}", store.presence.name(&session)), session: holder, value }
            } else {
                Write::Say { path, session: holder, value }
            };
            Ok(match self.write(write)? {
                Committed::Done { .. } => Some(true),
                Committed::NoSession => {
                    store.presence.forget(&session);
                    None
                }
                // Somebody holds the inbox by hand, so nobody can write to it.
                Committed::Refused(_) | Committed::Delayed => Some(false),
            })
        })
    }

    /// Executes one write that depends on nothing.
    fn write(&self, write: Write) -> Result<Committed, Error> {
        self.store.kv.commit(&Transaction { writes: vec![write], ..Transaction::default() }, self.deadline)
    }

    /// Deletes an entry, which may have gone.
    fn remove(&self, path: &str) -> Result<(), Error> {
        self.write(Write::Delete { path: path.to_owned() }).map(drop)
    }

    /// Returns the entries of a page without those of its last key, of which others may follow, and the place of that key. A key with more entries
    /// than a page is read whole, and the next page begins behind it.
    fn whole(&self, mut entries: Vec<Entry>) -> Result<(Vec<Entry>, Option<String>), Error> {
        let names = &self.store.names;
        let last = entries.last().map(|entry| names.place(&entry.path).to_owned()).unwrap_or_default();
        let Some((name, _)) = last.split_once('/') else {
            // The path belongs to no lock. The next page begins behind it.
            return Ok((entries, Some(last + "\0")));
        };
        let of_last = format!("{name}/");
        let count = entries.iter().take_while(|entry| !names.place(&entry.path).starts_with(&of_last)).count();
        if count > 0 {
            entries.truncate(count);
            return Ok((entries, Some(of_last)));
        }
        let all = decoded(name).map(|key| self.store.kv.look(&names.of(&key), self.deadline)).transpose()?;
        // The character behind the slash.
        Ok((all.unwrap_or_default(), Some(format!("{name}0"))))
    }
}

/// Reads the entries of a page. Leaves out entries that belong to no lock: anybody with the right to write may have put them there.
///
/// Returns the locks of these entries that somebody holds or waits for.
fn listed(store: &ConsensusStore, entries: Vec<Entry>, keys: &KeyFilter) -> Vec<(String, Inspection)> {
    let mut found = BTreeMap::<String, Vec<Entry>>::new();
    for entry in entries {
        if let Some(key) = store.names.place(&entry.path).split_once('/').and_then(|(name, _)| decoded(name)) {
            found.entry(key).or_default().push(entry);
        }
    }
    let of_key = |(key, entries): (String, Vec<Entry>)| {
        // An entry of another kind belongs to another program, and has a name like that of a lock.
        let found = store.read(&key, entries).ok()?.inspection();
        (found.holder.is_some() || found.waiting > 0).then_some((key, found))
    };
    found.into_iter().filter(|(key, _)| keys.matches(key)).filter_map(of_key).collect()
}
