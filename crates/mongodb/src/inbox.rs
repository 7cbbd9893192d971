//! The inbox of a client: one change stream on the database, by a task of the link, and a channel that can be waited for with a limit.
//!
//! The operation that has something to tell writes it into the document, in a field whose text begins with the locker, and so with the client
//! that is told. The stream's filter is on the server: a client hears its own messages alone.
//!
//! | field | in | text |
//! |---|---|---|
//! | `granted` | `locks` | locker, number, how many wait |
//! | `contended` | `locks` | locker, how often the document has told that |
//! | `broken` | `locks` | locker |
//! | `said` | `lockpings` | client, how often it was told something, the words |
//!
//! Each of these is a single text, because an event tells the fields that have changed, and of an array or a document only the parts. Each
//! operation removes what the one before has told. So an event that tells the whole document, as servers before 4.4 write, and newer ones when
//! that is shorter, has no old message in it.
//!
//! *A message is a hint.* The driver resumes a stream that breaks, without a gap. When it cannot, the inbox fails, and the client opens another
//! one and asks about all that it waits for. An event comes when a majority has the write, so no message tells what may be rolled back.
//!
//! *A single server* has no change streams. There, the task of an inbox asks once a second what its client was granted, and which of its locks
//! others wait for, and tells that. A client with an open inbox counts on hearing that others wait. Without these messages, it would pass a
//! lock among its own threads, or let it linger, without an end.

