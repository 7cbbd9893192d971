//! The way to the servers: the driver's client, the runtime on which it works, and a limit for every command.
//!
//! The driver is asynchronous, and its blocking form has no limits: a server that is silent would keep the thread that renews leases. So each
//! command is a task of a runtime that the link owns, and the caller waits at a channel for as long as its limit says. When the limit ends, the
//! task ends, and with it the connection of its command.
//!
//! *What was sent.* The driver tells a handler, on the task of the command, before it writes a command to a connection. A command that fails
//! without that was certainly not executed: there was no primary, or no connection.
//!
//! | set for all clients | why |
//! |---|---|
//! | write concern: majority, for as long as a command may take | what is acknowledged is on every later primary |
//! | no router of a sharded cluster | it would put its own clock in the place of `$$NOW`, and it stands beside a client as a rule |
//! | read concern: majority, from the primary | what people are told is not rolled back |
//! | no retries of writes | a command is executed once, also by a server that does not recognise the second one. The client polls instead |

use crate::classify::{Sharded, classify, code, words};
use crate::expression::set;
use crate::log::{self, Level};
use crate::timing::{COMMAND, CONNECTING, LATE, PINGS, SELECTION};
use crossbeam_channel::{Receiver, Sender};
use mongodb::bson::{Document, doc};
use mongodb::error::Error as DriverError;
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::{
    ClientOptions, ConnectionString, IndexOptions, ReadConcern, ReadPreference, SelectionCriteria, WriteConcern,
};
use mongodb::{Client, Collection, Database, IndexModel};
use redis_dlock::port::on_own_thread;
use redis_dlock::{BackendFailure, Error};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::OnceCell;
use tokio::task::AbortHandle;

/// The database of a URL that names none.
const DATABASE: &str = "dlock";

/// The databases of the servers themselves. The locks of `config` are their own.
const TAKEN: [&str; 3] = ["admin", "config", "local"];

/// How many threads the driver has.
const THREADS: usize = 2;

/// How many connections there may be to a server, unless the URL says it: an inbox has one nearly all the time.
const CONNECTIONS: u32 = 100;

/// With fewer, inboxes would keep the commands from them.
const FEWEST: u32 = 20;

tokio::task_local! {
    /// Whether the command of this task was sent.
    static SENT: Arc<AtomicBool>;
}

/// The servers of one URL.
pub(crate) struct Link {
    /// It is only taken at the end.
    runtime: Option<Runtime>,
    url: ConnectionString,
    name: String,
    client: OnceCell<Client>,
    has_answered: AtomicBool,
    has_indexes: AtomicBool,
    is_closed: AtomicBool,
}

/// Without the URL, which contains the login.
impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("name", &self.name)
            .field("has_answered", &self.has_answered)
            .finish_non_exhaustive()
    }
}

impl Link {
    /// Reads a URL. It does not connect.
    pub(crate) fn new(url: &str) -> Result<Self, Error> {
        let scheme = || format!("{}://…", url.split_once("://").map_or("", |(scheme, _)| scheme));
        let invalid = |hint: String| Error::invalid_config("URL", scheme(), hint);
        // Its words may quote the URL, and so a password.
        let parsed = ConnectionString::parse(url)
            .map_err(|_| invalid("write mongodb://[user:password@]host[:27017][,host…][/database][?options]".into()))?;
        let name = parsed.default_database.clone().unwrap_or_else(|| DATABASE.into());
        if name.contains(['.', '/', '\\', ' ', '"', '$']) {
            return Err(invalid("name a database without any of . / \\ \" $ and spaces in the URL".into()));
        }
        if TAKEN.contains(&name.as_str()) {
            return Err(invalid(format!("name a database of your own in the URL: {name} is the servers'")));
        }
        let mut runtime = Builder::new_multi_thread();
        runtime.worker_threads(THREADS).thread_name("dlock-mongodb").enable_all();
        runtime.on_thread_start(|| on_own_thread(|| ()));
        let runtime = runtime.build().map_err(|error| {
            let message = format!("the operating system refused the threads dlock-mongodb: {error}");
            Error::backend_caused_by(BackendFailure::NotExecuted, message, error)
        })?;
        Ok(Self {
            runtime: Some(runtime),
            url: parsed,
            name,
            client: OnceCell::new(),
            has_answered: AtomicBool::new(false),
            has_indexes: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        })
    }

