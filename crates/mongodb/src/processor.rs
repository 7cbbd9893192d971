//! What a program makes, and the port: requests in, commands out, and outcomes from the documents that come back.
//!
//! # How this crate is made
//!
//! | file | holds |
//! |---|---|
//! | `processor.rs` | the port: requests in, outcomes out |
//! | `operation.rs` | the document of a lock, and each operation on it as a pipeline; why each is right |
//! | `expression.rs` | words of MongoDB's expression language |
//! | `entry.rs` | the document as it comes back, and the outcomes that follow |
//! | `link.rs` | the driver's client, its runtime, the limits of commands |
//! | `classify.rs` | what is known of a command that failed |
//! | `inbox.rs` | a client's change stream |
//! | `directory.rs` | what people are told |
//! | `timing.rs`, `log.rs` | lengths of time, log lines |

use crate::classify::{DUPLICATE, code, words};
use crate::entry::Entry;
use crate::inbox::MongoInbox;
use crate::link::{Link, locks, look_at, lost};
use crate::log::{self, Level};
use crate::operation::Command;
use crate::timing::{COMMAND, ELECTION, LATE, LONGEST_DELAY, SHORTEST, SKEW};
use mongodb::bson::{Document, doc};
use mongodb::options::{ReturnDocument, UpdateModifications};
use redis_dlock::Error;
use redis_dlock::port::{
    DeadWaiters, Directory, Inbox, Limit, LockProcessor, Outcome, Request, StoreLimits, WaitQueue,
};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many commands of a batch are under way at once.
const LANES: usize = 8;

/// How often an acquire is sent whose insertion another one has come before.
const TRIES: u32 = 3;

/// A store on MongoDB 4.4 or newer: a replica set, or a single server. Generators may share it in an `Arc`; it ends with the last of them.
///
/// *Experimental: not yet run on a mongod.*
///
/// ```no_run
/// use dlock_mongodb::MongoLockProcessor;
/// use redis_dlock::DLockGenerator;
///
/// # fn main() -> Result<(), redis_dlock::Error> {
/// let generator = DLockGenerator::new(MongoLockProcessor::new("mongodb://h1,h2,h3/locks?replicaSet=rs0")?)?;
/// let lock = generator.generate("EXPORT", "nightly")?;
/// lock.lock()?.unlock()
/// # }
/// ```
pub struct MongoLockProcessor {
    pub(crate) link: Arc<Link>,
}

impl MongoLockProcessor {
    /// Makes a store in the database of a URL of MongoDB: `mongodb://[user:password@]host[:27017][,host…][/database][?options]`, or
    /// `mongodb+srv://…`. Without a database it is `dlock`. Write concern, read concern, read preference and retries of the URL do not count:
    /// locks need their own.
    ///
    /// It connects with the first request, and does not block.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if the URL cannot be used; [`Error::Backend`] if the operating system refuses threads.
    pub fn new(url: &str) -> Result<Self, Error> {
        Ok(Self { link: Arc::new(Link::new(url)?) })
    }

    /// Returns the database with the collections `locks` and `lockpings`.
    #[must_use]
    pub fn database(&self) -> &str {
        self.link.database_name()
    }
}

impl fmt::Debug for MongoLockProcessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoLockProcessor").field("database", &self.database()).finish_non_exhaustive()
    }
}

impl LockProcessor for MongoLockProcessor {
    /// Requests about different keys are sent at the same time, those about one key one after another.
    fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        let begin = Instant::now();
        let mut results: Vec<_> = requests.iter().map(|request| Err(request.unsupported())).collect();
        let (sender, receiver) = crossbeam_channel::unbounded();
        for lane in lanes(requests) {
            lane.iter().for_each(|(n, _)| results[*n] = Err(lost()));
            let (link, sender) = (Arc::clone(&self.link), sender.clone());
            self.link.spawn(async move {
                for (n, command) in lane {
                    let found = execute(&link, &command, begin, limit.time()).await;
                    // Nobody waits any more if this fails.
                    let _ = sender.send((n, found));
                }
            });
        }
        drop(sender);
        // In a forked child there is nobody who would answer.
        let patience = limit.time().saturating_add(LATE);
        while let Ok((n, found)) = receiver.recv_timeout(patience.saturating_sub(begin.elapsed())) {
            results[n] = found.and_then(|found| outcome(&requests[n], found.as_ref()));
        }
        results
    }

    fn limits(&self) -> StoreLimits {
        let mut limits = StoreLimits::default();
        limits.shortest_lease = SHORTEST;
        limits.command = COMMAND;
        limits.outage = ELECTION;
        limits.dead_waiters = DeadWaiters::AfterLeases(1);
        (limits.numbers, limits.breaks) = (true, true);
        limits.longest_release_delay = LONGEST_DELAY;
        limits
    }

    fn has_answered(&self) -> bool {
        self.link.has_answered()
    }

    fn queue(&self) -> Option<&dyn WaitQueue> {
        Some(self)
    }

    fn directory(&self) -> Option<&dyn Directory> {
        Some(self)
    }

    fn close(&self) {
        self.link.close();
    }
}

