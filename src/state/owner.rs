//! The owners of holds: threads, and the values of type [`Hold`](crate::Hold), which belong to no thread. Each owner has a number that no
//! other owner of this process ever has, and a name for people. Of a thread this file also knows whether it has ended without unlocking.
//!
//! A thread enters its name in a table when it gets its number, and removes it when it ends. A [`HoldNumber`] does so when it is made and
//! dropped.
//!
//! Each thread counts its holds. A thread that ends while its count is not zero leaves its number in the table of
//! *ended* threads, where the lease thread finds it before it next extends the lease. (A guard can be left behind
//! only by [`mem::forget`](std::mem::forget); a pair of [`UnguardedLock`](crate::UnguardedLock) can simply lack its
//! unlock.) When a client is dropped, its remaining holds are removed from their threads' counts.

use crate::one_line::OneLine;
use crate::process::Process;
use crate::sync::thread_local;
use parking_lot::{Mutex, MutexGuard};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;
// Not the model's atomics: these only count, and outlive the model's executions.
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The number that no owner has.
pub(crate) const NOBODY: u64 = 0;

/// The bit that the number of a hold has, and that of a thread does not have.
const OF_A_HOLD: u64 = 1 << 62;

/// The number of the newest owner.
static LAST: AtomicU64 = AtomicU64::new(NOBODY);

/// How many threads are in the table of ended ones. It is mostly zero, and then nobody has to look.
// ORDERING: Relaxed. It changes only under the mutex of the books. A thread that sees more than zero reads the table under that mutex. The lease thread
// looks again in its next round if it has seen an outdated zero.
static ANY: AtomicUsize = AtomicUsize::new(0);

/// The books of the first process. They have those of its forked children.
static FIRST: OnceLock<ProcessBooks> = OnceLock::new();

/// The books of one process. A forked child has its own ones: a thread that it does not have may have held the mutex of its parent's at the fork.
struct ProcessBooks {
    process: Process,
    books: Mutex<Books>,
    of_child: OnceLock<Box<Self>>,
}

impl ProcessBooks {
    fn new(books: Books) -> Self {
        Self { process: Process::this(), books: Mutex::new(books), of_child: OnceLock::new() }
    }

    /// Makes the books of a forked child: a copy of these, or empty ones if these were in use at the fork.
    fn copied(&self) -> Box<Self> {
        let books = self.books.try_lock().map(|books| books.clone());
        Box::new(Self::new(books.unwrap_or_default()))
    }
}

/// Takes the books of the calling process.
fn books() -> MutexGuard<'static, Books> {
    let mut of = FIRST.get_or_init(|| ProcessBooks::new(Books::default()));
    while of.process.is_forked() {
        of = of.of_child.get_or_init(|| of.copied());
    }
    of.books.lock()
}

#[derive(Clone, Default)]
struct Books {
    /// The names of the owners that have not ended.
    names: BTreeMap<u64, OwnerName>,
    /// The ended threads, with the number of holds that they left.
    ended: BTreeMap<u64, usize>,
    /// Threads that have not ended, with the number of their holds that were dropped with their clients.
    gone: BTreeMap<u64, usize>,
}

/// The name and the id of a thread, as far as they are known. A hold has the name that the program gave it, or else those of the thread that
/// took it.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnerName {
    pub(crate) name: Option<String>,
    /// The number in its `ThreadId`.
    pub(crate) id: Option<u64>,
}

impl OwnerName {
    fn of_current_thread() -> Self {
        let thread = std::thread::current();
        let id: String = format!("{:?}", thread.id()).chars().filter(char::is_ascii_digit).collect();
        Self { name: thread.name().map(str::to_owned), id: id.parse().ok() }
    }
}

/// Shows the name on one line, or else the number of the thread.
impl fmt::Display for OwnerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, self.id) {
            (Some(name), _) => write!(f, "\"{}\"", OneLine(name)),
            (None, Some(id)) => write!(f, "thread {id}"),
            (None, None) => f.write_str("a thread that has ended"),
        }
    }
}

/// The number of one hold that belongs to no thread. The name of the hold is in the table for as long as this lives.
#[derive(Debug)]
pub(crate) struct HoldNumber(u64);

