//! What a test may do to the store: an operator's meddling, and a server that cannot be reached.

use super::state::{KeyState, Scene};
use super::{MemoryLockProcessor, SWEEP_FROM};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// With the feature `test-util`, for tests.
impl MemoryLockProcessor {
    /// Makes another connection to the same store: [`set_reachable`](Self::set_reachable) on one of them does not touch the
    /// other, as when one process is cut off from the server and another is not. Clones of a processor share its connection.
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

    /// Sets whether the clients of this connection reach the store, as if a server went down or came back. Reachable at first.
    ///
    /// While it is unreachable, every request fails with [`Error::Backend`](crate::Error::Backend) and
    /// [`BackendFailure::NotExecuted`](crate::BackendFailure::NotExecuted), and open inboxes break; when this returns, no request is
    /// executed any more. The store keeps what it holds, and leases go on ending. Whoever has waited meanwhile asks again
    /// after a pause of at most a second by the generator's clock. [`delete`](Self::delete),
    /// [`overwrite`](Self::overwrite), [`flush`](Self::flush) and [`keys`](Self::keys) work all the same.
    pub fn set_reachable(&self, reachable: bool) {
        let mut store = self.shared.store.lock();
        self.link.set_reachable(reachable);
        if !reachable {
            store.inboxes.cut(&self.link);
        }
    }

    /// Deletes a lock's key whoever holds it, as an administrator's `DEL` does; tells whether it was held.
    ///
    /// The queue stays: the next operation of a waiter gives the key to the first live one.
    #[expect(clippy::must_use_candidate, reason = "often only the effect is wanted")]
    pub fn delete(&self, key: &str) -> bool {
        self.on_key(key, |state, _| state.delete())
    }

    /// Gives a lock's key to `locker` whoever holds it, as an administrator's `SET` does; without a lease, for ever.
    ///
    /// Issues no fence number and tells nobody.
    pub fn overwrite(&self, key: &str, locker: &str, lease: Option<Duration>) {
        self.on_key(key, |state, scene| state.overwrite(scene.now, locker, lease));
    }

    /// Forgets all holders and queues, as an administrator's `FLUSHALL` does. Inboxes stay open.
    ///
    /// Fence numbers go on rising: the Redis store finds a lost fence again by the clock, this one does not lose it.
    pub fn flush(&self) {
        let mut store = self.shared.store.lock();
        store.keys = HashMap::new();
        store.sweep_at = SWEEP_FROM;
    }

    /// Lists the keys that are held or waited for, or remembered for a [gap](crate::store::processor::Gap), in no order, as an administrator's
    /// `KEYS` does.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let mut store = self.shared.store.lock();
        store.sweep(self.shared.clock.now());
        store.keys.keys().cloned().collect()
    }

    /// Denies what these commands do in a script, in capital letters, until told otherwise: the conformance suite looks at what
    /// an operation leaves that is denied in its middle.
    #[doc(hidden)]
    pub fn deny(&self, commands: &[&'static str]) {
        self.shared.store.lock().denied = commands.to_vec();
    }

    /// Runs one atomic operation on one key, whether clients reach the store or not.
    fn on_key<R>(&self, key: &str, act: impl FnOnce(&mut KeyState, &mut Scene<'_>) -> R) -> R {
        let mut store = self.shared.store.lock();
        // Read under the mutex: operations see the time in the order in which they happen.
        store.on_key(self.shared.clock.now(), key, act)
    }
}
