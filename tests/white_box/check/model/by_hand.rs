//! A clock that is moved by hand: one move must wake every thread whose wait it ends, whatever that thread is about to do.
//!
//! Nobody moves the clock after the last move of a scenario, so a thread that misses that move sleeps for ever. The clients only poll,
//! because the inbox of the embedded store waits in real time.

use super::explorer::{explore_both, explored};
use super::mistakes::{self, Mutant};
use super::mutants::{FORGOTTEN, caught_each};
use super::time;
use crate::clock::{Clock, ManualClock, Moment};
use crate::config::DLockConfig;
use crate::lock::DLockGenerator;
use crate::lock::DistributedReentrantLock;
use crate::store::memory::MemoryLockProcessor;
use shuttle::thread;
use std::sync::{Arc, Weak};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(1000);

/// The clock of a client. Each reading is a step of its own.
#[derive(Debug)]
struct ByHand(Arc<ManualClock>);

impl Clock for ByHand {
    fn now(&self) -> Moment {
        time::step();
        self.0.now()
    }

    fn wake_on_move(&self, wake: Weak<dyn Fn() + Send + Sync>) -> bool {
        // A clock that forgets whom to wake is the same to a client as a sleeper that is not registered.
        mistakes::is(Mutant::SleepsUnregistered) || self.0.wake_on_move(wake)
    }
}

/// What the move ends.
#[derive(Clone, Copy, Debug)]
enum Scenario {
    /// A wait with a limit.
    Wait,
    /// The lease of a holder that watches its loss channel.
    Lease,
    /// The lease of a dead holder, while another client waits.
    Holder,
}

struct World {
    clock: Arc<ManualClock>,
    store: MemoryLockProcessor,
}

impl World {
    fn lock(&self) -> DistributedReentrantLock {
        let generator = DLockGenerator::builder()
            .clock(Arc::new(ByHand(Arc::clone(&self.clock))))
            .listener(false)
            .build(self.store.clone())
            .expect("random numbers");
        generator.generate_with(DLockConfig::new("T", "x").with_lease(LEASE)).expect("open")
    }
}

impl Scenario {
    fn play(self) {
        time::reset();
        let clock = Arc::new(ManualClock::new());
        let world = World { store: MemoryLockProcessor::with_clock(clock.clone()), clock };
        match self {
            Self::Wait => world.wait(),
            Self::Lease => world.lease(),
            Self::Holder => world.holder(),
        }
    }
}

impl World {
    fn advance(&self, by: Duration) {
        // Other threads may act between the previous operation and the move.
        time::step();
        self.clock.advance(by);
    }

    fn wait(&self) {
        let lock = self.lock();
        let guard = lock.lock().expect("free");
        let other = lock.clone();
        let waiter = thread::spawn(move || other.try_lock_for(LEASE / 2).expect("an answer").is_none());
        until(|| lock.queue_length() == 1);
        self.advance(LEASE / 2);
        assert!(waiter.join().expect("no panic"), "its time is over");
        guard.unlock().expect("held");
    }

    fn lease(&self) {
        let lock = self.lock();
        let guard = lock.lock().expect("free");
        let lost = guard.lost();
        self.advance(LEASE);
        until(|| lost.try_recv().is_ok());
        assert!(guard.unlock().is_err());
    }

    fn holder(&self) {
        let (dead, heir) = (self.lock(), self.lock());
        std::mem::forget(dead.lock().expect("free"));
        let lock = heir.clone();
        let waiter = thread::spawn(move || drop(lock.lock().expect("an answer")));
        until(|| heir.queue_length() == 1);
        // The first move makes the heir ask; the second comes while it does.
        self.advance(LEASE / 10);
        self.advance(LEASE);
        waiter.join().expect("no panic");
    }
}

fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        thread::yield_now();
    }
}

explored! {
    // Shows: G12, L3.
    a_wait_is_over: Scenario::Wait;
    // Shows: G5.
    a_lease_is_lost: Scenario::Lease;
    // Shows: G4, L3.
    a_holder_has_died: Scenario::Holder;
}

caught_each! {
    sleeps_unregistered: SleepsUnregistered, Scenario::Wait, FORGOTTEN;
    nudges_without_mutex: NudgesWithoutMutex, Scenario::Wait, FORGOTTEN;
    rings_without_mutex: RingsWithoutMutex, Scenario::Lease, FORGOTTEN;
    pauses_from_the_answer: PausesFromAnswer, Scenario::Holder, FORGOTTEN;
}
