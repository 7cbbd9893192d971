//! One execution: its clients, the threads that use them, and time.

use super::network::Faults;
use super::shims::thread;
use super::time::{self, ClientClock, FOR_GOOD, Pace};
use super::visitor::{Act, Visitor};
use super::world::{LEASE, Party, World};
use crate::client::parts::Parts;
use crate::clock::Moment;
use crate::config::DLockConfig;
use crate::lock::DLockGenerator;
use shuttle::rand::{Rng, thread_rng};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Far later than any execution should end.
const END: Moment = Moment::from_nanos(13_000_000_000);

/// What the clients and threads of an execution do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    /// For each client, the scripts of its threads.
    pub(crate) clients: &'static [&'static [&'static [Act]]],
    pub(crate) listener: bool,
    pub(crate) probe: bool,
    pub(crate) faults: Faults,
    /// Whether time may leap.
    pub(crate) leaps: bool,
    pub(crate) local_passes: u32,
    pub(crate) linger: Duration,
    /// Whether to count how often a client passes the lock on by itself after it has heard that others wait. Only for scenarios in
    /// which those others continue to wait.
    pub(crate) counts_passes: bool,
}

impl Scenario {
    /// Plays one execution, as shuttle schedules it.
    /// Shows: L1, L3.
    pub(crate) fn play(&self) {
        time::reset();
        let mut rng = thread_rng();
        let leaps = if self.leaps { [0, 1, 3][rng.gen_range(0..3)] } else { 0 };
        let pace = Pace { steps: [1, 6, 24, 96][rng.gen_range(0..4)], leaps, leap: LEASE };
        let passes = self.counts_passes.then_some(self.local_passes);
        let world = Arc::new(World::new(self.faults, passes, self.guests()));
        let parties: Vec<Party> = self.clients.iter().map(|_| self.party(&world)).collect();
        let watched: Vec<_> = parties
            .iter()
            .map(|party| (Arc::downgrade(&party.lock.handle.key), Arc::downgrade(&party.generator.client.parts)))
            .collect();
        let seen = Arc::clone(&world);
        let timer = thread::spawn(move || {
            time::run(pace, || {
                let keys = watched.iter().filter_map(|(key, core)| Some((key.upgrade()?, core)));
                let keys: Vec<_> = keys.collect();
                // Called only where it matters, because the upgrade keeps the core alive during the check.
                let is_closed =
                    |parts: &Weak<Parts>| parts.upgrade().is_none_or(|parts| parts.core.activity.is_closed());
                keys.iter().for_each(|(key, core)| seen.look(key, || is_closed(core)));
                let states = keys.iter().map(|(key, _)| format!("{:?}", *key.state.lock()));
                assert!(time::now() < END, "time goes on and on: {:#?}", states.collect::<Vec<_>>());
            });
        });
        let mut threads = Vec::new();
        for (n, (scripts, party)) in self.clients.iter().zip(&parties).enumerate() {
            for (m, script) in scripts.iter().enumerate() {
                let name = format!("{}{}", ["a", "b", "c"][n], m + 1);
                let visitor = Visitor::new(name, party.clone(), Arc::clone(&world));
                threads.push(thread::spawn(move || visitor.play(script)));
            }
        }
        for thread in threads {
            let _ = thread.join();
        }
        world.end(parties, self.linger >= FOR_GOOD);
        time::stop();
        let _ = timer.join();
        let objections = world.journal.objections();
        assert!(objections.is_empty(), "{objections:?}");
    }

    fn party(&self, world: &World) -> Party {
        let network = world.network.another();
        let generator = DLockGenerator::builder()
            .clock(Arc::new(ClientClock))
            .listener(self.listener)
            .build(network.clone())
            .expect("random numbers");
        let settings = DLockConfig::new("T", "x")
            .with_lease(LEASE)
            .with_probe(self.probe)
            .with_linger(self.linger)
            .with_local_passes(self.local_passes);
        let lock = generator.generate_with(settings).expect("open");
        Party { generator: Arc::new(generator), lock, network }
    }

    fn guests(&self) -> usize {
        let acts = self.clients.iter().copied().flatten().copied().flatten();
        acts.filter(|act| act.is_guest()).count()
    }
}
