//! The smallest store for `redis-dlock` on one SQLite file, for processes of one Linux machine.
//!
//! Each request is one transaction. `BEGIN IMMEDIATE` takes the file's write lock, so no two requests run at once, and a process that is
//! killed in a transaction leaves nothing of it. The file must be on a local disk, because the processes share the memory of its WAL.
//!
//! *Time.* The store counts leases on `CLOCK_BOOTTIME`, which all processes of a machine share, if none is in a time namespace of its own. This
//! clock counts suspend, as the client's clock does, and nobody can set it. The wall clock (`unixepoch('subsec')`) would not do: a step
//! forward would end leases whose holders still rely on them. `CLOCK_BOOTTIME` begins again with each boot, and no holder outlives a boot. So
//! each row names the boot in which it was written, and ends with it.
//!
//! *Numbers.* The number of a tenure is the `AUTOINCREMENT` id of its row, which SQLite never issues twice in a file. `synchronous = FULL` keeps
//! an issued number through a power failure. A file that is deleted, or restored from a backup, begins its numbers again.
//!
//! *Limits.* The limit of a request bounds the wait for other threads and processes. A disk that does not answer may delay it further.

#[cfg(test)]
mod conformance;

use parking_lot::Mutex;
use redis_dlock::port::{
    AcquireOutcome, Busy, Claim, ExtendOutcome, Extension, Grant, Inspection, Limit, LockProcessor, NotOurs, Outcome,
    ReleaseOutcome, Request, one_by_one,
};
use redis_dlock::{BackendFailure, Error};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params};
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

/// A row for each key that is held. Only the row of a key that is to stay for ever has no end.
const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    CREATE TABLE IF NOT EXISTS holds (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        key TEXT NOT NULL UNIQUE,
        locker TEXT NOT NULL,
        boot TEXT NOT NULL,
        until INTEGER
    ) STRICT;
    CREATE INDEX IF NOT EXISTS ends ON holds (until);";

/// How long a process may take to open the file while others open it.
const OPEN: Duration = Duration::from_secs(5);

/// The longest limit that SQLite can count.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// A connection to the file. The threads of a process take turns with it.
#[derive(Debug)]
pub struct SqliteLockProcessor {
    connection: Mutex<Connection>,
    boot: String,
}

/// Who holds a key, and for how much longer.
struct Holder {
    locker: String,
    remaining: Option<Duration>,
}

