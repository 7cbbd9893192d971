//! One execution: clients, the threads that use them, time, and what must be true in the end.

use super::journal::Journal;
use super::store::{Faults, Network};
use super::time::{self, ClientClock, Pace};
use super::twins::thread;
use crate::cancel::CancelToken;
use crate::client::Client;
use crate::config::DLockConfig;
use crate::error::Error;
use crate::generator::DLockGenerator;
use crate::guard::DLockGuard;
use crate::lock::DistributedReentrantLock;
use crate::processor::LockProcessor;
use crate::tenure::Phase;
use crossbeam_channel::TryRecvError;
use shuttle::rand::{Rng, thread_rng};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// All leases of the model.
pub(crate) const LEASE: Duration = Duration::from_millis(120);

/// How often the end is looked for, a sixth of a lease apart.
const PATIENCE: u32 = 200;

/// What a thread does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// Locks, stays a while, unlocks.
    Lock,
    /// The same if the lock is free.
    Try,
    /// The same if it is got in this time.
    For(Duration),
    /// The same unless it is cancelled.
    Cancellable,
    /// Cancels all of these.
    Cancel,
    /// Closes the thread's client.
    Close,
}

/// Who does what in an execution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    /// For each client, its threads.
    pub(crate) clients: &'static [&'static [&'static [Act]]],
    pub(crate) listener: bool,
    pub(crate) probe: bool,
    pub(crate) faults: Faults,
    /// Whether time may leap.
    pub(crate) leaps: bool,
    pub(crate) local_passes: u32,
}

struct World {
    network: Network,
    journal: Journal,
    cancel: CancelToken,
}

/// One thread's view.
struct Visitor {
    name: String,
    generator: Arc<DLockGenerator>,
    lock: DistributedReentrantLock,
    world: Arc<World>,
}

impl Scenario {
    /// Plays one execution, as shuttle schedules it.
    pub(crate) fn play(&self) {
        time::reset();
        let mut rng = thread_rng();
        let leaps = if self.leaps { [0, 1, 3][rng.gen_range(0..3)] } else { 0 };
        let pace = Pace { steps: [1, 6, 24, 96][rng.gen_range(0..4)], leaps, leap: LEASE };
        let timer = thread::spawn(move || time::run(pace));
        let world = Arc::new(World {
            network: Network::new(self.faults, LEASE),
            journal: Journal::default(),
            cancel: CancelToken::new(),
        });
        let mut watched = Vec::new();
        let mut threads = Vec::new();
        for (n, scripts) in self.clients.iter().enumerate() {
            let generator = DLockGenerator::builder()
                .clock(Arc::new(ClientClock))
                .listener(self.listener)
                .build(world.network.another())
                .expect("random numbers");
            let generator = Arc::new(generator);
            let settings = DLockConfig::new("T", "x")
                .with_lease(LEASE)
                .with_probe(self.probe)
                .with_local_passes(self.local_passes);
            let lock = generator.generate_with(settings).expect("open");
            for (m, script) in scripts.iter().enumerate() {
                let name = format!("{}{}", ["a", "b", "c"][n], m + 1);
                let (generator, lock, world) = (Arc::clone(&generator), lock.clone(), Arc::clone(&world));
                let visitor = Visitor { name, generator, lock, world };
                threads.push(thread::spawn(move || script.iter().for_each(|act| visitor.act(*act))));
            }
            watched.push((generator, lock));
        }
        for thread in threads {
            let _ = thread.join();
        }
        world.end(watched);
        time::stop();
        let _ = timer.join();
        let objections = world.journal.objections();
        assert!(objections.is_empty(), "{objections:?}");
    }
}

impl Visitor {
    fn act(&self, act: Act) {
        let began = time::now();
        let got = match act {
            Act::Lock => self.lock.lock().map(Some),
            Act::Try => self.lock.try_lock(),
            Act::For(limit) => self.lock.try_lock_for(limit),
            Act::Cancellable => self.lock.lock_cancellable(&self.world.cancel),
            Act::Cancel => return self.world.cancel.cancel(),
            Act::Close => return self.generator.close(),
        };
        match (act, got) {
            (_, Ok(Some(guard))) => self.stay(guard),
            (Act::Lock, Ok(None)) => self.object("lock() came back without"),
            (Act::For(limit), Ok(None)) if time::now() < began + limit => self.object("gave up too early"),
            (Act::Cancellable, Ok(None)) if !self.world.cancel.is_cancelled() => self.object("was not cancelled"),
            (_, Ok(None) | Err(Error::ShutDown)) => {}
            (Act::Lock | Act::Cancellable, Err(error)) => self.object(format!("{error} instead of waiting")),
            (_, Err(Error::Backend { .. })) => {}
            (_, Err(error)) => self.object(error.to_string()),
        }
        if self.lock.hold_count() != 0 || self.lock.is_held_by_current_thread() {
            self.object("holds the lock without a guard");
        }
    }

