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
use std::task::{Wake, Waker};
use std::time::Duration;

/// All leases of the model.
pub(crate) const LEASE: Duration = Duration::from_millis(120);

/// How often [`wait`] looks before it gives up.
const PATIENCE: u32 = 200;

/// A client of an execution, with its lock.
#[derive(Clone)]
pub(super) struct Party {
    pub(super) generator: Arc<DLockGenerator>,
    pub(super) lock: DistributedReentrantLock,
    pub(super) network: Network,
}

impl Party {
    fn is_closed(&self) -> bool {
        self.lock.handle.client.is_closed()
    }

    /// Lets a thread of the client drop the last handle, where it wakes a task.
    fn end_in_a_wake(self) {
        let last = Arc::new(Last(Mutex::new(None)));
        // The waker waits until the pause has begun.
        let mut party = last.0.lock();
        let client = &party.insert(self).generator.client;
        let waker = Waker::from(Arc::clone(&last));
        if client.pause(0, time::now() + LEASE / 24, &waker).is_ready() {
            // It was over before.
            *party = None;
        }
    }
}

/// A waker that drops a client, and may close it before.
struct Last(Mutex<Option<Party>>);

impl Wake for Last {
    fn wake(self: Arc<Self>) {
        let party = self.0.lock().take();
        if let Some(party) = party
            && thread_rng().gen_bool(0.5)
        {
            party.generator.close();
        }
    }
}

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
    /// Shows: L2, L6, S24, S25.
    pub(super) fn end(&self, parties: Vec<Party>, lingers: bool) {
        // A client that ends so amid faults would be excused, and other mistakes would seldom show.
        let ends_in_wakes = !self.network.was_faulty() && thread_rng().gen_bool(0.5);
        // A client that is closed amid faults releases what is left only once, whether or not that is answered.
        let excused = parties.iter().any(Party::is_closed) && self.network.was_faulty();
        self.network.calm();
        // Either everything comes to rest by itself, or closing cuts it short.
        if thread_rng().gen_bool(0.5) {
            parties.iter().for_each(|party| self.rest(&party.lock, lingers));
        }
        let name = parties[0].lock.key().to_owned();
        let clients: Vec<(Network, Weak<Parts>)> = parties
            .iter()
            .map(|party| (party.network.clone(), Arc::downgrade(&party.generator.client.parts)))
            .collect();
        for party in parties {
            if ends_in_wakes && !party.is_closed() {
                party.end_in_a_wake();
                continue;
            }
            if party.is_closed() {
                // Nobody uses it any more, and nobody closes it again.
                party.network.await_end();
            }
            party.generator.close();
            let state = party.lock.handle.key.state.lock();
            if !matches!(state.phase, Phase::Idle) || !state.queue.is_empty() {
                self.journal.object(format!("closed in {:?}", *state));
            }
        }
        clients.iter().for_each(|(network, _)| network.await_end());
        // Late commands may remain from workers that had begun before the first call. One that the closing did not wait
        // for may have come after the release of its locker.
        let was_late = self.network.calm();
        if excused || was_late || self.network.was_too_late() || *self.kept_until.lock() > Moment::from_nanos(0) {
            // A key that is kept from everybody is free by then, too.
            thread::sleep(LEASE * 3);
        }
        let store = self.network.store();
        if !store.keys().is_empty() {
            self.journal.object(format!("left in the store: {:?}", store.inspect(&name, LEASE)));
        }
        // A thread of a client is not waited for by itself.
        let patience = if ends_in_wakes { PATIENCE } else { 0 };
        if !wait(patience, || clients.iter().all(|(_, parts)| parts.strong_count() == 0)) {
            self.journal.object("a client outlives its handles");
        }
    }

    /// Waits until the key and the clean-up list have come to rest.
    fn rest(&self, lock: &DistributedReentrantLock, lingers: bool) {
        let client = &lock.handle.client;
        let rests = || {
            let rests = match lock.handle.key.state.lock().phase {
                Phase::Idle => true,
                Phase::Lingering { .. } => lingers,
                _ => false,
            };
            client.is_closed()
                || rests && lock.queue_length() == 0 && client.parts.retries.cleanup.next() == Moment::NEVER
        };
        if !wait(PATIENCE, rests) {
            self.journal.object(format!("never at rest: {:?}", *lock.handle.key.state.lock()));
        }
    }
}

/// Waits until something is so, for so many sixths of a lease.
fn wait(patience: u32, mut is_so: impl FnMut() -> bool) -> bool {
    for _ in 0..patience {
        if is_so() {
            return true;
        }
        thread::sleep(LEASE / 6);
    }
    is_so()
}