impl WaitQueue for MongoLockProcessor {
    /// A waiter counts as live for half its lease after it has asked, inbox or not. So the inbox is only for messages.
    fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error> {
        Ok(Box::new(MongoInbox::open(&self.link, client, limit)?))
    }
}

/// Returns the commands of requests, with their places, in lanes: all commands about one key are in one lane, in their order.
fn lanes(requests: &[Request<'_>]) -> Vec<Vec<(usize, Command)>> {
    let mut lanes = vec![Vec::new(); LANES.min(requests.len())];
    let mut lane_of = BTreeMap::new();
    for (n, request) in requests.iter().enumerate() {
        let next = lane_of.len() % lanes.len();
        let lane = *lane_of.entry(request.key()).or_insert(next);
        lanes[lane].extend(command(request).map(|command| (n, command)));
    }
    lanes
}

/// Returns the command of a request; `None` if this store does not know it.
fn command(request: &Request<'_>) -> Option<Command> {
    Some(match request {
        Request::Acquire(claim) => Command::acquire(claim),
        Request::Join(claim) => Command::join(claim),
        Request::Poll(claim) => Command::poll(claim),
        Request::Extend(claim) => Command::extend(claim),
        Request::ExtendWithNumbers(claim) => Command::extend_with_numbers(claim),
        Request::Release(claim) => Command::release(claim, None),
        Request::HandOver(claim, next) => Command::release(claim, Some(next)),
        Request::DelayRelease(claim, delay) => Command::delay(claim, delay),
        Request::Probe(claim) => Command::probe(claim.key),
        Request::Broken { key, .. } => Command::probe(key),
        Request::Inspect { key } => Command::look(key),
        Request::Break(order) => Command::break_hold(order),
        _ => return None,
    })
}

/// Sends a command, and reads the document as it is afterwards.
async fn execute(link: &Arc<Link>, command: &Command, begin: Instant, limit: Duration) -> Result<Option<Entry>, Error> {
    let send = |database| async move {
        let mut tries = 1;
        loop {
            match find_and_modify(&database, command).await {
                // Nothing was changed, and the document is there now.
                Err(error) if code(&error) == Some(DUPLICATE) && tries < TRIES => tries += 1,
                Err(error) if code(&error) == Some(DUPLICATE) => return Ok(Err(error)),
                result => return result.map(Ok),
            }
        }
    };
    let found = match link.within(begin, limit, send).await? {
        Ok(found) => Entry::read(&command.key, found)?,
        Err(duplicate) => {
            let message = format!("its document in the collection locks is not a lock ({})", words(&duplicate));
            return Err(Error::conflict(&command.key, message));
        }
    };
    if let Some(behind) = found.as_ref().map(Entry::behind).filter(|behind| *behind > SKEW) {
        let key = &command.key;
        let warning = format_args!(
            "the clock of the MongoDB server that answers for {key:?} is {behind:?} behind that of the server before, so leases end \
             later. Synchronise the servers' clocks: if one is ahead, leases end too early. (A command that waited that long in the \
             server gives the same warning.)"
        );
        log::write(Level::Warn, log::LEASE, warning);
    }
    Ok(found)
}

async fn find_and_modify(
    database: &mongodb::Database,
    command: &Command,
) -> Result<Option<Document>, mongodb::error::Error> {
    if command.pipeline.is_empty() {
        return look_at(database, &command.key).await;
    }
    locks(database)
        .find_one_and_update(
            doc! { "_id": &command.key, "ts": { "$type": "long" } },
            UpdateModifications::Pipeline(command.pipeline.clone()),
        )
        .upsert(command.inserts)
        .return_document(ReturnDocument::After)
        .await
}

/// Reads the outcome of a request off the document. A key without a document is free, and nobody waits for it.
fn outcome(request: &Request<'_>, found: Option<&Entry>) -> Result<Outcome, Error> {
    let free = Entry::free();
    let entry = found.unwrap_or(&free);
    Ok(match request {
        Request::Acquire(claim) | Request::Join(claim) => entry.acquired(claim.locker).into(),
        Request::Poll(claim) => entry.polled(claim.locker).into(),
        Request::Extend(claim) => entry.extended(claim.locker).into(),
        Request::ExtendWithNumbers(claim) => entry.extended_with_numbers(claim.locker).into(),
        Request::Release(_) => entry.released(None).into(),
        Request::HandOver(_, next) => entry.released(Some(next.locker)).into(),
        Request::DelayRelease(..) => entry.delayed().into(),
        Request::Probe(claim) => entry.probed(claim.locker).into(),
        Request::Inspect { .. } => entry.inspection().into(),
        Request::Break(_) => entry.taken().into(),
        Request::Broken { locker, .. } => entry.told(locker).into(),
        other => return Err(other.unsupported()),
    })
}
