//! Blocking queries for the changes of one entry.
//!
//! A query names an index. Consul answers it when the entry has changed since that index, or after a while. Between two answers the entry may change
//! more than once, and the reader sees only the last change. Each message locks the entry once, and Consul counts the locks (`LockIndex`). So the
//! reader knows whether it has missed a message.
//!
//! The first query asks from index 0, and is answered at once, perhaps with "not found". The answer's index is that of the newest change of all
//! entries. So a message that comes between two queries has a higher index, and the second query tells it. An entry that is deleted and written again
//! counts its locks from one. The reader takes that for a missed message, which costs a question and loses nothing.
//!
//! Nobody repeats what one client says to another, so each such message is an entry of its own below the inbox. A query returns all entries whose
//! paths begin with that of the inbox. These orders of events lose no message:
//!
//! * Several messages are written between two queries. The next query tells all of them. Those that were told before have a lower index.
//! * A message is deleted after it was read. That changes the index, and costs an answer without news.
//! * A message is replaced under the same name after it was read, and before it is deleted. The new one is not deleted, and the next query tells it.
//! * The writer ends before its message is read. The message goes with the writer's session: nobody waits for the answer any more.
//! * The reader ends before it has deleted a message. The message goes with the writer's session, and the next reader begins behind it.
//!
//! Consul watches the nearest path that exists. While neither the inbox nor anything below it exists, Consul answers a query at each write nearby,
//! such as a message to any other client. So a reader that got such an answer writes its inbox, empty, and gets no more of them.
//!
//! Consul hides entries that a token may not read. It says so only if an answer would have such entries, or if a request asks for a single entry. So
//! a reader first asks for its inbox alone, and later checks each answer for hidden entries. Otherwise a client whose token may not read would never
//! hear a message, without an error.

use super::client::{ConsulClient, ConsulReply, odd};
use super::encode;
use super::sweep::{Sweep, delete};
use crate::deadline::Deadline;
use crate::kv::{Change, Committed, Entry, Listening, Transaction};
use crate::timing::TELLING;
use crate::timing::consul::{EARLY, WAIT};
use redis_dlock::Error;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use ureq::Agent;
use ureq::http::Method;

/// A chain of queries, each from the index that the last answer had.
pub(super) struct Query {
    client: Arc<ConsulClient>,
    path: String,
    /// The connection, which ends when this is shut down.
    agent: Agent,
    /// The index that the last answer had.
    index: u64,
    /// The index of the last change that was told.
    told: u64,
    /// How many messages the entry had received then. `None` if the entry has gone since.
    said: Option<u64>,
    /// The index of the last change below this entry that was told.
    heard: u64,
    ready: VecDeque<Change>,
    /// The entries that were told, with their indices. They are to be deleted.
    read: Vec<(String, u64)>,
    sweep: Sweep,
}

impl Query {
    /// Returns after a first answer. Every later write raises the index, and the next query tells it.
    pub(super) fn open(client: Arc<ConsulClient>, path: &str, deadline: Deadline) -> Result<Self, Error> {
        let agent = client.own_agent();
        let alone = format!("/v1/kv/{}", encode::in_url(path));
        client.call(Method::GET, &alone, &Value::Null, true, deadline)?;
        let mut query = Self {
            client,
            path: path.to_owned(),
            agent,
            index: 0,
            told: 0,
            said: Some(0),
            heard: 0,
            ready: VecDeque::new(),
            read: Vec::new(),
            sweep: Sweep::default(),
        };
        query.ask(deadline.left()?.min(WAIT))?;
        query.ready.clear();
        Ok(query)
    }

