//! Threads as owners of holds: a number for each, and whether one has ended without unlocking.
//!
//! A thread counts its holds. When it ends while the count is not zero, it leaves its number with the *ended* ones, where the
//! lease thread finds it before it extends the lease again. (A guard cannot be left behind but by
//! [`mem::forget`](std::mem::forget); the pairs of [`UnguardedLock`](crate::UnguardedLock) can.) A hold that goes with its client
//! is nobody's any more, and is counted out by whoever drops the client.

use crate::sync::thread_local;
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeMap;
// Not those of the model: these only count, and outlive the model's executions.
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The number of no thread.
pub(crate) const NOBODY: u64 = 0;

/// How many threads are among the ended ones: mostly none, and then nobody has to look.
static ANY: AtomicUsize = AtomicUsize::new(0);

static BOOKS: Mutex<Books> = Mutex::new(Books { ended: BTreeMap::new(), gone: BTreeMap::new() });

struct Books {
    /// The ended threads, with the number of their holds that are still there.
    ended: BTreeMap<u64, usize>,
    /// Threads that have not ended, with the number of their holds that went with their clients.
    gone: BTreeMap<u64, usize>,
}

/// The holds of one thread; dropped when it ends.
struct Holds {
    thread: u64,
    count: Cell<usize>,
}

thread_local! {
    static HOLDS: Holds = Holds { thread: current_thread(), count: Cell::new(0) };
}

impl Drop for Holds {
    fn drop(&mut self) {
        if self.count.get() > 0 {
            let mut books = BOOKS.lock();
            let left = self.count.get().saturating_sub(books.gone.remove(&self.thread).unwrap_or(0));
            if left > 0 {
                books.ended.insert(self.thread, left);
                ANY.fetch_add(1, Ordering::Release);
            }
        }
    }
}

/// A number for the calling thread that no other thread of this process ever has. (`std::thread::ThreadId` costs
/// fifteen times as much to read.)
#[inline]
pub(crate) fn current_thread() -> u64 {
    // Nothing to drop, and nothing to run at first: it can be read until the very end of the thread, in one step.
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(NOBODY) };
    }
    NUMBER.with(|number| match number.get() {
        NOBODY => {
            let new = next_number();
            number.set(new);
            new
        }
        known => known,
    })
}

#[cold]
fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(NOBODY);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// The calling thread has one more hold.
pub(crate) fn hold_begins() {
    // At the very end of a thread nobody counts any more; its lease is extended for as long as it is not unlocked.
    let _ = HOLDS.try_with(|holds| holds.count.set(holds.count.get() + 1));
}

/// The calling thread has one hold less.
pub(crate) fn hold_ends() {
    let counted = HOLDS.try_with(|holds| holds.count.set(holds.count.get().saturating_sub(1)));
    if counted.is_err() {
        forget_hold(current_thread());
    }
}

/// Whether a thread has ended with holds.
pub(crate) fn has_ended(thread: u64) -> bool {
    ANY.load(Ordering::Acquire) > 0 && BOOKS.lock().ended.contains_key(&thread)
}

/// A hold of an ended thread is out of the books.
pub(crate) fn forget_hold(thread: u64) {
    BOOKS.lock().count_out(thread);
}

/// A hold has gone with its client, on whichever thread.
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
    /// One hold less of an ended thread; `false` when it has not ended.
    fn count_out(&mut self, thread: u64) -> bool {
        let Some(count) = self.ended.get_mut(&thread) else { return false };
        *count -= 1;
        if *count == 0 {
            self.ended.remove(&thread);
            ANY.fetch_sub(1, Ordering::Release);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DLockGenerator, MemoryLockProcessor};
    use std::thread;

    #[test]
    fn thread_numbers_differ() {
        let mine = current_thread();
        assert_eq!(mine, current_thread());
        let other = thread::spawn(current_thread).join().expect("thread");
        assert_ne!(mine, other);
        assert_ne!(mine, NOBODY);
    }

    #[test]
    fn a_thread_that_ends_with_holds_is_known_until_they_are_forgotten() {
        let tidy = thread::spawn(|| {
            hold_begins();
            hold_ends();
            current_thread()
        });
        assert!(!has_ended(tidy.join().expect("thread")));
        let untidy = thread::spawn(|| {
            (0..3).for_each(|_| hold_begins());
            hold_ends();
            assert!(!has_ended(current_thread()));
            current_thread()
        });
        let thread = untidy.join().expect("thread");
        for _ in 0..2 {
            assert!(has_ended(thread));
            forget_hold(thread);
        }
        assert!(!has_ended(thread));
        forget_hold(thread);
    }

    fn generator() -> DLockGenerator {
        DLockGenerator::new(MemoryLockProcessor::new()).expect("a generator")
    }

    fn is_forgotten(thread: u64) -> bool {
        let books = BOOKS.lock();
        !books.ended.contains_key(&thread) && !books.gone.contains_key(&thread)
    }

    #[test]
    fn a_hold_that_goes_with_its_client_is_nobodys() {
        // While its thread lives: on that thread, on another; and when it has ended.
        let alone = thread::spawn(|| {
            generator().generate("OWNER", "x").expect("a lock").unguarded().lock().expect("held");
            current_thread()
        });
        assert!(is_forgotten(alone.join().expect("thread")));
        for ends_first in [false, true] {
            let (generator, (tell, told)) = (generator(), crossbeam_channel::bounded::<()>(0));
            let lock = generator.generate("OWNER", "x").expect("a lock").unguarded();
            let holder = thread::spawn(move || {
                lock.lock().expect("held");
                drop(lock);
                let _ = told.recv();
                current_thread()
            });
            let thread = if ends_first {
                drop(tell);
                let thread = holder.join().expect("thread");
                assert!(has_ended(thread) || is_forgotten(thread));
                drop(generator);
                thread
            } else {
                // It waits for this without the lock.
                let _ = tell.send(());
                drop(generator);
                holder.join().expect("thread")
            };
            assert!(is_forgotten(thread), "{ends_first}");
        }
    }
}