impl HoldNumber {
    /// Makes a number. Without a name, people are shown that of the calling thread, and its id.
    pub(crate) fn new(name: Option<&str>) -> Self {
        let (number, taker) = (next_number() | OF_A_HOLD, current_thread());
        let mut books = books();
        let shown = match name {
            Some(name) => OwnerName { name: Some(name.to_owned()), id: None },
            None => books.names.get(&taker).cloned().unwrap_or_default(),
        };
        books.names.insert(number, shown);
        drop(books);
        Self(number)
    }

    pub(crate) fn get(&self) -> u64 {
        self.0
    }

    /// Moves the number out. What is left belongs to no hold.
    #[cfg(feature = "async")]
    pub(crate) fn take(&mut self) -> Self {
        Self(std::mem::replace(&mut self.0, NOBODY))
    }
}

impl Drop for HoldNumber {
    fn drop(&mut self) {
        let name = books().names.remove(&self.0);
        drop(name);
    }
}

/// Returns whether this is the number of a thread.
pub(crate) fn is_thread(number: u64) -> bool {
    number & OF_A_HOLD == 0
}

/// The holds of one thread. Dropped when the thread ends.
struct ThreadHolds {
    thread: u64,
    count: Cell<usize>,
}

thread_local! {
    // It needs neither a destructor nor lazy initialization, so it is readable until the very end of the thread, in one step.
    static NUMBER: Cell<u64> = const { Cell::new(NOBODY) };
    static HOLDS: ThreadHolds = ThreadHolds { thread: current_thread(), count: Cell::new(0) };
}

impl Drop for ThreadHolds {
    fn drop(&mut self) {
        let mut books = books();
        let name = books.names.remove(&self.thread);
        if self.count.get() > 0 {
            let left = self.count.get().saturating_sub(books.gone.remove(&self.thread).unwrap_or(0));
            if left > 0 {
                books.ended.insert(self.thread, left);
                ANY.fetch_add(1, Ordering::Relaxed); // ORDERING: under the mutex of the books: see `ANY`.
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
    match NUMBER.with(Cell::get) {
        NOBODY => enter(),
        known => known,
    }
}

/// Gives the calling thread a number, and enters its name.
#[cold]
fn enter() -> u64 {
    let number = next_number();
    NUMBER.with(|place| place.set(number));
    // If the thread-locals of the thread are already gone, nothing would remove the name any more, so it is not entered.
    if HOLDS.try_with(|_| ()).is_ok() {
        let name = OwnerName::of_current_thread();
        books().names.insert(number, name);
    }
    number
}

fn next_number() -> u64 {
    // ORDERING: Relaxed: each addition returns another number, and nothing else is published.
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// Returns the name of the owner with this number, if it has not ended.
pub(crate) fn name_of(number: u64) -> Option<OwnerName> {
    books().names.get(&number).cloned()
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
    ANY.load(Ordering::Relaxed) > 0 && books().ended.contains_key(&thread)
}

/// Counts a hold of an ended thread out.
pub(crate) fn forget_hold(thread: u64) {
    books().count_out(thread);
}

/// Counts out a hold that was dropped with its client. Any thread may call this. A hold that belongs to no thread is not counted.
pub(crate) fn hold_is_gone(owner: u64) {
    if owner == current_thread() {
        hold_ends();
    } else if is_thread(owner) {
        let mut books = books();
        if !books.count_out(owner) {
            *books.gone.entry(owner).or_default() += 1;
        }
    }
}

impl Books {
    /// Counts out one hold of an ended thread. Returns `false` if the thread has not ended.
    fn count_out(&mut self, thread: u64) -> bool {
        let Some(count) = self.ended.get_mut(&thread) else { return false };
        *count -= 1;
        if *count == 0 {
            self.ended.remove(&thread);
            ANY.fetch_sub(1, Ordering::Relaxed); // ORDERING: under the mutex of the books: see `ANY`.
        }
        true
    }
}

#[cfg(test)]
#[path = "../../tests/white_box/state/owner.rs"]
mod tests;