    pub(crate) fn database_name(&self) -> &str {
        &self.name
    }

    pub(crate) fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed) // ORDERING: Relaxed: nothing else depends on it.
    }

    /// Later commands fail as shut down.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed); // ORDERING: Relaxed: a command that is under way may end.
    }

    /// Runs work on the runtime.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let runtime = self.runtime.as_ref().expect("it is taken at the end alone");
        runtime.spawn(work).abort_handle()
    }

    /// Runs work, and waits for its result.
    pub(crate) fn ask<T, W, F>(self: &Arc<Self>, limit: Duration, work: W) -> Result<T, Error>
    where
        T: Send + 'static,
        W: FnOnce(Database) -> F + Send + 'static,
        F: Future<Output = Result<T, DriverError>> + Send,
    {
        let (link, begin) = (Arc::clone(self), Instant::now());
        let (sender, receiver): (Sender<_>, Receiver<_>) = crossbeam_channel::bounded(1);
        self.spawn(async move {
            // Nobody waits any more if this fails.
            let _ = sender.send(link.within(begin, limit, work).await);
        });
        // In a forked child there is nobody who would answer.
        receiver.recv_timeout(limit.saturating_add(LATE)).unwrap_or_else(|_| Err(lost()))
    }

    /// Runs work on the database until the limit ends, and says what is known of its command.
    pub(crate) async fn within<T, F>(
        self: &Arc<Self>,
        begin: Instant,
        limit: Duration,
        work: impl FnOnce(Database) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, DriverError>>,
    {
        // ORDERING: Relaxed, here and below: a flag of this task, or one on which nothing depends.
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Error::ShutDown);
        }
        let left = limit.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return Err(Error::backend(BackendFailure::NotExecuted, "the limit ended before the command was sent"));
        }
        let sent = Arc::new(AtomicBool::new(false));
        let command = SENT.scope(Arc::clone(&sent), async { work(self.database().await?).await });
        let result = tokio::time::timeout(left, command).await;
        let failure = if sent.load(Ordering::Relaxed) { BackendFailure::Unknown } else { BackendFailure::NotExecuted };
        match result {
            Ok(Ok(value)) => {
                self.note_answer();
                Ok(value)
            }
            Ok(Err(error)) => {
                if code(&error).is_some() {
                    self.has_answered.store(true, Ordering::Relaxed);
                }
                Err(classify(&error, failure))
            }
            Err(_) => {
                let message = match failure {
                    BackendFailure::Unknown => format!("the server has not answered within {left:?}"),
                    _ => format!("there was no connection to a primary within {left:?}"),
                };
                Err(Error::backend(failure, message))
            }
        }
    }

    /// Returns the database, and makes the client for the first command. The hosts of `mongodb+srv://` are looked up then.
    pub(crate) async fn database(&self) -> Result<Database, DriverError> {
        let client = self.client.get_or_try_init(|| async {
            let client = Client::with_options(self.options().await?)?;
            let server = client.database("admin").run_command(doc! { "hello": 1 }).await?;
            if is_router(&server) { Err(DriverError::custom(Sharded)) } else { Ok(client) }
        });
        Ok(client.await?.database(&self.name))
    }

    async fn options(&self) -> Result<ClientOptions, DriverError> {
        let mut options = ClientOptions::parse(self.url.clone()).await?;
        let mut majority = WriteConcern::majority();
        // Nobody waits for it longer. Without this, the server would.
        majority.w_timeout = Some(COMMAND);
        options.write_concern = Some(majority);
        options.read_concern = Some(ReadConcern::majority());
        options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
        options.retry_writes = Some(false);
        options.max_adaptive_retries = Some(0);
        options.server_selection_timeout = Some(SELECTION);
        options.connect_timeout.get_or_insert(CONNECTING);
        options.max_pool_size = Some(options.max_pool_size.unwrap_or(CONNECTIONS).max(FEWEST));
        options.app_name.get_or_insert_with(|| "redis-dlock".into());
        options.command_event_handler = Some(EventHandler::callback(|event| {
            // The others are the driver's own, on other tasks, and the look at what the server is.
            if let CommandEvent::Started(started) = event
                && started.command_name != "hello"
            {
                let _ = SENT.try_with(|sent| sent.store(true, Ordering::Relaxed));
            }
        }));
        Ok(options)
    }

    /// After the first answer the indexes are made that sweep what nobody uses. No lock depends on them.
    fn note_answer(self: &Arc<Self>) {
        self.has_answered.store(true, Ordering::Relaxed);
        if self.has_indexes.swap(true, Ordering::Relaxed) {
            return;
        }
        // The task ends with the runtime, and does not keep the link.
        let (link, client) = (Arc::downgrade(self), self.client.get().cloned());
        let Some(database) = client.map(|client| client.database(&self.name)) else { return };
        self.spawn(async move {
            let made = tokio::time::timeout(COMMAND, Self::make_indexes(&database)).await;
            let name = database.name();
            match made {
                Ok(Ok(())) => {}
                // A user without that right does not get it soon.
                Ok(Err(error)) if code(&error).is_some() => {
                    let why = words(&error);
                    let text = format_args!("the TTL indexes of {name} are not made, so nothing is swept there: {why}");
                    log::write(Level::Info, log::CLIENT, text);
                }
                _ => {
                    if let Some(link) = link.upgrade() {
                        link.has_indexes.store(false, Ordering::Relaxed); // ORDERING: as above.
                    }
                }
            }
        });
    }

    async fn make_indexes(database: &Database) -> Result<(), DriverError> {
        for (collection, field, after) in [(LOCKS, "forget", Duration::ZERO), (PINGS_OF, "ping", PINGS)] {
            let options = IndexOptions::builder().expire_after(after).build();
            let index = IndexModel::builder().keys(doc! { field: 1 }).options(options).build();
            database.collection::<Document>(collection).create_index(index).await?;
        }
        Ok(())
    }
}

