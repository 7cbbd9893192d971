//! What the embedded store tells people.

use super::processor::MemoryLockProcessor;
use crate::error::Error;
use crate::port::{Directory, KeyFilter, ListPage, Message, Operations, Parties};
use std::time::Duration;

/// How many waiting lockers are named.
const MOST_NAMED: usize = 100;

/// How many keys a page has.
const PAGE: usize = 1000;

impl Directory for MemoryLockProcessor {
    fn parties(&self, key: &str, _limit: Duration) -> Result<Parties, Error> {
        self.serve(key, |entry, scene| entry.parties(scene.now, MOST_NAMED))
    }

    /// Pages are in the order of the names.
    fn list(&self, keys: &KeyFilter, from: Option<&str>, limit: Duration) -> Result<ListPage, Error> {
        let store = self.shared.store.lock();
        self.link.check()?;
        let mut names: Vec<_> =
            store.keys.keys().filter(|name| from.is_none_or(|from| name.as_str() > from)).cloned().collect();
        drop(store);
        // The filter is the caller's, so it is not called under the mutex.
        names.retain(|name| keys.matches(name));
        names.sort_unstable();
        let has_more = names.len() > PAGE;
        names.truncate(PAGE);
        let next = names.last().filter(|_| has_more).cloned();
        let mut locks = Vec::with_capacity(names.len());
        for name in names {
            let found = self.inspect(&name, limit)?;
            if found.holder.is_some() || found.waiting > 0 {
                locks.push((name, found));
            }
        }
        Ok(ListPage::new(locks, next))
    }

    fn put_record(&self, client: &str, text: &str, life: Duration, _limit: Duration) -> Result<(), Error> {
        let mut store = self.shared.store.lock();
        self.link.check()?;
        let now = self.shared.clock.now();
        store.records.retain(|_, (_, until)| *until > now);
        store.records.insert(client.to_owned(), (text.to_owned(), now + life));
        Ok(())
    }

    fn remove_record(&self, client: &str, _limit: Duration) -> Result<(), Error> {
        let mut store = self.shared.store.lock();
        self.link.check()?;
        store.records.remove(client);
        Ok(())
    }

    fn records(&self, clients: &[&str], _limit: Duration) -> Result<Vec<Option<String>>, Error> {
        let store = self.shared.store.lock();
        self.link.check()?;
        let now = self.shared.clock.now();
        let kept = |client: &&str| store.records.get(*client).filter(|(_, until)| *until > now);
        Ok(clients.iter().map(|client| kept(client).map(|(text, _)| text.clone())).collect())
    }

    fn say(&self, client: &str, _key: &str, text: &str, _limit: Duration) -> Result<bool, Error> {
        let mut store = self.shared.store.lock();
        self.link.check()?;
        Ok(store.inboxes.tell_client(client, || Message::Said { text: text.to_owned() }))
    }
}
