//! The processor of the embedded store: what its clones do for their clients.

use super::entry::{KeyEntry, Scene};
use super::inbox::MemoryInbox;
use super::inboxes::InboxLink;
#[cfg(any(test, feature = "test-util"))]
use super::store::SWEEP_FROM;
use super::store::{Shared, Store};
use super::timing::KEEP;
use crate::clock::{Clock, SystemClock};
use crate::error::Error;
use crate::port::{
    Break, BreakOutcome, Broken, Directory, Inbox, Limit, LockProcessor, Outcome, Request, StoreLimits, WaitQueue,
};
use crate::timing::LONGEST_RELEASE_DELAY;
use parking_lot::Mutex;
#[cfg(any(test, feature = "test-util"))]
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A store of locks inside this process, with the rules of the Redis store: leases, queue, hand-over, fencing.
///
/// Use it for programs that run as a single process for now, and for tests of programs that use locks: what holds on this store holds
/// on Redis. It excludes the clients of one process from one another, but never another process.
///
/// Clones share one store. To have several clients, make one [`DLockGenerator`](crate::DLockGenerator) for each clone. Closing one
/// client does not affect the others: [`close`](LockProcessor::close) does nothing here, because the store has no socket or thread to
/// give back. The store lives as long as its last clone or inbox.
///
/// Leases end by the [`Clock`] that the store was made with, and need no thread: the next operation on a key whose lease has ended
/// finds it free. Fence numbers are one rising sequence for all stores of the process. They start at the wall clock and do not outrun
/// it, so they also rise across a restart, unless the wall clock was stepped back meanwhile. Memory does not grow with the number of
/// lock names used over time: a free key for which nobody waits leaves nothing behind, once the time between its
/// [gaps for pollers](crate::port::Gap), if it had one, is over.
///
/// No operation waits, so the limits that callers give are ignored. No operation fails unless the store was
/// [set unreachable](Self::set_reachable).
///
/// With the feature `test-util` a test may also act as the operator, or cut a client off: [`delete`](Self::delete),
/// [`overwrite`](Self::overwrite), [`flush`](Self::flush), [`keys`](Self::keys), [`set_reachable`](Self::set_reachable),
/// [`another_connection`](Self::another_connection).
///
/// # Examples
///
/// ```
/// use redis_dlock::MemoryLockProcessor;
/// use redis_dlock::port::{AcquireOutcome, Claim, LockProcessor, Operations};
/// use std::time::Duration;
///
/// let store = MemoryLockProcessor::new();
/// let limit = store.limits().command;
/// let claim = |client, locker| Claim::new("DLOCK_ORDER_1", client, locker, Duration::from_secs(30));
///
/// assert!(matches!(store.acquire(&claim("a", "a-1"), limit)?, AcquireOutcome::Acquired(_)));
/// let busy = store.clone().acquire(&claim("b", "b-1"), limit)?;
/// assert!(matches!(busy, AcquireOutcome::Busy(busy) if busy.holder.as_deref() == Some("a-1")));
/// # Ok::<(), redis_dlock::Error>(())
/// ```
#[derive(Clone)]
pub struct MemoryLockProcessor {
    pub(super) shared: Arc<Shared>,
    pub(super) link: Arc<InboxLink>,
}

impl MemoryLockProcessor {
    /// Makes an empty store whose leases end by the system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// Makes an empty store whose leases end by `clock`. With a [`ManualClock`](crate::ManualClock) (feature `test-util`) they end when
    /// a test says so.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { shared: Arc::new(Shared { clock, store: Mutex::new(Store::new()) }), link: Arc::default() }
    }

    /// Runs one atomic operation on one key, for a client. Fails with [`Error::Backend`] while the store is unreachable; the operation is then
    /// not executed.
    pub(super) fn serve<R>(&self, key: &str, act: impl FnOnce(&mut KeyEntry, &mut Scene<'_>) -> R) -> Result<R, Error> {
        let mut store = self.shared.store.lock();
        self.link.check()?;
        // The clock is read under the mutex, so that operations see the time in the order in which they happen.
        Ok(store.on_key(self.shared.clock.now(), key, act))
    }

    fn execute(&self, request: &Request<'_>) -> Result<Outcome, Error> {
        match request {
            Request::Break(order) => self.break_hold(order).map(Into::into),
            Request::Broken { locker, .. } => self.broken(locker).map(Into::into),
            _ => self.serve(request.key(), |entry, scene| entry.run(scene, request))?,
        }
    }

    fn break_hold(&self, order: &Break<'_>) -> Result<BreakOutcome, Error> {
        let mut store = self.shared.store.lock();
        self.link.check()?;
        let now = self.shared.clock.now();
        let (outcome, until) = store.on_key(now, order.key, |entry, scene| entry.break_hold(scene, order.locker))?;
        store.broken.retain(|_, (_, until)| *until > now);
        if let Some(until) = until {
            store.broken.insert(order.locker.to_owned(), (Broken::new(order.by, order.reason), until));
        }
        Ok(outcome)
    }

    fn broken(&self, locker: &str) -> Result<Option<Broken>, Error> {
        let store = self.shared.store.lock();
        self.link.check()?;
        let now = self.shared.clock.now();
        Ok(store.broken.get(locker).filter(|(_, until)| *until > now).map(|(broken, _)| broken.clone()))
    }
}

#[cfg(any(test, feature = "test-util"))]
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
    fn on_key<R>(&self, key: &str, act: impl FnOnce(&mut KeyEntry, &mut Scene<'_>) -> R) -> R {
        let mut store = self.shared.store.lock();
        // The clock is read under the mutex, so that operations see the time in the order in which they happen.
        store.on_key(self.shared.clock.now(), key, act)
    }
}

impl LockProcessor for MemoryLockProcessor {
    fn run(&self, requests: &[Request<'_>], _limit: Limit) -> Vec<Result<Outcome, Error>> {
        requests.iter().map(|request| self.execute(request)).collect()
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits {
            tick: Duration::ZERO,
            keeps_unheard: KEEP,
            poller_gaps: true,
            numbers: true,
            breaks: true,
            longest_release_delay: LONGEST_RELEASE_DELAY,
            ..StoreLimits::default()
        }
    }

    fn queue(&self) -> Option<&dyn WaitQueue> {
        Some(self)
    }

    fn directory(&self) -> Option<&dyn Directory> {
        Some(self)
    }
}

impl WaitQueue for MemoryLockProcessor {
    fn open_inbox(&self, client: &str, _limit: Duration) -> Result<Box<dyn Inbox>, Error> {
        Ok(Box::new(MemoryInbox::open(&self.shared, &self.link, client)?))
    }

    fn check_inbox(&self, _client: &str, _key: &str, _limit: Duration) -> Result<(), Error> {
        self.link.check()
    }
}

impl Default for MemoryLockProcessor {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryLockProcessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Does not wait for the mutex: a thread that is being debugged may call this.
        let keys = self.shared.store.try_lock().map(|store| store.keys.len());
        f.debug_struct("MemoryLockProcessor").field("keys", &keys).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "../../../tests/white_box/store/memory/processor.rs"]
mod tests;