/// Returns whether this reply to `hello` is that of a router of a sharded cluster.
fn is_router(server: &Document) -> bool {
    server.get_str("msg").is_ok_and(|kind| kind == "isdbgrid")
}

/// The collection of the locks' documents.
pub(crate) const LOCKS: &str = "locks";

/// The collection of what clients say about themselves.
pub(crate) const PINGS_OF: &str = "lockpings";

pub(crate) fn locks(database: &Database) -> Collection<Document> {
    database.collection(LOCKS)
}

pub(crate) fn lockpings(database: &Database) -> Collection<Document> {
    database.collection(PINGS_OF)
}

/// Reads the documents that match, each with the server's time of now. A document may be out of date, if a deposed primary answers: nothing is
/// decided by it.
pub(crate) async fn look(
    collection: &Collection<Document>,
    stages: impl IntoIterator<Item = Document>,
) -> Result<Vec<Document>, DriverError> {
    let stages = stages.into_iter().chain([set(doc! { "at": "$$NOW" })]);
    let mut cursor = collection.aggregate(stages).await?;
    let mut found = Vec::new();
    while cursor.advance().await? {
        found.push(cursor.deserialize_current()?);
    }
    Ok(found)
}

/// Reads the document of one key.
pub(crate) async fn look_at(database: &Database, key: &str) -> Result<Option<Document>, DriverError> {
    let found = look(&locks(database), [doc! { "$match": { "_id": key, "ts": { "$type": "long" } } }]).await?;
    Ok(found.into_iter().next())
}

/// The error of a task that has ended without a result.
pub(crate) fn lost() -> Error {
    Error::backend(BackendFailure::Unknown, "the task of the command has ended without a result")
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // The last handle may be dropped on any thread, one of the runtime, too.
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_is_told_from_a_server() {
        assert!(is_router(&doc! { "msg": "isdbgrid", "ok": 1 }));
        assert!(!is_router(&doc! { "setName": "rs0", "ok": 1 }) && !is_router(&doc! { "ok": 1 }));
    }

    #[test]
    fn the_database_of_a_url_is_one_that_may_be_used() {
        assert_eq!(Link::new("mongodb://h").expect("a URL").database_name(), DATABASE);
        // The hosts are looked up when they are needed.
        assert_eq!(Link::new("mongodb+srv://host.example.invalid/jobs").expect("a URL").database_name(), "jobs");
        for name in ["config", "a.b"] {
            let refused = Link::new(&format!("mongodb://me:sesame@h/{name}")).expect_err(name);
            assert!(
                matches!(refused, Error::InvalidConfig { .. }) && !refused.to_string().contains("sesame"),
                "{refused}"
            );
        }
    }
}