use crate::classify::{code, words};
use crate::expression::{gt, long, millis, now, sum};
use crate::link::{LOCKS, Link, PINGS_OF, locks};
use crate::timing::{AWAITING, COMMAND, LATE};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use mongodb::Database;
use mongodb::bson::{Bson, Document, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ChangeStreamEvent;
use mongodb::error::Error as DriverError;
use redis_dlock::port::{Grant, Inbox, InboxBreaker, Message};
use redis_dlock::{BackendFailure, Error};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;

/// A message, or why there will be no more.
type Heard = Result<Message, Error>;

type Stream = ChangeStream<ChangeStreamEvent<Document>>;

/// What a server answers that has no change streams: a single mongod, and FerretDB.
const NO_STREAMS: [i32; 2] = [40573, 115];

const TOLD: [&str; 4] = ["granted", "contended", "broken", "said"];

pub(crate) struct MongoInbox {
    heard: Receiver<Heard>,
    /// Says to [`next`](Inbox::next) that the inbox was cut.
    cut: Sender<Heard>,
    /// The task that reads the stream, or asks.
    task: AbortHandle,
    has_ended: bool,
}

impl MongoInbox {
    /// Opens the stream. Every event after this is heard. It opens within the time of a command, whatever the client's limit: the close of a client
    /// waits for it.
    pub(crate) fn open(link: &Arc<Link>, client: &str, limit: Duration) -> Result<Self, Error> {
        let (cut, heard) = unbounded();
        let filter = filter(client);
        let stream = link.ask(limit.min(COMMAND), move |database| async move {
            match database.watch().pipeline([filter]).max_await_time(AWAITING).await {
                Err(error) if code(&error).is_some_and(|code| NO_STREAMS.contains(&code)) => Ok((database, None)),
                stream => stream.map(|stream| (database, Some(stream))),
            }
        })?;
        let (client, teller) = (client.to_owned(), Teller(cut.clone()));
        let task = match stream {
            (_, Some(stream)) => link.spawn(read(stream, client, teller)),
            (database, None) => link.spawn(ask(database, client, teller)),
        };
        Ok(Self { heard, cut, task, has_ended: false })
    }
}

/// Reads the stream until it fails, or nobody listens any more.
async fn read(mut stream: Stream, client: String, teller: Teller) {
    loop {
        let told = match tokio::time::timeout(AWAITING + LATE, stream.next_if_any()).await {
            Ok(Ok(event)) => event.map_or_else(Vec::new, |event| messages(&client, event)),
            Ok(Err(error)) => return teller.fail(&error),
            // The connection has died silently. The end of this task closes the stream, and the client opens another one.
            Err(_) => return,
        };
        for message in told {
            if teller.0.send(Ok(message)).is_err() {
                return;
            }
        }
        if !stream.is_alive() {
            return;
        }
    }
}

/// Asks what a stream would have told, until nobody listens any more. It tells each once.
async fn ask(database: Database, client: String, teller: Teller) {
    let mut told = BTreeMap::new();
    loop {
        tokio::time::sleep(AWAITING).await;
        // A question that fails is asked again.
        let asked = tokio::time::timeout(COMMAND, news(&database, &client)).await;
        let Ok(Ok(news)) = asked else { continue };
        for (name, message) in &news {
            if !told.contains_key(name) && teller.0.send(Ok(message.clone())).is_err() {
                return;
            }
        }
        told = news;
    }
}

/// Returns the grants of the last seconds to a client, and which of its locks others wait for.
async fn news(database: &Database, client: &str) -> Result<BTreeMap<(String, bool), Message>, DriverError> {
    let is_recent = gt(millis("$when"), sum([now(), (-long(AWAITING + LATE)).into()]));
    let is_news = doc! { "$or": [{ "queue.0": { "$exists": true } }, { "$expr": is_recent }] };
    let held = doc! { "process": client, "state": 2, "$and": [is_news] };
    let mut found = locks(database).find(held).projection(doc! { "who": 1, "ts": 1, "queue.who": 1 }).await?;
    let mut news = BTreeMap::new();
    while found.advance().await? {
        let document = found.deserialize_current()?;
        let (Ok(key), Ok(locker)) = (document.get_str("_id"), document.get_str("who")) else { continue };
        let waiting = document.get_array("queue").map_or(0, Vec::len) as u64;
        let (key, locker) = (key.to_owned(), locker.to_owned());
        if waiting > 0 {
            let message = Message::Contended { key: key.clone(), locker: locker.clone() };
            news.insert((locker.clone(), true), message);
        }
        if let Ok(number) = document.get_i64("ts").map(i64::cast_unsigned) {
            news.insert((locker.clone(), false), Message::Granted { key, locker, grant: Grant::new(number, waiting) });
        }
    }
    Ok(news)
}

/// The stage that lets only messages to this client pass.
fn filter(client: &str) -> Document {
    let begin = format!("^{}[- ]", escaped(client));
    let told = |of: &str| TOLD.map(|field| Bson::from(doc! { format!("{of}.{field}"): { "$regex": &begin } }));
    let any = [told("updateDescription.updatedFields"), told("fullDocument")].concat();
    doc! { "$match": { "ns.coll": { "$in": [LOCKS, PINGS_OF] }, "$or": any } }
}

/// A text as a regular expression.
fn escaped(text: &str) -> String {
    let escape = |c: char| c.is_ascii_punctuation().then_some('\\').into_iter().chain([c]);
    text.chars().flat_map(escape).collect()
}

/// Reads the messages to a client in an event. Anybody with the right to write may have caused it.
fn messages(client: &str, event: ChangeStreamEvent<Document>) -> Vec<Message> {
    let Some(key) = event.document_key.as_ref().and_then(|key| key.get_str("_id").ok()) else { return Vec::new() };
    let fields = event.update_description.map(|update| update.updated_fields).or(event.full_document);
    let fields = fields.unwrap_or_default();
    let text = |field| fields.get_str(field).ok();
    let is_own = |locker: &&str| locker.rsplit_once('-').is_some_and(|(of, _)| of == client);
    let granted = text("granted").and_then(|text| {
        let mut parts = text.rsplitn(3, ' ');
        let (waiting, number, locker) = (parts.next()?, parts.next()?, parts.next().filter(is_own)?);
        let grant = Grant::new(number.parse().ok()?, waiting.parse().ok()?);
        Some(Message::Granted { key: key.to_owned(), locker: locker.to_owned(), grant })
    });
    let contended = text("contended").and_then(|text| {
        let locker = text.rsplit_once(' ').map(|(locker, _)| locker).filter(is_own)?;
        Some(Message::Contended { key: key.to_owned(), locker: locker.to_owned() })
    });
    let broken =
        text("broken").filter(is_own).map(|locker| Message::Broken { key: key.to_owned(), locker: locker.to_owned() });
    let said = text("said").filter(|_| key == client).and_then(|text| {
        let (_, words) = text.strip_prefix(client)?.strip_prefix(' ')?.split_once(' ')?;
        Some(Message::Said { text: words.to_owned() })
    });
    [broken, granted, contended, said].into_iter().flatten().collect()
}

/// What the task tells. However it ends, also by a panic, it says so: an inbox without its task would be deaf.
struct Teller(Sender<Heard>);

impl Teller {
    fn fail(&self, error: &DriverError) {
        let message = format!("the change stream has ended: {}", words(error));
        let _ = self.0.send(Err(Error::backend(BackendFailure::Unknown, message)));
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        let _ = self.0.send(Err(ended()));
    }
}

impl Inbox for MongoInbox {
    /// After the end it fails at once, however often it is called: the client opens another inbox.
    fn next(&mut self, limit: Duration) -> Result<Option<Message>, Error> {
        if self.has_ended {
            return Err(ended());
        }
        let heard = match self.heard.recv_timeout(limit) {
            Ok(heard) => heard.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(ended()),
        };
        self.has_ended = heard.is_err();
        heard
    }

    fn breaker(&self) -> Box<dyn InboxBreaker> {
        Box::new(Breaker { cut: self.cut.clone(), task: self.task.clone() })
    }
}

impl Drop for MongoInbox {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Ends an inbox from another thread.
struct Breaker {
    cut: Sender<Heard>,
    task: AbortHandle,
}

impl InboxBreaker for Breaker {
    fn cut(&self) {
        self.task.abort();
        let _ = self.cut.send(Err(ended()));
    }
}

fn ended() -> Error {
    Error::backend(BackendFailure::Unknown, "the inbox was closed")
}
