//! The embedded store: [`MemoryLockProcessor`].
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the processor: one mutex around everything |
//! | `spec/` | one key: its holder, its queue, and the rules of every operation, as data |
//! | `state.rs` | one key of this store: the specification in the terms of the port |
//! | `inbox.rs` | which clients have an inbox, and how a message reaches them |
//! | `link.rs` | a client's connection to the store, which may be cut |
//! | `fence.rs` | the fence numbers, one sequence for the whole process |
//! | `test_util.rs` | what a test may do to the store (feature `test-util`) |
//!
//! The rules are those of the Redis scripts (`scripts/*.lua`), operation by operation, and the conformance suite runs on both. The model
//! of the protocol explores the same rules: tests reach them as `redis_dlock::spec`. One mutex makes each operation as atomic as a
//! script. Nothing blocks under it: messages go into unbounded channels. They are sent before the mutex is released, so that they arrive
//! in the order of the events that they report.

mod fence;
mod inbox;
mod link;
// Only tests reach it from outside.
#[cfg_attr(not(any(test, feature = "test-util")), allow(unreachable_pub))]
pub mod spec;
mod state;
#[cfg(any(test, feature = "test-util"))]
mod test_util;

use crate::clock::{Clock, Moment, SystemClock};
use crate::error::Error;
use crate::store::processor::{
    AcquireOutcome, Claim, ExtendOutcome, Inbox, Inspection, LockProcessor, Numbers, PollOutcome, ProbeOutcome,
    ReleaseOutcome, StoreLimits, WaitQueue,
};
use inbox::{Inboxes, MemoryInbox};
use link::Link;
use parking_lot::Mutex;
use state::{KEEP, KeyState, Scene};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The store does not sweep keys whose leases ended while it has fewer keys than this.
const SWEEP_FROM: usize = 64;

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
/// [gaps for pollers](crate::store::processor::Gap), if it had one, is over.
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
/// use redis_dlock::processor::{AcquireOutcome, Claim, LockProcessor};
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
    shared: Arc<Shared>,
    link: Arc<Link>,
}

/// The state that the clones of one processor and their inboxes share.
struct Shared {
    clock: Arc<dyn Clock>,
    store: Mutex<Store>,
}

/// Everything behind the mutex.
struct Store {
    /// The keys that are held, waited for or remembered for a gap, and those for which all of this ended after the last sweep.
    keys: HashMap<String, KeyState>,
    /// The number of keys that starts the next sweep: twice as many as the last one left. So sweeping costs constant time for each new
    /// key, and the ended leases of dead clients at most double the memory.
    sweep_at: usize,
    inboxes: Inboxes,
    /// The operations that are denied, by their Redis commands.
    denied: Vec<&'static str>,
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
        let store =
            Store { keys: HashMap::new(), sweep_at: SWEEP_FROM, inboxes: Inboxes::default(), denied: Vec::new() };
        Self { shared: Arc::new(Shared { clock, store: Mutex::new(store) }), link: Arc::default() }
    }

    /// Runs one atomic operation on one key, for a client.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] while the store is unreachable; the operation is then not executed.
    fn serve<R>(&self, key: &str, act: impl FnOnce(&mut KeyState, &mut Scene<'_>) -> R) -> Result<R, Error> {
        let mut store = self.shared.store.lock();
        self.link.check()?;
        // The clock is read under the mutex, so that operations see the time in the order in which they happen.
        Ok(store.on_key(self.shared.clock.now(), key, act))
    }
}

impl Store {
    /// Runs one atomic operation on one key: forgets what has expired, acts, and removes an entry that has become empty.
    fn on_key<R>(&mut self, now: Moment, key: &str, act: impl FnOnce(&mut KeyState, &mut Scene<'_>) -> R) -> R {
        let mut scene = Scene { key, now, inboxes: &mut self.inboxes, denied: &self.denied };
        if let Some(state) = self.keys.get_mut(key) {
            state.expire(now);
            let result = act(state, &mut scene);
            if state.is_empty() {
                self.keys.remove(key);
            }
            result
        } else {
            let mut state = KeyState::default();
            let result = act(&mut state, &mut scene);
            if !state.is_empty() {
                self.insert(now, key, state);
            }
            result
        }
    }

    fn insert(&mut self, now: Moment, key: &str, state: KeyState) {
        if self.keys.len() >= self.sweep_at {
            self.sweep(now);
        }
        self.keys.insert(key.to_owned(), state);
    }

    /// Drops every key for which everything has ended, and shrinks a map that has become too large.
    fn sweep(&mut self, now: Moment) {
        self.keys.retain(|_, state| {
            state.expire(now);
            !state.is_empty()
        });
        self.sweep_at = SWEEP_FROM.max(2 * self.keys.len());
        self.keys.shrink_to(self.sweep_at);
    }
}

impl LockProcessor for MemoryLockProcessor {
    fn acquire(&self, claim: &Claim<'_>, _limit: Duration) -> Result<AcquireOutcome, Error> {
        self.serve(claim.key, |state, scene| state.acquire(scene, claim, false))?
    }

    fn extend(&self, claim: &Claim<'_>, _limit: Duration) -> Result<ExtendOutcome, Error> {
        self.serve(claim.key, |state, scene| state.extend(scene, claim, false))?
    }

