//! The guard of one hold.

use crate::error::{Error, LeaseLoss};
use crate::lock::reentrant::DistributedReentrantLock;
use crossbeam_channel::Receiver;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

/// Keeps the lock until it is dropped, as a guard of `std::sync::Mutex` does, or until its lease is lost.
///
/// It belongs to the thread that locked: it cannot be sent to another one, though others may look at it.
///
/// Dropping it writes the release to the connection and does not wait for the store's answer, unless threads of this process are
/// waiting for the lock: then it waits, because the answer decides who of them is next. When many threads use the connection, the
/// release may be left to a thread that is about to write: over time, of 500 releases at most one (and one burst of some 64 when the machine stalls) is written more than 200 µs after the
/// drop. It blocks for the writing, at most for the limit of
/// one command (a second, unless set otherwise) where the connection takes nothing. A release that fails is repeated in the
/// background, and logged. A lease that turns out lost by then is told to the log, to [`lost`](Self::lost) and to the hook.
/// [`unlock`](Self::unlock) waits, and returns what came of it.
///
/// # The end of the program
///
/// On Linux with the GNU C library and on macOS, the end of the main thread (`main` returns or panics, or calls `exit`) waits for
/// the answers to the releases of dropped guards, of all generators that the main thread has used, on whichever thread they were
/// dropped; and for their repetition where the server had forgotten the script or the connection was cut. It waits at most for twice the limit of a command. A
/// lock can stay behind for its lease where nothing waits: on other platforms, when another thread calls `exit`, when
/// the main thread has used the generator for nothing, after `abort` or a signal, and when the server does not answer in time. In the first three of
/// these cases the release was still written, or left to a thread about to write, and stays without effect only if the server had forgotten the script or the connection was cut since the
/// lock. Where that matters, call [`DLockGenerator::close`](crate::DLockGenerator::close), or
/// [`unlock`](Self::unlock), before the end.
///
/// The owner is the *thread*, not a task of an async program: do not keep a guard over an `.await`. Where the executor may move the task, the
/// compiler refuses it; on an executor with a single thread it compiles, and another task of that thread that locks *reenters*: two
/// are inside. [Async code](crate#async-code) says what to do instead.
///
/// ```compile_fail,E0277
/// # use redis_dlock::{DLockGenerator, MemoryLockProcessor};
/// # let lock = DLockGenerator::new(MemoryLockProcessor::new()).unwrap().generate("T", "x").unwrap();
/// let guard = lock.lock().unwrap();
/// std::thread::scope(|scope| scope.spawn(move || drop(guard)).join()); // error: TheThreadThatLocksMustUnlock
/// ```
#[derive(Debug)]
#[must_use = "the lock is unlocked at once when its guard is dropped"]
pub struct DLockGuard<'a> {
    lock: &'a DistributedReentrantLock,
    token: u64,
    done: bool,
    _of_this_thread: PhantomData<OfThisThread>,
}

/// `Sync` but not `Send`; the compiler names the trait where a guard would leave its thread.
pub(crate) type OfThisThread = dyn TheThreadThatLocksMustUnlock + Sync + Unpin + UnwindSafe + RefUnwindSafe;

/// Its name is its only purpose.
pub(crate) trait TheThreadThatLocksMustUnlock {}

impl<'a> DLockGuard<'a> {
    #[inline]
    pub(crate) fn new(lock: &'a DistributedReentrantLock, token: u64) -> Self {
        Self { lock, token, done: false, _of_this_thread: PhantomData }
    }

    /// The fencing token of this hold: greater than that of every hold of this key before, the same on reentry.
    ///
    /// Hand it to whatever the lock protects, and let that refuse anything with a smaller token than it has seen: then not even a holder
    /// that was stopped past its lease, and does not know it yet, can do harm (Kleppmann, "How to do distributed
    /// locking", 2016). It fits a signed 64-bit column.
    #[must_use]
    pub fn fencing_token(&self) -> u64 {
        self.token
    }

    /// Whether the lease is certainly still ours. Once `false`, it stays so. Does not block.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.lock.holds_validly(self.token)
    }

    /// For how long the lease is certainly ours if it is not extended again; zero when it is lost. Does not block.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.lock.remaining_of(self.token)
    }

    /// Fails unless the lease is certainly still ours. Does not block. To be called before each step that must not
    /// run beside another holder.
    ///
    /// # Errors
    ///
    /// [`Error::LeaseLost`] with the cause; [`Error::NotHeld`] when the hold was ended by
    /// [`UnguardedLock::unlock`](crate::UnguardedLock::unlock).
    pub fn ensure_valid(&self) -> Result<(), Error> {
        self.lock.ensure_valid_hold(self.token)
    }

    /// A channel that receives one message when the lease is lost, at once if it is lost already. When the hold ends
    /// without a loss, the channel is disconnected without a message. Each call makes a channel of its own, which lives as
    /// long as the hold: call it once and keep what it returns. A second watcher needs a call of its own: clones of a receiver share the
    /// one message. Does not block.
    ///
    /// ```
    /// # use redis_dlock::{DLockGenerator, MemoryLockProcessor};
    /// # let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
    /// # let lock = generator.generate("ORDER", "4711")?;
    /// let guard = lock.lock()?;
    /// let lost = guard.lost();
    /// let watcher = std::thread::spawn(move || match lost.recv() {
    ///     Ok(()) => "lost: stop the work",
    ///     Err(_) => "unlocked in time",
    /// });
    /// guard.unlock()?;
    /// assert_eq!(watcher.join().expect("no panic"), "unlocked in time");
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    #[must_use]
    pub fn lost(&self) -> Receiver<()> {
        self.lock.watch_hold(self.token)
    }

    /// How the lease was lost; `None` while it is valid, in a forked child, and after a hold that [`UnguardedLock::unlock`](crate::UnguardedLock::unlock) ended.
    /// Does not block.
    #[must_use]
    pub fn loss(&self) -> Option<LeaseLoss> {
        self.lock.loss_of(self.token)
    }

    /// Unlocks, waits for the store's answer, and tells what came of it.
    ///
    /// # Errors
    ///
    /// * [`Error::LeaseLost`]: the hold was not exclusive to its end. It is over all the same.
    /// * [`Error::Backend`], [`Error::Denied`]: the store did not confirm. The hold is over for this process; the
    ///   release is repeated in the background, and ends with the lease at the latest.
    /// * [`Error::NotHeld`]: [`UnguardedLock::unlock`](crate::UnguardedLock::unlock) ended the hold before.
    #[inline]
    pub fn unlock(mut self) -> Result<(), Error> {
        self.done = true;
        self.lock.unlock_hold(self.token)
    }
}

impl Drop for DLockGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.done {
            self.lock.unlock_dropped(self.token);
        }
    }
}
