//! A hold that belongs to no thread.

use crate::client::wait_limit::WaitLimit;
use crate::error::{Error, LeaseLoss};
use crate::lock::held_lock::HeldLock;
#[cfg(feature = "async")]
use crate::lock::hold_end::{LossFuture, ReleaseFuture};
use crate::lock::reentrant::DistributedReentrantLock;
use crate::state::owner::HoldNumber;
use crossbeam_channel::Receiver;
use std::time::Duration;

/// Keeps the lock until it is dropped or [released](Self::release), and belongs to no thread.
///
/// It is made by [`hold`](DistributedReentrantLock::hold) and its other forms. It owns a handle of the lock, is `Send`, `Sync` and `'static`,
/// and any thread may query, release or drop it. So a session map, an actor or a task can keep it, also across an `.await`.
///
/// # How it differs from a guard
///
/// * It has a fencing token, its lease is renewed, and it learns of a loss, like a [`DLockGuard`](crate::DLockGuard). `hold()` waits in the
///   same queues as `lock()`, in order of arrival, and the lock is passed on within the process, too.
/// * It is not reentrant. While it lives, every other call for its key waits or returns `None`, even on the thread that took it. A thread that
///   keeps a `Hold` and calls `lock()` or `hold()` for the same key waits for ever, and the generator cannot notice that. If a thread calls
///   `hold()` for a key that its own guard holds, the generator logs this as a circle of one thread.
/// * It does not end with the thread that took it. A `Hold` that is kept by mistake ([`mem::forget`](std::mem::forget), a map that nobody
///   cleans) is renewed for as long as the process lives. [`with_hold_warning`](crate::DLockConfig::with_hold_warning) sets a time after which
///   the log names it. [`with_max_hold`](crate::DLockConfig::with_max_hold) sets a limit, after which other processes get the lock. In its own
///   process the key stays taken until the `Hold` is dropped, as after every loss.
/// * [`hold_count`](DistributedReentrantLock::hold_count) and [`is_held_by_current_thread`](DistributedReentrantLock::is_held_by_current_thread)
///   do not count it. [`describe`](crate::DLockGenerator::describe) shows it with the name that
///   [`with_holder_name`](crate::DLockConfig::with_holder_name) has set, or else with that of the thread that took it.
///
/// Dropping a `Hold` unlocks as the drop of a [`DLockGuard`](crate::DLockGuard) does, and may block as that does. The drop of a `Hold` that a
/// task has awaited never blocks. While it lives, the client behind its generator lives, too: see [`OwnedDLockGuard`](crate::OwnedDLockGuard).
/// A `Hold` in a `static` is never dropped, so its lock stays behind until its lease ends: release it before the program ends.
///
/// ```
/// use redis_dlock::{DLockGenerator, Error, Hold, MemoryLockProcessor};
/// use std::collections::HashMap;
///
/// let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
/// let lock = generator.generate("ORDER", "4711")?;
/// let mut sessions: HashMap<u32, Hold> = HashMap::new();
/// sessions.insert(17, lock.hold()?);
/// assert!(lock.try_hold()?.is_none() && lock.try_lock()?.is_none());
///
/// // Another thread ends the session.
/// std::thread::spawn(move || sessions.remove(&17).expect("a session").release()).join().expect("no panic")?;
/// assert!(lock.try_lock()?.is_some());
/// # Ok::<_, Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the lock is unlocked at once when its hold is dropped"]
pub struct Hold {
    /// If it is of a task, the drop of the hold does not block.
    lock: HeldLock,
    number: HoldNumber,
    token: u64,
    done: bool,
}

queries!(Hold);

impl Hold {
    pub(super) fn acquire(lock: &DistributedReentrantLock, limit: &WaitLimit<'_>) -> Result<Option<Self>, Error> {
        let taken = lock.handle.acquire_hold(limit)?;
        Ok(taken.map(|(number, token)| Self { lock: HeldLock::of_thread(lock), number, token, done: false }))
    }

    #[cfg(feature = "async")]
    pub(super) fn of_task(lock: &DistributedReentrantLock, number: HoldNumber, token: u64) -> Self {
        Self { lock: HeldLock::of_task(lock), number, token, done: false }
    }

    /// Releases the lock, and returns the outcome. Any thread may call this. Blocks as [`DLockGuard::unlock`](crate::DLockGuard::unlock) does.
    ///
    /// # Errors
    ///
    /// As [`DLockGuard::unlock`](crate::DLockGuard::unlock).
    pub fn release(mut self) -> Result<(), Error> {
        self.done = true;
        self.lock.handle.unlock(Some(&self.number), Some(self.token))
    }

    /// Releases the lock, and keeps everybody from it until `at_least` has passed since the hold began. Any thread may call this. See
    /// [`DLockGuard::unlock_after`](crate::DLockGuard::unlock_after).
    ///
    /// # Errors
    ///
    /// As [`DLockGuard::unlock_after`](crate::DLockGuard::unlock_after).
    pub fn release_after(mut self, at_least: Duration) -> Result<Duration, Error> {
        self.done = true;
        self.lock.handle.unlock_after(Some(&self.number), self.token, at_least)
    }
}

/// For a task.
#[cfg(feature = "async")]
impl Hold {
    /// Releases the lock. The future returns the outcome. The release begins with this call, even if the future is dropped or never polled.
    /// Never blocks: a thread of the client asks the store.
    ///
    /// # Errors
    ///
    /// The output of the future is an error as that of [`release`](Self::release). A release that had no answer is repeated in the background.
    pub fn release_async(mut self) -> ReleaseFuture {
        (self.done, self.lock.is_of_task) = (true, true);
        ReleaseFuture::of(&self.lock.handle, &self.number, self.token)
    }

    /// Returns the number and the token. The caller must release the hold.
    pub(super) fn into_parts(mut self) -> (HoldNumber, u64) {
        self.done = true;
        (self.number.take(), self.token)
    }

    /// Returns a future that ends when the lease is lost. If the hold ends without a loss, the future never ends: use it in a `select!`, beside the
    /// work. Never blocks.
    pub fn lost_async(&self) -> LossFuture {
        let lost = std::sync::Arc::default();
        self.lock.handle.key.watch_by_reply(self.token, &lost);
        LossFuture::new(lost)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        match (self.done, self.lock.is_of_task) {
            (true, _) => {}
            (false, false) => self.lock.handle.unlock_dropped(Some(&self.number), self.token),
            (false, true) => self.lock.handle.release_dropped_by_task(Some(&self.number), self.token),
        }
    }
}