    fn release(&self, claim: &Claim<'_>, _limit: Duration) -> Result<ReleaseOutcome, Error> {
        self.serve(claim.key, |state, scene| state.release(scene, claim, None))?
    }

    fn inspect(&self, key: &str, _limit: Duration) -> Result<Inspection, Error> {
        self.serve(key, |state, scene| state.inspect(scene.now))
    }

    fn poll(&self, claim: &Claim<'_>, _limit: Duration) -> Result<PollOutcome, Error> {
        self.serve(claim.key, |state, scene| state.poll(scene, claim))?
    }

    fn probe(&self, claim: &Claim<'_>, _limit: Duration) -> Result<ProbeOutcome, Error> {
        self.serve(claim.key, |state, _| state.probe(claim.locker))
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits { tick: Duration::ZERO, keeps_unheard: KEEP, poller_gaps: true, ..StoreLimits::default() }
    }

    fn queue(&self) -> Option<&dyn WaitQueue> {
        Some(self)
    }

    fn numbers(&self) -> Option<&dyn Numbers> {
        Some(self)
    }
}

impl WaitQueue for MemoryLockProcessor {
    fn join(&self, claim: &Claim<'_>, _limit: Duration) -> Result<AcquireOutcome, Error> {
        self.serve(claim.key, |state, scene| state.acquire(scene, claim, true))?
    }

    fn hand_over(&self, claim: &Claim<'_>, next: &Claim<'_>, _limit: Duration) -> Result<ReleaseOutcome, Error> {
        self.serve(claim.key, |state, scene| state.release(scene, claim, Some(next)))?
    }

    fn open_inbox(&self, client: &str, _limit: Duration) -> Result<Box<dyn Inbox>, Error> {
        Ok(Box::new(MemoryInbox::open(&self.shared, &self.link, client)?))
    }

    fn check_inbox(&self, _client: &str, _limit: Duration) -> Result<(), Error> {
        self.link.check()
    }
}

impl Numbers for MemoryLockProcessor {
    fn extend_with_numbers(&self, claim: &Claim<'_>, _limit: Duration) -> Result<ExtendOutcome, Error> {
        self.serve(claim.key, |state, scene| state.extend(scene, claim, true))?
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
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::store::processor::Gap;

    const LEASE: Duration = Duration::from_secs(30);

    fn entries(processor: &MemoryLockProcessor) -> usize {
        processor.shared.store.lock().keys.len()
    }

    fn take(processor: &MemoryLockProcessor, key: &str, locker: &str) {
        let claim = Claim::new(key, "a", locker, LEASE);
        assert!(matches!(processor.acquire(&claim, LEASE), Ok(AcquireOutcome::Acquired(_))));
    }

    /// Shows: L2.
    #[test]
    fn free_keys_leave_nothing_behind() {
        let processor = MemoryLockProcessor::new();
        for n in 0..100_000 {
            let key = format!("DLOCK_T_{n}");
            take(&processor, &key, "a-1");
            processor.release(&Claim::new(&key, "a", "a-1", LEASE), LEASE).expect("never fails");
            processor.inspect(&key, LEASE).expect("never fails");
            assert_eq!(entries(&processor), 0);
        }
        assert!(processor.shared.store.lock().keys.capacity() < SWEEP_FROM);
    }

    /// Shows: L2.
    #[test]
    fn keys_of_dead_holders_are_swept() {
        let clock = Arc::new(ManualClock::new());
        let processor = MemoryLockProcessor::with_clock(clock.clone());
        for n in 0..100_000 {
            // A thousand keys are alive at any time.
            clock.advance(LEASE / 1000);
            take(&processor, &format!("DLOCK_T_{n}"), "a-1");
            assert!(entries(&processor) <= 2001, "{}", entries(&processor));
        }
        clock.advance(LEASE);
        assert!(processor.keys().is_empty());
        assert!(processor.shared.store.lock().keys.capacity() < 4 * SWEEP_FROM);
    }

    /// Shows: L2.
    #[test]
    fn keys_that_had_a_gap_are_swept() {
        let clock = Arc::new(ManualClock::new());
        let processor = MemoryLockProcessor::with_clock(clock.clone());
        for n in 0..100_000 {
            // A thousand keys are remembered at any time.
            clock.advance(LEASE / 1000);
            let key = format!("DLOCK_T_{n}");
            take(&processor, &key, "a-1");
            let claim = Claim::new(&key, "a", "a-1", LEASE).with_poller_gap(Some(Gap::new(LEASE / 6, LEASE)));
            processor.release(&claim, LEASE).expect("never fails");
            assert!(entries(&processor) <= 2001, "{}", entries(&processor));
        }
        clock.advance(LEASE);
        assert!(processor.keys().is_empty());
    }

    #[test]
    fn debug_output_does_not_wait_for_the_store() {
        let processor = MemoryLockProcessor::new();
        let guard = processor.shared.store.lock();
        assert_eq!(format!("{processor:?}"), "MemoryLockProcessor { keys: None, .. }");
        drop(guard);
        take(&processor, "DLOCK_T_x", "a-1");
        assert_eq!(format!("{processor:?}"), "MemoryLockProcessor { keys: Some(1), .. }");
    }
}
