//! `dlock ls`: the locks that somebody holds or waits for.

use crate::args::{Ls, Which};
use crate::output::{self, millis, one_line, table, time};
use crate::status::Failure;
use crate::store;
use redis_dlock::{DLockGenerator, Error, ListedLock};
use serde_json::json;
use std::collections::BTreeMap;

pub(crate) fn list(url: Option<&str>, wanted: &Ls) -> Result<u8, Failure> {
    let locks = ask(&store::connect(url)?, &wanted.which)?;
    output::print(&if wanted.json { lines(&locks) } else { page(&locks) })?;
    Ok(0)
}

/// All locks, by their names: a server may tell of one twice.
pub(crate) fn ask(generator: &DLockGenerator, which: &Which) -> Result<Vec<ListedLock>, Error> {
    let found: Result<BTreeMap<_, _>, _> =
        generator.list(&which.pattern).map(|lock| lock.map(|lock| (lock.key.clone(), lock))).collect();
    Ok(found?.into_values().collect())
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
        "waiting": lock.waiting,
    })
}

/// A table for people.
pub(crate) fn page(locks: &[ListedLock]) -> String {
    let row = |lock: &ListedLock| {
        [
            one_line(&lock.key),
            match &lock.locker {
                None => "-".to_owned(),
                Some(locker) if lock.lock_delay.is_some() => format!("(delay after {})", one_line(locker)),
                Some(locker) => one_line(locker),
            },
            lock.remaining.map_or_else(|| "-".to_owned(), time),
            lock.waiting.to_string(),
        ]
    };
    table(["LOCK", "HOLDER", "LEASE LEFT", "WAITING"], locks.iter().map(row))
}
