//! What the threads of an execution share, and the properties that must hold at any moment and in the end.

use super::journal::Journal;
use super::network::{Faults, Network};
use super::shims::{Condvar, Mutex, thread};
use super::time;
use crate::client::parts::Parts;
use crate::client::wait_limit::CancelToken;
use crate::clock::Moment;
use crate::lock::DLockGenerator;
use crate::lock::DistributedReentrantLock;
use crate::port::Operations;
use crate::state::key::Key;
use crate::state::machine::{AskedBy, Phase};
use shuttle::rand::{Rng, thread_rng};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// All leases of the model.
pub(crate) const LEASE: Duration = Duration::from_millis(120);

/// How often `rest` checks, at intervals of a sixth of a lease.
const PATIENCE: u32 = 200;

/// A client of an execution, with its lock.
pub(super) type Party = (Arc<DLockGenerator>, DistributedReentrantLock);

/// What the threads of an execution share.
pub(crate) struct World {
    pub(crate) network: Network,
    pub(crate) journal: Journal,
    pub(crate) cancel: CancelToken,
    pub(crate) passes: Option<u32>,
    /// Until when nobody may get the key, at least.
    kept_until: Mutex<Moment>,
    /// How many of the calls that end by themselves have not ended yet.
    guests: Mutex<usize>,
    gone: Condvar,
}

impl World {
    /// Creates what is shared. `passes` is how often a client may pass the lock on by itself, if that is counted; `guests` is how many
    /// calls end by themselves.
    pub(super) fn new(faults: Faults, passes: Option<u32>, guests: usize) -> Self {
        Self {
            network: Network::new(faults, LEASE),
            journal: Journal::default(),
            cancel: CancelToken::new(),
            passes,
            kept_until: Mutex::new(Moment::from_nanos(0)),
            guests: Mutex::new(guests),
            gone: Condvar::new(),
        }
    }

    /// Records that nobody may get the key before this moment.
    pub(crate) fn keep(&self, until: Moment) {
        let mut kept = self.kept_until.lock();
        *kept = until.max(*kept);
    }

    /// Returns whether nobody may get the key yet.
    pub(crate) fn is_kept(&self) -> bool {
        time::now() < *self.kept_until.lock()
    }

    /// Records that a call that ends by itself has ended.
    pub(crate) fn guest_leaves(&self) {
        *self.guests.lock() -= 1;
        self.gone.notify_all();
    }

    /// Waits until all calls that end by themselves have ended.
    pub(crate) fn outstay_guests(&self) {
        let mut guests = self.guests.lock();
        while *guests > 0 {
            self.gone.wait(&mut guests);
        }
    }

    /// Checks the state of a key: the invariants of [`state`](crate::state::machine), as far as they can be seen.
    /// Shows: S8, S9, S11, L1.
    pub(crate) fn look(&self, key: &Key, is_closed: impl FnOnce() -> bool) {
        let state = key.state.lock();
        let wrong = match &state.phase {
            Phase::Idle if !state.queue.is_empty() && !is_closed() => Some("idle, and threads wait"),
            Phase::Waiting { .. } if state.queue.is_empty() => Some("waits for nobody"),
            Phase::Waiting { unsettled: Some(unsettled) } if self.network.has_heard_grant(&unsettled.locker) => {
                Some("waits for what it was given")
            }
            Phase::Asking { by: AskedBy::Waiter(turn), .. }
                if state.queue.iter().any(|waiter| waiter.owner == *turn) =>
            {
                Some("a thread waits that has its turn")
            }
            phase if matches!(phase, Phase::Held(_)) == key.hold.is_owned_by(0) => Some("held, or not"),
            _ => None,
        };
        if let Some(wrong) = wrong {
            self.journal.object(format!("{wrong}: {:?}", *state));
        }
    }

    /// Runs when no thread uses the lock any more. Checks that nothing is left, here and in the store.
    /// Shows: L2, L6.
    pub(super) fn end(&self, parties: Vec<Party>, lingers: bool) {
        // A client that is closed amid faults releases what is left only once, whether or not that is answered.
        let closed = parties.iter().any(|(_, lock)| lock.handle.client.is_closed());
        let excused = closed && self.network.was_faulty();
        self.network.calm();
        // Either everything comes to rest by itself, or closing cuts it short.
        if thread_rng().gen_bool(0.5) {
            parties.iter().for_each(|(_, lock)| self.rest(lock, lingers));
        }
        let ends: Vec<Weak<Parts>> =
            parties.iter().map(|(generator, _)| Arc::downgrade(&generator.client.parts)).collect();
        for (generator, lock) in &parties {
            generator.close();
            let state = lock.handle.key.state.lock();
            if !matches!(state.phase, Phase::Idle) || !state.queue.is_empty() {
                self.journal.object(format!("closed in {:?}", *state));
            }
        }
        // Late commands may remain from workers that had begun before the first call. One that the closing did not wait
        // for may have come after the release of its locker.
        let was_late = self.network.calm();
        let name = parties[0].1.key().to_owned();
        drop(parties);
        if ends.iter().any(|core| core.strong_count() > 0) {
            self.journal.object("a client outlives its handles");
        }
        if excused || was_late || self.network.was_too_late() || *self.kept_until.lock() > Moment::from_nanos(0) {
            // A key that is kept from everybody is free by then, too.
            thread::sleep(LEASE * 3);
        }
        let store = self.network.store();
        if !store.keys().is_empty() {
            self.journal.object(format!("left in the store: {:?}", store.inspect(&name, LEASE)));
        }
    }

    /// Waits until the key and the clean-up list have come to rest.
    fn rest(&self, lock: &DistributedReentrantLock, lingers: bool) {
        for _ in 0..PATIENCE {
            let client = &lock.handle.client;
            let rests = match lock.handle.key.state.lock().phase {
                Phase::Idle => true,
                Phase::Lingering { .. } => lingers,
                _ => false,
            };
            if client.is_closed()
                || rests && lock.queue_length() == 0 && client.parts.retries.cleanup.next() == Moment::NEVER
            {
                return;
            }
            thread::sleep(LEASE / 6);
        }
        self.journal.object(format!("never at rest: {:?}", *lock.handle.key.state.lock()));
    }
}