    fn stay(&self, guard: DLockGuard<'_>) {
        let token = guard.fencing_token();
        let entry = self.world.journal.enter(&*self.name, token);
        let lost = guard.lost();
        entry.ask(|| guard.is_valid());
        match thread_rng().gen_range(0..6) {
            0 | 1 => {}
            2 | 3 => time::step(),
            4 => thread::sleep(LEASE / 8),
            _ => thread::sleep(LEASE),
        }
        if thread_rng().gen_ratio(1, 4) {
            self.reenter(&guard);
        }
        let valid = entry.ask(|| guard.is_valid());
        if self.lock.hold_count() != 1 {
            self.object(format!("holds {} times", self.lock.hold_count()));
        }
        let mut ended = None;
        // Unlocked without a complaint: it was valid until then.
        entry.ask_with(|| ended.insert(guard.unlock()).is_ok().then_some(()));
        match (ended, lost.try_recv()) {
            (Some(Ok(())), Err(TryRecvError::Disconnected)) if valid => {}
            (Some(Err(Error::LeaseLost(_))), Ok(())) => {}
            (Some(Err(Error::Backend { .. })), Err(TryRecvError::Disconnected)) => {}
            (ended, told) => self.object(format!("valid: {valid}, unlocking: {ended:?}, told of a loss: {told:?}")),
        }
    }

    fn reenter(&self, guard: &DLockGuard<'_>) {
        match self.lock.lock() {
            Ok(again) => {
                if again.fencing_token() != guard.fencing_token() || self.lock.hold_count() != 2 {
                    self.object("reentry is another hold");
                }
                drop(again);
            }
            Err(Error::LeaseLost(_)) if !guard.is_valid() => {}
            Err(error) => self.object(format!("reentry: {error}")),
        }
    }

    fn object(&self, what: impl Into<String>) {
        self.world.journal.object(format!("{}: {}", self.name, what.into()));
    }
}

impl World {
    /// Nobody uses the lock any more: looks that nothing is left, here and in the store.
    fn end(&self, clients: Vec<(Arc<DLockGenerator>, DistributedReentrantLock)>) {
        // Who closes in the middle of faults releases once what is left, answered or not.
        let closed = clients.iter().any(|(_, lock)| lock.client().is_closed());
        let excused = closed && self.network.was_faulty();
        self.network.calm();
        let quiet = |lock: &DistributedReentrantLock| {
            let client = lock.client();
            let idle = matches!(lock.local_key().state().phase, Phase::Idle);
            idle && lock.queue_length() == 0 && client.cleanup.next() == crate::clock::Moment::NEVER
        };
        // Either the clean-up comes to its end, or closing cuts it short.
        let waits = thread_rng().gen_bool(0.5);
        for (_, lock) in &clients {
            let mut looks = 0;
            while waits && !quiet(lock) && !lock.client().is_closed() {
                looks += 1;
                if looks > PATIENCE {
                    self.journal.object(format!("not at rest: {:?}", lock.local_key()));
                    break;
                }
                thread::sleep(LEASE / 6);
            }
        }
        let ends: Vec<Weak<Client>> = clients.iter().map(|(generator, _)| generator.downgrade()).collect();
        for (generator, lock) in &clients {
            generator.close();
            let state = lock.local_key().state();
            if !matches!(state.phase, Phase::Idle) || !state.queue.is_empty() {
                self.journal.object(format!("closed in {:?}", *state));
            }
        }
        let name = clients[0].1.key().to_owned();
        drop(clients);
        if ends.iter().any(|client| client.strong_count() > 0) {
            self.journal.object("a client outlives its handles");
        }
        if excused || self.network.was_too_late() {
            thread::sleep(LEASE * 3);
        }
        let store = self.network.store();
        if !store.keys().is_empty() {
            self.journal.object(format!("left in the store: {:?}", store.inspect(&name, LEASE)));
        }
    }
}
