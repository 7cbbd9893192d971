//! `dlock ls` lists the locks that somebody holds or waits for.

mod long;

use crate::args::{Ls, Which};
use crate::message::complain;
use crate::output::{self, Columns, millis, one_line, time};
use crate::settings::Settings;
use crate::show;
use crate::status::{Failure, of};
use redis_dlock::{DLockGenerator, Error, ListedLock};
use serde_json::json;
use std::collections::{BTreeMap, HashSet};

/// How many locks are sorted by name and printed together. A user with many locks sees the first ones soon.
const TOGETHER: usize = 256;

/// The columns. The first two are cut on a narrow terminal.
const HEAD: [&str; 4] = ["LOCK", "HOLDER", "LEASE LEFT", "WAITING"];

/// Prints the locks as they are found. Names a master of a Cluster that does not answer at once; the exit status is that of this failure.
pub(crate) fn list(settings: &Settings, wanted: &Ls) -> Result<u8, Failure> {
    let generator = settings.connect()?;
    let mut found = generator.list(&wanted.which.pattern);
    let (mut seen, mut columns, mut status) = (HashSet::new(), Columns::new(HEAD), 0);
    let mut long_columns = Columns::new([HEAD[0], HEAD[1], HEAD[2], HEAD[3], "AGE"]);
    let mut is_first = true;
    loop {
        let mut locks = BTreeMap::new();
        while locks.len() < TOGETHER {
            match found.next() {
                None => break,
                // A server may return a lock twice.
                Some(Ok(lock)) if !seen.insert(lock.key.clone()) => {}
                Some(Ok(lock)) => drop(locks.insert(lock.key.clone(), lock)),
                Some(Err(error)) => {
                    complain(&error.to_string());
                    status = of(&error);
                }
            }
        }
        let is_last = locks.len() < TOGETHER;
        let locks: Vec<_> = locks.into_values().collect();
        let told = if wanted.long { long::told(&generator, &locks) } else { Vec::new() };
        let text = match (wanted.json, wanted.long) {
            (true, true) => long::documents(locks.iter().map(document), &told),
            (true, false) => lines(&locks),
            (false, true) => long::lines(&mut long_columns, locks.iter().map(row).collect(), &told),
            (false, false) => columns.lines(locks.iter().map(row)),
        };
        // If the whole question has failed, nothing is printed.
        let is_failed = is_first && locks.is_empty() && status != 0;
        if !is_failed && !output::print(&text)? || is_last {
            return Ok(status);
        }
        is_first = false;
    }
}

/// All locks that were found, by their names. Each is there once, even if a server returns it twice.
pub(crate) struct AllLocks {
    pub(crate) locks: Vec<ListedLock>,
    /// The masters of a Cluster that do not answer, each in words.
    pub(crate) missing: Vec<Error>,
}

/// Asks for all locks. Fails if the store says that it will never tell.
pub(crate) fn ask(generator: &DLockGenerator, which: &Which) -> Result<AllLocks, Error> {
    let (mut locks, mut missing) = (BTreeMap::new(), Vec::new());
    for lock in generator.list(&which.pattern) {
        match lock {
            Ok(lock) => drop(locks.insert(lock.key.clone(), lock)),
            Err(error) if error.is_transient() => missing.push(error),
            Err(error) => return Err(error),
        }
    }
    Ok(AllLocks { locks: locks.into_values().collect(), missing })
}

/// One JSON document a lock.
fn lines(locks: &[ListedLock]) -> String {
    locks.iter().map(|lock| format!("{}\n", document(lock))).collect()
}

pub(crate) fn document(lock: &ListedLock) -> serde_json::Value {
    json!({
        "key": lock.key,
        "locker": lock.locker,
        "remaining_ms": lock.remaining.map(millis),
        "lock_delay_ms": lock.lock_delay.map(millis),
        "delayed_release": lock.delayed_release.as_ref().map(|ended| show::delayed(ended, lock.remaining)),
        "waiting": lock.waiting,
    })
}

/// A table for people, not wider than this.
pub(crate) fn page(locks: &[ListedLock], width: usize) -> String {
    Columns::new(HEAD).within(width).lines(locks.iter().map(row))
}

fn row(lock: &ListedLock) -> [String; 4] {
    [
        one_line(&lock.key),
        match (&lock.locker, &lock.delayed_release) {
            (None, _) => "-".to_owned(),
            (_, Some(ended)) => format!("(kept after {})", one_line(&ended.locker)),
            (Some(locker), None) if lock.lock_delay.is_some() => format!("(delay after {})", one_line(locker)),
            (Some(locker), None) => one_line(locker),
        },
        lock.remaining.map_or_else(|| "-".to_owned(), time),
        lock.waiting.to_string(),
    ]
}