impl SqliteLockProcessor {
    /// Opens the file, and makes it if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] or [`Error::Denied`] if the file cannot be opened or written.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(|error| {
            let message = format!("cannot tell this boot from others: {error}");
            Error::backend_caused_by(BackendFailure::NotExecuted, message, error)
        })?;
        let open = || -> rusqlite::Result<Connection> {
            let connection = Connection::open(&path)?;
            connection.busy_timeout(OPEN)?;
            connection.execute_batch(SCHEMA)?;
            connection.execute("DELETE FROM holds WHERE boot <> ?1", [&boot])?;
            Ok(connection)
        };
        let begin = Instant::now();
        let connection = loop {
            match open() {
                Ok(connection) => break Mutex::new(connection),
                // Of several processes that switch a new file to WAL at once, SQLite refuses some without waiting.
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && begin.elapsed() < OPEN => {
                    thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(not_executed(error)),
            }
        };
        Ok(Self { connection, boot })
    }

    /// Runs one transaction, which sees only rows whose leases have not ended.
    fn on<R>(&self, limit: Limit, act: impl FnOnce(&Transaction<'_>, i64) -> rusqlite::Result<R>) -> Result<R, Error> {
        let begin = Instant::now();
        let Some(mut connection) = self.connection.try_lock_for(limit.time()) else {
            return Err(Error::backend(BackendFailure::NotExecuted, "other threads use the connection to the file"));
        };
        let run = || {
            connection.busy_timeout(limit.left_since(begin).time().min(LONGEST_WAIT))?;
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            // Read after the wait for the write lock: the rows were written at earlier times.
            let now = now();
            transaction.execute("DELETE FROM holds WHERE until <= ?1", [now])?;
            let result = act(&transaction, now)?;
            Ok((transaction, result))
        };
        // A transaction that is not committed is rolled back.
        let (transaction, result) = run().map_err(not_executed)?;
        transaction.commit().map_err(|error| failed(BackendFailure::Unknown, error))?;
        Ok(result)
    }

    fn acquire(&self, claim: &Claim<'_>, limit: Limit) -> Result<AcquireOutcome, Error> {
        self.on(limit, |holds, now| {
            if let Some(holder) = holder(holds, claim.key, now)? {
                return Ok(AcquireOutcome::Busy(Busy::new(holder.locker, holder.remaining)));
            }
            let number: i64 = holds.query_row(
                "INSERT INTO holds (key, locker, boot, until) VALUES (?1, ?2, ?3, ?4) RETURNING number",
                params![claim.key, claim.locker, self.boot, now + nanos(claim.lease)],
                |row| row.get(0),
            )?;
            Ok(AcquireOutcome::Acquired(Grant::new(number.cast_unsigned(), 0)))
        })
    }

    fn extend(&self, claim: &Claim<'_>, limit: Limit) -> Result<ExtendOutcome, Error> {
        self.on(limit, |holds, now| {
            let number = holds.query_row(
                "UPDATE holds SET until = ?3 WHERE key = ?1 AND locker = ?2 RETURNING number",
                params![claim.key, claim.locker, now + nanos(claim.lease)],
                |row| row.get(0),
            );
            Ok(match number.optional()? {
                Some(number) => ExtendOutcome::Extended(Extension::of(i64::cast_unsigned(number))),
                None => ExtendOutcome::NotOurs(not_ours(holds, claim.key, now)?),
            })
        })
    }

    fn release(&self, claim: &Claim<'_>, limit: Limit) -> Result<ReleaseOutcome, Error> {
        self.on(limit, |holds, now| {
            let released =
                holds.execute("DELETE FROM holds WHERE key = ?1 AND locker = ?2", [claim.key, claim.locker])?;
            Ok(match released {
                0 => ReleaseOutcome::NotOurs(not_ours(holds, claim.key, now)?),
                _ => ReleaseOutcome::Released { waiting: 0 },
            })
        })
    }

    fn inspect(&self, key: &str, limit: Limit) -> Result<Inspection, Error> {
        let holder = self.on(limit, |holds, now| holder(holds, key, now))?;
        Ok(holder.map_or(Inspection::free(), |holder| Inspection::held_by(holder.locker, holder.remaining)))
    }
}

impl LockProcessor for SqliteLockProcessor {
    fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        one_by_one(requests, limit, |request, limit| match request {
            Request::Acquire(claim) => self.acquire(claim, limit).map(Outcome::from),
            Request::Release(claim) => self.release(claim, limit).map(Outcome::from),
            Request::Inspect { key } => self.inspect(key, limit).map(Outcome::from),
            other => other.by_extension(|claim| self.extend(claim, limit)),
        })
    }
}

fn holder(holds: &Transaction<'_>, key: &str, now: i64) -> rusqlite::Result<Option<Holder>> {
    let holder = holds.query_row("SELECT locker, until - ?2 FROM holds WHERE key = ?1", params![key, now], |row| {
        let remaining = row.get::<_, Option<i64>>(1)?.map(|left| Duration::from_nanos(left.cast_unsigned()));
        Ok(Holder { locker: row.get(0)?, remaining })
    });
    holder.optional()
}

fn not_ours(holds: &Transaction<'_>, key: &str, now: i64) -> rusqlite::Result<NotOurs> {
    Ok(NotOurs::new(holder(holds, key, now)?.map(|holder| holder.locker)))
}

/// The nanoseconds since this boot.
fn now() -> i64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn nanos(lease: Duration) -> i64 {
    i64::try_from(lease.as_nanos()).unwrap_or(i64::MAX / 2)
}

fn not_executed(error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Error::denied(error.to_string()),
        Some(ErrorCode::DiskFull) => failed(BackendFailure::Refused, error),
        _ => failed(BackendFailure::NotExecuted, error),
    }
}

fn failed(failure: BackendFailure, error: rusqlite::Error) -> Error {
    Error::backend_caused_by(failure, error.to_string(), error)
}
