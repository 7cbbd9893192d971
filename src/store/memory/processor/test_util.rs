//! What a test may do to the store: act as an operator, and make it unreachable.

use super::MemoryLockProcessor;
use crate::store::memory::entry::{Entry, Scene};
use crate::store::memory::store::SWEEP_FROM;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Methods for tests, with the feature `test-util`.
impl MemoryLockProcessor {
    /// Makes another connection to the same store. [`set_reachable`](Self::set_reachable) on one of them does not affect the other, as
    /// when one process is cut off from the server and another is not. Clones of a processor share its connection.
    ///
    /// ```
    /// use redis_dlock::{DLockGenerator, MemoryLockProcessor};
    ///
    /// let store = MemoryLockProcessor::new();
    /// let cut_off = store.another_connection();
    /// let here = DLockGenerator::new(store)?.generate("ORDER", "4711")?;
    /// let there = DLockGenerator::new(cut_off.clone())?.generate("ORDER", "4711")?;
    /// cut_off.set_reachable(false);
    /// assert!(there.try_lock().is_err());
    /// assert!(here.try_lock()?.is_some());
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    #[must_use]
    pub fn another_connection(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), link: Arc::default() }
    }

    /// Sets whether the clients of this connection reach the store, as if a server went down or came back. They reach it at first.
    ///
    /// While the store is unreachable, every request fails with [`Error::Backend`](crate::Error::Backend) and
    /// [`BackendFailure::NotExecuted`](crate::BackendFailure::NotExecuted), and open inboxes break. Once this returns, no further
    /// request is executed. The store keeps its contents, and leases continue to end. After the store is reachable again, a client that
    /// waits asks again after a pause of at most a second by the generator's clock. [`delete`](Self::delete),
    /// [`overwrite`](Self::overwrite), [`flush`](Self::flush) and [`keys`](Self::keys) work in either case.
    pub fn set_reachable(&self, reachable: bool) {
        let mut store = self.shared.store.lock();
        self.link.set_reachable(reachable);
        if !reachable {
            store.inboxes.cut(&self.link);
        }
    }

    /// Deletes a lock's key whoever holds it, as an administrator's `DEL` does. Returns whether it was held.
    ///
    /// The queue stays: the next operation of a waiter gives the key to the first live waiter.
    #[expect(clippy::must_use_candidate, reason = "often only the effect is wanted")]
    pub fn delete(&self, key: &str) -> bool {
        self.on_key(key, |entry, _| entry.delete())
    }

    /// Gives a lock's key to `locker` whoever holds it, as an administrator's `SET` does. Without a lease the key is held for ever.
    ///
    /// Issues no fence number, and notifies nobody.
    pub fn overwrite(&self, key: &str, locker: &str, lease: Option<Duration>) {
        self.on_key(key, |entry, scene| entry.overwrite(scene.now, locker, lease));
    }

    /// Forgets all holders and queues, as an administrator's `FLUSHALL` does. Inboxes stay open.
    ///
    /// Fence numbers continue to rise: the Redis store recovers a lost fence from the clock, and this store does not lose it.
    pub fn flush(&self) {
        let mut store = self.shared.store.lock();
        store.keys = HashMap::new();
        store.records = HashMap::new();
        store.sweep_at = SWEEP_FROM;
        store.broken = HashMap::new();
    }

    /// Lists the keys that are held, waited for, or remembered for a [gap for pollers](crate::port::Gap), in no particular order, as an
    /// administrator's `KEYS` does.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let mut store = self.shared.store.lock();
        store.sweep(self.shared.clock.now());
        store.keys.keys().cloned().collect()
    }

    /// Denies the operations of these commands in a script (in capital letters) until it is called again. The conformance suite uses it to
    /// check what an operation leaves behind when it is denied halfway.
    #[doc(hidden)]
    pub fn deny(&self, commands: &[&'static str]) {
        self.shared.store.lock().denied = commands.to_vec();
    }

    /// Runs one atomic operation on one key, even while the store is unreachable.
    fn on_key<R>(&self, key: &str, act: impl FnOnce(&mut Entry, &mut Scene<'_>) -> R) -> R {
        let mut store = self.shared.store.lock();
        // The clock is read under the mutex, so that operations see the time in the order in which they happen.
        store.on_key(self.shared.clock.now(), key, act)
    }
}
