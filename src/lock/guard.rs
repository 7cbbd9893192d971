//! The guard of one hold.

use crate::client::wait_limit::WaitLimit;
use crate::error::{Error, LeaseLoss};
use crate::lock::handle::Handle;
use crossbeam_channel::Receiver;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

/// Keeps the lock until the guard is dropped, as a guard of `std::sync::Mutex` does, or until its lease is lost.
///
/// The guard belongs to the thread that locked. It cannot be sent to another thread, though other threads may use references to
/// it.
///
/// Dropping the guard writes the release to the connection and does not wait for the store's reply, unless threads of this process wait for the
/// lock: the reply decides which of them is next. The drop blocks while it writes, or while another thread writes for it. If the connection
/// takes no data, it blocks for at most the limit of one command (one second unless set otherwise).
///
/// A release that fails is repeated in the background, and logged. If the lease turns out to have been lost, the loss is
/// reported to the log, to [`lost`](Self::lost) and to the hook. [`unlock`](Self::unlock) waits for the reply, and returns the
/// outcome.
///
/// # The end of the program
///
/// On Linux with the GNU C library and on macOS, the end of the main thread (`main` returns or panics, or calls `exit`) waits
/// for the replies to the releases of dropped guards. It does so for all generators that the main thread has used, whichever
/// thread dropped the guards. It also waits while such a release is repeated because the server had forgotten the script or the
/// connection was cut. It waits for at most twice the limit of a command, and never longer than ten seconds. This needs a `main` of Rust: a
/// library that another language has loaded waits for nothing.
///
/// Where nothing waits for the replies, a lock can stay behind until its lease ends: on other platforms, when another thread calls `exit`, when
/// the main thread has never used the generator, after `abort` or a signal, and when the server does not answer in time. Even there the release
/// was written when `drop` returned. The release has no effect only if the server had forgotten the script, if the connection was cut since the
/// lock, or if it took no data until the limit. Where that matters, call [`DLockGenerator::close`](crate::DLockGenerator::close), or
/// [`unlock`](Self::unlock), before the end.
///
/// A guard is `Sync` but not `Send`: any thread may query it through a reference, and only the thread that locked can unlock it.
///
/// The owner is the *thread*, not a task of an async program: do not keep a guard across an `.await`. Where the executor may
/// move the task to another thread, this does not compile. On a single-threaded executor it compiles, and if another task of
/// that thread locks, it *reenters*: two tasks are inside. A task keeps a [`Hold`](crate::Hold) instead:
/// [Tasks and thread pools](crate::manual::tasks_and_pools).
///
/// # Examples
///
/// ```
/// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("ORDER", "4711")?;
/// let guard = lock.lock()?;
/// // … a step of the work …
/// guard.ensure_valid()?; // before a step that must not run beside another holder
/// // … that step …
/// match guard.unlock() {
///     Err(error) if error.is_lost() => return Err(error), // another holder may have been inside meanwhile
///     _ => {} // the work was exclusive; a release that was not confirmed is repeated in the background
/// }
/// # Ok::<_, redis_dlock::Error>(())
/// ```
///
/// A guard does not leave its thread:
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
    handle: &'a Handle,
    token: u64,
    _of_this_thread: PhantomData<OfThisThread>,
}

/// `Sync` but not `Send`. The compiler's error names the trait where a guard would leave its thread.
pub(crate) type OfThisThread = dyn TheThreadThatLocksMustUnlock + Sync + Unpin + UnwindSafe + RefUnwindSafe;

/// Exists only for its name, which appears in the compiler's error.
pub(crate) trait TheThreadThatLocksMustUnlock {}

impl<'a> DLockGuard<'a> {
    #[inline]
    pub(super) fn new(handle: &'a Handle, token: u64) -> Self {
        Self { handle, token, _of_this_thread: PhantomData }
    }

    pub(super) fn acquire(handle: &'a Handle, limit: &WaitLimit<'_>) -> Result<Option<Self>, Error> {
        let Some(token) = handle.acquire(limit)? else { return Ok(None) };
        Ok(Some(Self::new(handle, token)))
    }

    /// Returns the fencing token of this hold: greater than that of every earlier hold of this key, and the same on reentry.
    ///
    /// Pass it to the resource that the lock protects, and let that resource refuse any token smaller than one it has seen.
    /// Then even a holder that was stopped past its lease, and does not know it yet, can do no harm (Kleppmann, "How to do
    /// distributed locking", 2016). The token fits a signed 64-bit column.
    #[must_use]
    pub fn fencing_token(&self) -> u64 {
        self.token
    }

