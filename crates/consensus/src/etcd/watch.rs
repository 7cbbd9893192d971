//! A stream of the changes of one entry.
//!
//! etcd sends one JSON document a line. The first says that the watch has begun. The others contain changes, each with its revision. A stream ends
//! after a while, so that a connection that has died silently is noticed. Then the entry is looked at. If it has not changed since the last change that
//! was told, the next stream begins behind the look's revision: etcd reads all changes of all entries since the first that a stream asks for.
//! Otherwise, or if the look fails, the next stream begins with the change after the last that was told.
//!
//! | line | effect |
//! |---|---|
//! | `created` | the watch has begun; if it begins with an earlier revision, the changes since then may still be under way |
//! | `created`, of another cluster, or at a revision before the last change that was told | the end of the inbox: the servers know nothing of what comes after that change |
//! | `events` | a message for each `PUT`; deletions are none |
//! | `canceled` | the end of the inbox: a right that was taken away, a token that is not accepted any more, changes that were compacted |
//! | no line or a part of one, the stream's time is over | a look, and the next stream |
//! | no line, the stream or the connection ends before its time | the end of the inbox: another server is asked by the next one |
//!
//! Nothing is missed from the first line on: it has the revision at which the watch began. A stream that begins with an earlier revision is told
//! every change since, unless etcd has compacted them. In that case it ends with a reason. The client then opens the inbox again, and asks about all
//! that it waits for. Deletions are no messages. An inbox is deleted when its client closes. A message is deleted when the session ends with which it was
//! written. So a look may find none, and nobody waits for what that message said.

use super::client::{EtcdClient, odd};
use super::encode;
use crate::deadline::Deadline;
use crate::http::failure;
use crate::inbox::ended;
use crate::json::parse;
use crate::kv::{Change, Kv, Listening};
use crate::stream::Stream;
use crate::sync::Mutex;
use crate::timing::OPENING;
use crate::timing::etcd::LIFE;
use redis_dlock::{BackendFailure, Error};
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use ureq::{Agent, BodyReader};

/// The longest line: many changes at once.
const LONGEST: u64 = 16 * 1024 * 1024;

/// A stream of changes, with the means to open the next one.
pub(super) struct Watch {
    client: Arc<EtcdClient>,
    path: String,
    lines: BufReader<BodyReader<'static>>,
    server: String,
    /// The agent of the connection, shared with the closures that cut it. `None` once it was cut.
    agent: Arc<Mutex<Option<Agent>>>,
    /// The index up to which every change was told.
    told: u64,
    ready: VecDeque<Change>,
}

impl Watch {
    /// Returns once the watch has begun: every change from then on is told.
    pub(super) fn open(client: Arc<EtcdClient>, path: &str, deadline: Deadline) -> Result<Self, Error> {
        // etcd refuses a token only in the first line of a watch. A look logs in again if the token is not accepted any more.
        if client.login.is_some() {
            client.look(path, deadline)?;
        }
        // The first line, too, comes within the limit, so this stream lives for no longer.
        let stream = client.watch(path, None, deadline.left()?, deadline)?;
        let (agent, lines, server) = parts(stream);
        let agent = Arc::new(Mutex::new(Some(agent)));
        let mut watch = Self { client, path: path.to_owned(), lines, server, agent, told: 0, ready: VecDeque::new() };
        watch.told = watch.created()?;
        Ok(watch)
    }

    /// Reads the first line, and returns the revision at which the watch began.
    fn created(&mut self) -> Result<u64, Error> {
        let line = self.line()?.ok_or_else(|| odd("the watch"))?;
        self.client.cluster.lock().take_in(&line, &self.server, &self.client.http.servers)?;
        let result = line.get("result").ok_or_else(|| odd("the watch"))?;
        refuse_cancelled(result)?;
        if result.get("created").and_then(Value::as_bool) != Some(true) {
            return Err(odd("the watch"));
        }
        encode::revision(result).ok_or_else(|| odd("the revision"))
    }

