//! The store passes the suite.

#![allow(clippy::unwrap_used, reason = "a case that goes wrong is a panic")]

use super::{SqliteLockProcessor, nanos};
use dlock_conformance::Store;
use redis_dlock::LockProcessor;
use redis_dlock::port::Limit;
use rusqlite::{Transaction, params};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

dlock_conformance::conformance_tests!(
    sqlite, FreshFile::new(), lacks Queue Numbers Gaps Keeps Denials Directory Posting Settling Breaking Delays
);

/// A file of one case, and the administrator's connection to it.
struct FreshFile {
    directory: TempDir,
    administrator: SqliteLockProcessor,
}

impl FreshFile {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let administrator = SqliteLockProcessor::open(path(&directory)).unwrap();
        Self { directory, administrator }
    }

    fn on<R>(&self, act: impl FnOnce(&Transaction<'_>, i64) -> rusqlite::Result<R>) -> R {
        self.administrator.on(Limit::Call(Duration::from_secs(20)), act).unwrap()
    }
}

fn path(directory: &TempDir) -> PathBuf {
    directory.path().join("locks.db")
}

impl Store for FreshFile {
    fn processor(&self) -> Arc<dyn LockProcessor> {
        Arc::new(SqliteLockProcessor::open(path(&self.directory)).unwrap())
    }

    fn delete(&self, key: &str) -> bool {
        self.on(|holds, _| holds.execute("DELETE FROM holds WHERE key = ?1", [key])) == 1
    }

    fn overwrite(&self, key: &str, holder: &str, lease: Option<Duration>) {
        self.on(|holds, now| {
            holds.execute(
                "INSERT OR REPLACE INTO holds (key, locker, boot, until) VALUES (?1, ?2, ?3, ?4)",
                params![key, holder, self.administrator.boot, lease.map(|lease| now + nanos(lease))],
            )
        });
    }

    fn flush(&self) {
        self.on(|holds, _| holds.execute("DELETE FROM holds", []));
    }

    fn pass_time(&self, time: Duration) {
        thread::sleep(time);
    }

    fn leftovers(&self) -> Vec<String> {
        self.on(|holds, _| holds.prepare("SELECT key FROM holds")?.query_map([], |row| row.get(0))?.collect())
    }
}
