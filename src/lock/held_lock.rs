//! The lock of a hold, or of a future that acquires one: the handle that a task may drop.

use crate::lock::reentrant::DistributedReentrantLock;
use std::fmt;
use std::ops::Deref;

/// A lock that may be dropped by a task, which never waits for the store.
///
/// Dropping the last handle ends the client, and that waits for the store. So a last handle that a task drops goes to a thread of the client.
pub(super) struct HeldLock {
    /// `None` once it was dropped.
    lock: Option<DistributedReentrantLock>,
    pub(super) is_of_task: bool,
}

impl HeldLock {
    pub(super) fn of_thread(lock: &DistributedReentrantLock) -> Self {
        Self { lock: Some(lock.clone()), is_of_task: false }
    }

    #[cfg(feature = "async")]
    pub(super) fn of_task(lock: &DistributedReentrantLock) -> Self {
        Self { lock: Some(lock.clone()), is_of_task: true }
    }
}

/// Shows the lock alone.
impl fmt::Debug for HeldLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl Deref for HeldLock {
    type Target = DistributedReentrantLock;

    fn deref(&self) -> &DistributedReentrantLock {
        self.lock.as_ref().expect("only the drop takes the lock out")
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        if let Some(lock) = self.lock.take().filter(|_| self.is_of_task) {
            lock.handle.drop_by_task();
        }
    }
}
