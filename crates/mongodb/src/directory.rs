//! What the store tells people: who holds a key and who waits, which locks there are, and what clients say of themselves.
//!
//! The collection `lockpings` has a document for each client that has said something of itself: `_id` is the client, as in `process` of its
//! locks, `ping` the server's time at which it last said so, as the lease thread does every half minute while it holds anything, `record` what
//! it says, and `until` how long that is so. An index removes it four days after its last ping, as the original did. Nobody loses a lock by a
//! missing ping: leases decide that.

use crate::entry::Entry;
use crate::expression::{ABSENT, after, literal, or, set, sum, text, words};
use crate::link::{Link, lockpings, locks, look, look_at};
use crate::processor::MongoLockProcessor;
use mongodb::bson::{Bson, Document, doc};

use redis_dlock::Error;
use redis_dlock::port::{Directory, Inspection, KeyFilter, ListPage, Parties};
use std::sync::Arc;
use std::time::Duration;

/// How many keys a page has.
const PAGE: usize = 1000;

impl Directory for MongoLockProcessor {
    fn parties(&self, key: &str, limit: Duration) -> Result<Parties, Error> {
        let name = key.to_owned();
        let found = self.link.ask(limit, move |database| async move { look_at(&database, &name).await })?;
        Ok(Entry::read(key, found)?.map_or_else(Parties::default, |entry| entry.parties()))
    }

    /// Pages are in the order of the names.
    fn list(&self, keys: &KeyFilter, from: Option<&str>, limit: Duration) -> Result<ListPage, Error> {
        let after = from.map_or(doc! { "$type": "string" }, |from| doc! { "$gt": from });
        let stages = [
            doc! { "$match": { "_id": after, "ts": { "$type": "long" }, "$or": [{ "state": 2 }, { "queue.0": { "$exists": true } }] } },
            doc! { "$sort": { "_id": 1 } },
            doc! { "$limit": i64::try_from(PAGE).unwrap_or(i64::MAX) },
        ];
        let found = self.link.ask(limit, move |database| async move { look(&locks(&database), stages).await })?;
        let name = |document: &Document| document.get_str("_id").map(str::to_owned).ok();
        let next = found.last().and_then(name).filter(|_| found.len() == PAGE);
        let mut listed = Vec::new();
        for document in found {
            let Some(key) = name(&document).filter(|key| keys.matches(key)) else { continue };
            // One that another program has written is no lock of ours.
            let Ok(Some(entry)) = Entry::read(&key, Some(document)) else { continue };
            if !entry.is_empty() {
                let inspection: Inspection = entry.inspection();
                listed.push((key, inspection));
            }
        }
        Ok(ListPage::new(listed, next))
    }

    fn put_record(&self, client: &str, text: &str, life: Duration, limit: Duration) -> Result<(), Error> {
        let fields = doc! { "ping": "$$NOW", "record": literal(text), "until": after(life), "said": ABSENT };
        ping(&self.link, client, fields, limit)
    }

    fn remove_record(&self, client: &str, limit: Duration) -> Result<(), Error> {
        let client = client.to_owned();
        self.link.ask(limit, move |database| async move {
            lockpings(&database).delete_one(doc! { "_id": client }).await.map(drop)
        })
    }

    fn records(&self, clients: &[&str], limit: Duration) -> Result<Vec<Option<String>>, Error> {
        let stage = doc! { "$match": { "_id": { "$in": clients.to_vec() } } };
        let found = self.link.ask(limit, move |database| async move { look(&lockpings(&database), [stage]).await })?;
        let record = |client: &&str| {
            let document = found.iter().find(|document| document.get_str("_id").is_ok_and(|id| id == *client))?;
            let is_over = document.get_datetime("until").ok()? <= document.get_datetime("at").ok()?;
            document.get_str("record").ok().filter(|_| !is_over).map(str::to_owned)
        };
        Ok(clients.iter().map(record).collect())
    }

    /// Nobody knows who listens, so it counts as heard. A client that has said nothing of itself gets a document, which the index removes.
    fn say(&self, client: &str, _key: &str, words_to_it: &str, limit: Duration) -> Result<bool, Error> {
        let says = sum([or("$says", 0_i64), 1.into()]);
        let said = words([literal(client), text(says.clone()), literal(words_to_it)]);
        ping(&self.link, client, doc! { "ping": or("$ping", "$$NOW"), "says": says, "said": said }, limit)?;
        Ok(true)
    }
}

/// Writes fields of a client's document.
fn ping(link: &Arc<Link>, client: &str, fields: Document, limit: Duration) -> Result<(), Error> {
    let id: Bson = client.into();
    link.ask(limit, move |database| async move {
        lockpings(&database).update_one(doc! { "_id": id }, vec![set(fields)]).upsert(true).await.map(drop)
    })
}
