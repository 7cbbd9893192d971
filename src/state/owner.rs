//! Threads as owners of holds: the number of each thread, its name for people, and whether it has ended without unlocking.
//!
//! A thread enters its name in a table when it gets its number, and removes it when it ends.
//!
//! Each thread counts its holds. A thread that ends while its count is not zero leaves its number in the table of
//! *ended* threads, where the lease thread finds it before it next extends the lease. (A guard can be left behind
//! only by [`mem::forget`](std::mem::forget); a pair of [`UnguardedLock`](crate::UnguardedLock) can simply lack its
//! unlock.) When a client is dropped, its remaining holds are removed from their threads' counts.

use crate::sync::thread_local;
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeMap;
// Not the model's atomics: these only count, and outlive the model's executions.
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The number that no thread has.
pub(crate) const NOBODY: u64 = 0;

/// How many threads are in the table of ended ones. It is mostly zero, and then nobody has to look.
// ORDERING: Relaxed would do. It changes only under the mutex of `BOOKS`, and whoever sees more than zero reads the
// table under that mutex. Whoever sees zero too late looks again in the lease thread's next round.
static ANY: AtomicUsize = AtomicUsize::new(0);

static BOOKS: Mutex<Books> =
    Mutex::new(Books { names: BTreeMap::new(), ended: BTreeMap::new(), gone: BTreeMap::new() });

struct Books {
    /// The names of the threads that have not ended.
    names: BTreeMap<u64, ThreadName>,
    /// The ended threads, with the number of holds that they left.
    ended: BTreeMap<u64, usize>,
    /// Threads that have not ended, with the number of their holds that were dropped with their clients.
    gone: BTreeMap<u64, usize>,
}

/// The name and the id of a thread, as far as they are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadName {
    pub(crate) name: Option<String>,
    /// The number in its `ThreadId`.
    pub(crate) id: Option<u64>,
}

/// The holds of one thread. Dropped when the thread ends.
struct Holds {
    thread: u64,
    count: Cell<usize>,
}

thread_local! {
    static HOLDS: Holds = Holds { thread: current_thread(), count: Cell::new(0) };
}

impl Drop for Holds {
    fn drop(&mut self) {
        let mut books = BOOKS.lock();
        let name = books.names.remove(&self.thread);
        if self.count.get() > 0 {
            let left = self.count.get().saturating_sub(books.gone.remove(&self.thread).unwrap_or(0));
            if left > 0 {
                books.ended.insert(self.thread, left);
                ANY.fetch_add(1, Ordering::Release); // ORDERING: under the mutex of `BOOKS`: see `ANY`.
            }
        }
        drop(books);
        drop(name);
    }
}

/// Returns whether the calling thread holds a lock of any client.
pub(crate) fn has_holds() -> bool {
    HOLDS.try_with(|holds| holds.count.get() > 0).unwrap_or(false)
}

/// Returns the calling thread's number, which no other thread of this process ever has. (Reading
/// `std::thread::ThreadId` takes fifteen times as long.)
#[inline]
pub(crate) fn current_thread() -> u64 {
    // It needs neither a destructor nor lazy initialization, so it is readable until the very end of the thread, in
    // one step.
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(NOBODY) };
    }
    NUMBER.with(|number| match number.get() {
        NOBODY => enter(number),
        known => known,
    })
}

/// Gives the calling thread a number, and enters its name.
#[cold]
fn enter(place: &Cell<u64>) -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(NOBODY);
    // ORDERING: Relaxed: each addition returns another number, and nothing else is published.
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    place.set(number);
    // If the thread-locals of the thread are already gone, nothing would remove the name any more, so it is not entered.
    if HOLDS.try_with(|_| ()).is_ok() {
        let thread = std::thread::current();
        let id: String = format!("{:?}", thread.id()).chars().filter(char::is_ascii_digit).collect();
        let name = ThreadName { name: thread.name().map(str::to_owned), id: id.parse().ok() };
        BOOKS.lock().names.insert(number, name);
    }
    number
}

/// Returns the name of the thread with this number, if it has not ended.
pub(crate) fn name_of(number: u64) -> Option<ThreadName> {
    BOOKS.lock().names.get(&number).cloned()
}

/// Counts a hold of the calling thread.
pub(crate) fn hold_begins() {
    // At the very end of a thread the count is gone: the lease of such a hold is extended until it is unlocked.
    let _ = HOLDS.try_with(|holds| holds.count.set(holds.count.get() + 1));
}

/// Decrements the calling thread's count of holds.
pub(crate) fn hold_ends() {
    let counted = HOLDS.try_with(|holds| holds.count.set(holds.count.get().saturating_sub(1)));
    if counted.is_err() {
        forget_hold(current_thread());
    }
}

/// Returns whether a thread has ended with holds.
pub(crate) fn has_ended(thread: u64) -> bool {
    // ORDERING: a hint that saves taking the mutex: see `ANY`.
    ANY.load(Ordering::Acquire) > 0 && BOOKS.lock().ended.contains_key(&thread)
}

/// Counts a hold of an ended thread out.
pub(crate) fn forget_hold(thread: u64) {
    BOOKS.lock().count_out(thread);
}

/// Counts out a hold that was dropped with its client. Any thread may call this.
pub(crate) fn hold_is_gone(thread: u64) {
    if thread == current_thread() {
        return hold_ends();
    }
    let mut books = BOOKS.lock();
    if !books.count_out(thread) {
        *books.gone.entry(thread).or_default() += 1;
    }
}

impl Books {
    /// Counts out one hold of an ended thread. Returns `false` if the thread has not ended.
    fn count_out(&mut self, thread: u64) -> bool {
        let Some(count) = self.ended.get_mut(&thread) else { return false };
        *count -= 1;
        if *count == 0 {
            self.ended.remove(&thread);
            ANY.fetch_sub(1, Ordering::Release); // ORDERING: under the mutex of `BOOKS`: see `ANY`.
        }
        true
    }
}

#[cfg(test)]
#[path = "../../tests/white_box/state/owner.rs"]
mod tests;