    /// Returns `true` if the lease is certainly still valid. Once `false`, it stays `false`. Does not block.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.handle.holds_validly(self.token)
    }

    /// Returns for how long the lease is certainly valid if it is not extended again; zero if it is lost. Does not block.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.handle.remaining_of(self.token)
    }

    /// Returns for how long this hold has lasted; zero after a hold that [`UnguardedLock::unlock`](crate::UnguardedLock::unlock) ended.
    #[must_use]
    pub fn held_for(&self) -> Duration {
        self.handle.held_for(self.token)
    }

    /// Fails unless the lease is certainly still valid. Call it before each step that must not run beside another holder. Does
    /// not block.
    ///
    /// # Errors
    ///
    /// [`Error::LeaseLost`] with the cause; [`Error::NotHeld`] if [`UnguardedLock::unlock`](crate::UnguardedLock::unlock) ended
    /// the hold.
    pub fn ensure_valid(&self) -> Result<(), Error> {
        self.handle.ensure_valid_hold(self.token)
    }

    /// Returns a channel that receives one message when the lease is lost, or at once if it is lost already. If the hold ends
    /// without a loss, the channel is disconnected without a message. Does not block. If [`unlock`](Self::unlock) returns
    /// [`Error::LeaseLost`], the message has been sent before.
    ///
    /// Each call makes a new channel, which lives as long as the hold: call this once and keep the receiver. A second watcher
    /// needs a call of its own, because clones of a receiver share the one message.
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
    #[doc(alias = "HandleLostToken")]
    pub fn lost(&self) -> Receiver<()> {
        self.handle.key.watch(self.token)
    }

    /// Returns how the lease was lost; `None` while it is valid, in a forked child, and after a hold that
    /// [`UnguardedLock::unlock`](crate::UnguardedLock::unlock) ended. Does not block.
    #[must_use]
    pub fn loss(&self) -> Option<LeaseLoss> {
        self.handle.loss_of(self.token)
    }

    /// Unlocks, and returns the outcome. Blocks for one round trip if the key goes back to the store. If the store does not answer, the release is
    /// tried three times, but not again once the lease is over. Each try takes at most the limit of one command (one second on Redis unless set
    /// otherwise, three on etcd and Consul). An inner unlock of a reentrant hold, and one that keeps the lock in this process, do not ask the store.
    ///
    /// # Errors
    ///
    /// * [`Error::LeaseLost`]: the lease was lost during the hold, so somebody else may have been inside. The hold is over.
    /// * [`Error::Backend`], [`Error::Denied`]: the store did not confirm the release. The work was exclusive, and is done: do not
    ///   repeat it, and do not repeat the `unlock`. The hold is over for this process. The release is repeated in the background;
    ///   the key is free at the latest when the lease ends.
    /// * [`Error::NotHeld`]: [`UnguardedLock::unlock`](crate::UnguardedLock::unlock) had already ended the hold.
    #[inline]
    #[doc(alias = "release")]
    pub fn unlock(self) -> Result<(), Error> {
        let guard = ManuallyDrop::new(self);
        guard.handle.unlock(None, Some(guard.token))
    }

    /// Unlocks, and keeps everybody from the lock until `at_least` has passed since the hold began. Use it for a job that may run at most once
    /// in that time. Returns how much of the time is left; zero if it was over already, and after an inner unlock of a reentrant hold.
    ///
    /// The hold ends now. In the store, the place of the holder is taken by a text that says who has held the lock and for how long. For
    /// everybody else the lock is held. Waiters keep their places, the threads of this process wait like those of others, and the first waiter
    /// gets the lock when the time is over. [`describe`](crate::DLockGenerator::describe) shows the [text](crate::DelayedRelease), and
    /// [`break_lock`](crate::DLockGenerator::break_lock) ends the time, if it is given the text as the locker. A time that an inner unlock has
    /// set applies at the last unlock, even if that is a drop. Of several times the longest counts. Blocks as [`unlock`](Self::unlock) does.
    /// See [Scheduled jobs](crate::manual::scheduled_jobs).
    ///
    /// The time counts from the moment at which this client knew of its hold. The store had granted the hold before, so the time is never too
    /// short.
    ///
    /// # Errors
    ///
    /// As [`unlock`](Self::unlock), and
    ///
    /// * [`Error::Backend`], [`Error::Denied`]: the store did not confirm the order. The hold is over. The order is repeated in the background,
    ///   and never replaced by an ordinary release. If it comes too late, others get the lock when the lease ends.
    /// * [`Error::LeaseLost`]: nobody is kept from the lock, which may be somebody else's.
    /// * [`Error::Unsupported`], [`Error::InvalidConfig`]: the store [cannot](crate::port::StoreLimits::longest_release_delay) do this, or not
    ///   for so long. The lock is unlocked as by [`unlock`](Self::unlock).
    ///
    /// ```
    /// # let lock = redis_dlock::DLockGenerator::new(redis_dlock::MemoryLockProcessor::new())?.generate("EXPORT", "nightly")?;
    /// use std::time::Duration;
    ///
    /// let guard = lock.lock()?;
    /// // … a short job …
    /// let left = guard.unlock_after(Duration::from_secs(600))?;
    /// assert!(left > Duration::from_secs(590) && lock.try_lock()?.is_none());
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    #[doc(alias = "lockAtLeastFor")]
    pub fn unlock_after(self, at_least: Duration) -> Result<Duration, Error> {
        let guard = ManuallyDrop::new(self);
        guard.handle.unlock_after(None, guard.token, at_least)
    }
}

impl Drop for DLockGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.handle.unlock_dropped(None, self.token);
    }
}
