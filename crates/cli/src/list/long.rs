//! `dlock ls --long` asks each holder how long it has held its lock, and why.

use crate::output::{Columns, millis, one_line, time};
use redis_dlock::{DLockGenerator, ListedLock, Told};
use serde_json::Value;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// How many holders are asked at once. One that does not answer keeps its thread for a while.
const ASKED: usize = 16;

/// Returns the answers of the locks' holders, in the order of the locks.
pub(super) fn told(generator: &DLockGenerator, locks: &[ListedLock]) -> Vec<Option<Told>> {
    let next = AtomicUsize::new(0);
    let ask = || {
        let mut answers = Vec::new();
        while let at = next.fetch_add(1, Ordering::SeqCst)
            && let Some(lock) = locks.get(at)
        {
            answers.push((at, holder(generator, lock)));
        }
        answers
    };
    let mut told = vec![None; locks.len()];
    thread::scope(|scope| {
        let threads: Vec<_> = (0..ASKED.min(locks.len())).map(|_| scope.spawn(ask)).collect();
        for (at, answer) in threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()) {
            told[at] = answer;
        }
    });
    told
}

/// Returns the answer of a lock's holder. `None` if the lock has another holder than the list says.
fn holder(generator: &DLockGenerator, lock: &ListedLock) -> Option<Told> {
    let name = lock.key.strip_prefix("DLOCK_")?;
    let (lock_type, target) = name.split_once('_')?;
    let holder = generator.describe(lock_type, target).ok()?.holder?;
    holder.told.filter(|_| lock.locker.as_ref() == Some(&holder.locker))
}

/// The table with the columns `AGE` and `REASON`. The last column is a text, and may be long.
pub(super) fn lines(columns: &mut Columns<5>, rows: Vec<[String; 4]>, told: &[Option<Told>]) -> String {
    let age = |told: &Option<Told>| told.as_ref().and_then(|told| told.held_for).map_or_else(|| "-".to_owned(), time);
    let reason = |told: &Option<Told>| {
        told.as_ref().and_then(|told| told.reason.as_deref()).map_or_else(|| "-".to_owned(), one_line)
    };
    let rows = rows
        .into_iter()
        .zip(told)
        .map(|([lock, holder, left, waiting], told)| [lock, holder, left, waiting, age(told)]);
    let head = columns.has_head().then(|| "REASON".to_owned());
    let table = columns.lines(rows);
    let reasons = head.into_iter().chain(told.iter().map(reason));
    table.lines().zip(reasons).map(|(line, reason)| format!("{line}  {reason}\n")).collect()
}

/// One JSON document a lock.
pub(super) fn documents(documents: impl Iterator<Item = Value>, told: &[Option<Told>]) -> String {
    let line = |(mut document, told): (Value, &Option<Told>)| {
        document["held_for_ms"] = told.as_ref().and_then(|told| told.held_for).map(millis).into();
        document["reason"] = told.as_ref().and_then(|told| told.reason.clone()).into();
        format!("{document}\n")
    };
    documents.zip(told).map(line).collect()
}