    /// Reads a line. `None` at the end of the stream's time. A line that this end cuts off is lost, so the next stream tells its changes again.
    fn line(&mut self) -> Result<Option<Value>, Error> {
        let mut line = String::new();
        match (&mut self.lines).take(LONGEST).read_line(&mut line) {
            Ok(0) => Err(odd("the next line of the watch")),
            Ok(_) => parse(&line, &self.server).map(Some),
            // The HTTP client wraps its errors in errors of reading.
            Err(e) => match ureq::Error::from(e) {
                ureq::Error::Timeout(_) => Ok(None),
                error => Err(failure(&self.server, error)),
            },
        }
    }

    /// Looks at the entry. Returns the revision of the look, or `None` if a change was not told, or if the look fails.
    fn unchanged(&self, deadline: Deadline) -> Option<u64> {
        let answer = self.client.call("/v3/kv/range", &encode::range(&self.path), true, deadline).ok()??;
        let is_told = encode::entries(&answer)?.iter().all(|entry| entry.changed <= self.told);
        encode::revision(&answer).filter(|_| is_told)
    }

    /// Opens the next stream, which begins after the last change that was told, or behind a look that has found no other.
    fn reopen(&mut self) -> Result<(), Error> {
        if self.agent.lock().is_none() {
            return Err(ended());
        }
        let deadline = Deadline::after(OPENING);
        // Servers that were set up again may have a lower revision. `created` shows it.
        self.told = self.unchanged(deadline.at_most(OPENING / 2)).unwrap_or_default().max(self.told);
        let stream = self.client.watch(&self.path, Some(self.told + 1), LIFE, deadline)?;
        let (agent, lines, server) = parts(stream);
        match &mut *self.agent.lock() {
            Some(shared) => *shared = agent,
            None => return Err(ended()),
        }
        (self.lines, self.server) = (lines, server);
        if self.created()? < self.told { Err(ended()) } else { Ok(()) }
    }
}

/// Fails if etcd has ended the watch, and says why.
fn refuse_cancelled(result: &Value) -> Result<(), Error> {
    if result.get("canceled").and_then(Value::as_bool) != Some(true) {
        return Ok(());
    }
    let given = result.get("cancel_reason").and_then(Value::as_str);
    let compacted = result.get("compact_revision").map(|_| "the changes that the stream begins with were compacted");
    let reason = given.or(compacted).unwrap_or("for no reason that it gives");
    Err(if reason.contains("permission denied") {
        Error::denied(reason)
    } else {
        Error::backend(BackendFailure::NotExecuted, format!("etcd has ended the watch: {reason}"))
    })
}

/// The parts of a stream that are kept. Its length is not limited, because its time is.
fn parts(stream: Stream) -> (Agent, BufReader<BodyReader<'static>>, String) {
    let Stream { agent, body, server, .. } = stream;
    (agent, BufReader::new(body.into_with_config().limit(u64::MAX).reader()), server)
}

impl Listening for Watch {
    /// Several changes may come in one line. They are told one by one, and each counts as a single change.
    fn next(&mut self) -> Result<Option<Change>, Error> {
        if let Some(change) = self.ready.pop_front() {
            return Ok(Some(change));
        }
        let Some(line) = self.line()? else {
            self.reopen()?;
            return Ok(None);
        };
        let result = line.get("result").ok_or_else(|| odd("the changes"))?;
        refuse_cancelled(result)?;
        let events = result.get("events").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for event in events {
            // etcd leaves the type out if it is `PUT`.
            if event.get("type").is_none_or(|kind| kind == "PUT") {
                let entry = event.get("kv").and_then(encode::entry).ok_or_else(|| odd("the changed entry"))?;
                self.told = self.told.max(entry.changed);
                self.ready.push_back(Change { value: entry.value, index: entry.changed, is_merged: false });
            }
        }
        Ok(self.ready.pop_front())
    }

    /// Takes the agent away before it is shut down, so that the reader cannot open another stream on it.
    fn cutter(&self) -> Box<dyn Fn() + Send + Sync> {
        let agent = Arc::clone(&self.agent);
        Box::new(move || {
            let connected = agent.lock().take();
            if let Some(agent) = connected {
                agent.shutdown();
            }
        })
    }
}
