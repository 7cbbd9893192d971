//! Blocking queries for the changes of one entry.
//!
//! A query names an index, and is answered when the entry has changed since, or after a while. Between two answers the entry may change more
//! than once, and only the last change is seen. Each message locks the entry once, and Consul counts that (`LockIndex`), so the reader knows
//! whether it has missed one.
//!
//! The first query asks from index 0 and is answered at once, perhaps with "not found". Its index is that of the newest change of all entries, so
//! a message that comes between two queries has a higher one, and is told by the second. An entry that is deleted and written again counts its
//! locks from one: the reader takes that for a message that it has missed, which costs a question and loses nothing.

use super::client::{Client, odd};
use super::encode;
use super::sweep::Sweep;
use crate::deadline::Deadline;
use crate::kv::{Change, Listening};
use crate::timing::consul::WAIT;
use redis_dlock::Error;
use std::sync::Arc;
use std::time::Duration;
use ureq::Agent;

/// A chain of queries, each from the index that the last answer had.
pub(super) struct Query {
    client: Arc<Client>,
    path: String,
    /// The connection, which ends when this is shut down.
    agent: Agent,
    /// The index that the last answer had.
    index: u64,
    /// The index of the last change that was told.
    told: u64,
    /// How many messages the entry had seen then. `None` if it has gone since.
    said: Option<u64>,
    sweep: Sweep,
}

impl Query {
    /// Returns after a first answer: whatever is written from then on raises the index, and the next query tells it.
    pub(super) fn open(client: Arc<Client>, path: &str, deadline: Deadline) -> Result<Self, Error> {
        let agent = client.own_agent();
        let mut query =
            Self { client, path: path.to_owned(), agent, index: 0, told: 0, said: Some(0), sweep: Sweep::default() };
        query.ask(deadline.left()?.min(WAIT))?;
        Ok(query)
    }

    /// Asks once, and returns the entry if it has changed.
    fn ask(&mut self, wait: Duration) -> Result<Option<Change>, Error> {
        let reply = self.client.wait(&self.agent, &self.path, self.index, wait)?;
        let index = reply.index.ok_or_else(|| odd("the index"))?;
        // An index that falls is that of servers which were set up again: everything is asked for again.
        self.index = if index < self.index { 0 } else { index.max(1) };
        if reply.status == 404 {
            // Somebody has deleted the entry, perhaps with a message that was not read.
            let is_news = self.told > 0 && self.said.take().is_some();
            return Ok(is_news.then(|| Change { value: Vec::new(), index, is_merged: true }));
        }
        let Some(kv) = reply.body.get(0) else { return Ok(None) };
        let (entry, said) = encode::entry(kv).zip(encode::times_locked(kv)).ok_or_else(|| odd("the entry"))?;
        if entry.changed == self.told {
            return Ok(None);
        }
        let is_next = self.said.is_some_and(|before| said == before + 1);
        (self.told, self.said) = (entry.changed, Some(said));
        Ok(Some(Change { value: entry.value, index: entry.changed, is_merged: !is_next }))
    }
}

impl Listening for Query {
    /// One query. Before it the inboxes of the dead are swept, if it is time: this thread has nothing else to do.
    fn next(&mut self) -> Result<Option<Change>, Error> {
        self.sweep.go_if_due(&self.client, &self.path);
        self.ask(WAIT)
    }

    /// The agent has no other connections than that of the query.
    fn cutter(&self) -> Box<dyn Fn() + Send + Sync> {
        let agent = self.agent.clone();
        Box::new(move || agent.clone().shutdown())
    }
}