    /// Asks once, and notes what has changed of the entry, and which entries are new below it. Returns whether the entry is there.
    fn ask(&mut self, wait: Duration) -> Result<bool, Error> {
        let reply = self.client.wait(&self.agent, &self.path, self.index, wait)?;
        if reply.is_filtered {
            return Err(Error::denied(format!("the token may not read all messages in {:?}", self.path)));
        }
        let index = reply.index.ok_or_else(|| odd("the index"))?;
        // If the index falls, the servers were set up again. Everything is asked for again.
        if index < self.index {
            (self.index, self.heard) = (0, 0);
        } else {
            self.index = index.max(1);
        }
        let below = format!("{}/", self.path);
        let (mut own, mut new) = (None, Vec::new());
        // The paths of another client's messages may begin with the same letters.
        for kv in reply.body.as_array().map(Vec::as_slice).unwrap_or_default() {
            let (entry, said) = encode::entry(kv).zip(encode::times_locked(kv)).ok_or_else(|| odd("the entry"))?;
            if entry.path == self.path {
                own = Some((entry, said));
            } else if entry.path.starts_with(&below) && entry.changed > self.heard {
                new.push(entry);
            }
        }
        let is_there = own.is_some();
        let change = self.change(own, index);
        self.ready.extend(change);
        self.hear(new);
        Ok(is_there)
    }

    /// Writes the entry, empty, if it does not exist, and takes note of that write. If this fails, it is tried again after the next answer without
    /// news.
    fn create(&mut self) {
        let create = encode::create(&self.path);
        let reply = self.client.call(Method::PUT, "/v1/txn", &create, false, Deadline::after(TELLING));
        let Ok(Some(ConsulReply { status: 200, body, .. })) = reply else { return };
        if let Some(Committed::Done { index, .. }) = encode::done(&body, &Transaction::default()) {
            (self.told, self.said) = (index, Some(0));
        }
    }

    /// Returns what has changed of the entry itself.
    fn change(&mut self, own: Option<(Entry, u64)>, index: u64) -> Option<Change> {
        let Some((entry, said)) = own else {
            // Somebody has deleted the entry, perhaps with a message that was not read.
            let is_news = self.told > 0 && self.said.take().is_some();
            return is_news.then(|| Change { value: Vec::new(), index, is_merged: true });
        };
        if entry.changed == self.told {
            return None;
        }
        let is_next = self.said.is_some_and(|before| said == before + 1);
        (self.told, self.said) = (entry.changed, Some(said));
        Some(Change { value: entry.value, index: entry.changed, is_merged: !is_next })
    }

    /// Takes in what other clients have said, in order.
    fn hear(&mut self, mut new: Vec<Entry>) {
        new.sort_by_key(|entry| entry.changed);
        let Some(last) = new.last() else { return };
        self.heard = last.changed;
        self.read.extend(new.iter().map(|entry| (entry.path.clone(), entry.changed)));
        let change = |entry: Entry| Change { value: entry.value, index: entry.changed, is_merged: false };
        self.ready.extend(new.into_iter().map(change));
    }
}

impl Listening for Query {
    /// Makes one query. Before it, this deletes the messages that were read, and sweeps the inboxes of dead clients if it is time: this thread has
    /// nothing else to do. Messages that stay go with the sessions that hold them.
    fn next(&mut self) -> Result<Option<Change>, Error> {
        if self.ready.is_empty() {
            let _ = delete(&self.client, &std::mem::take(&mut self.read), Deadline::after(TELLING));
            self.sweep.go_if_due(&self.client, &self.path);
            let (before, asked) = (self.index, Instant::now());
            let is_there = self.ask(WAIT)?;
            // The end of the inbox is followed by a pause, and the next query is not. An index that has fallen is no news, either.
            if self.ready.is_empty() && self.index <= before && asked.elapsed() < EARLY {
                return Err(odd("the wait for news"));
            }
            if !is_there && self.ready.is_empty() && self.index > before {
                self.create();
            }
        }
        Ok(self.ready.pop_front())
    }

    /// The agent has only the query's connection.
    fn cutter(&self) -> Box<dyn Fn() + Send + Sync> {
        let agent = self.agent.clone();
        Box::new(move || agent.clone().shutdown())
    }
}
