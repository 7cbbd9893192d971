//! The floor of an uncontended lock: two round trips of a bare connection, which sleeps or polls.

use crate::Plan;
use crate::support::pin::{self, Place};
use crate::support::proxy::Proxy;
use crate::support::raw::{Address, Pair, Raw};
use crate::support::report::{Limit, Section, number};
use crate::support::server::Server;
use crate::support::stats::{median, ratio};
use crate::support::worker::{Worker, cpu};
use redis_dlock::{DLockGenerator, DistributedReentrantLock, Polling, RedisLockProcessor};
use rustix::time::ClockId;
use std::time::{Duration, Instant};

/// How the server is reached.
struct Route {
    name: &'static str,
    place: (Place, Place),
    /// How many other processes compute.
    busy: usize,
    address: fn(&Server, &Proxy) -> Address,
    /// How long the network takes, each way.
    far: Duration,
    /// Pairs a round: full, and in a short run.
    pairs: (usize, usize),
    /// What `unlock()` may take, relative to the bare connection that sleeps, and to the one that polls.
    unlocked: [f64; 2],
}

const NEAR: Route = Route {
    name: "",
    place: (Place::Anywhere, Place::Anywhere),
    busy: 0,
    address: |server, _| server.tcp(),
    far: Duration::ZERO,
    pairs: (1000, 20),
    unlocked: [0.35, 1.15],
};

const FAR: Route = Route { address: |_, proxy| Address::Tcp(proxy.port()), pairs: (150, 5), unlocked: SAME, ..NEAR };

/// Where polling gains nothing.
const SAME: [f64; 2] = [1.03, 1.15];

const ROUTES: [Route; 9] = [
    Route { name: "TCP, pinned apart", place: (Place::Server, Place::Clients), ..NEAR },
    Route { name: "TCP, not pinned", ..NEAR },
    Route { name: "TCP, on one core", place: (Place::Server, Place::Server), unlocked: SAME, ..NEAR },
    Route {
        name: "unix socket, pinned apart",
        place: (Place::Server, Place::Clients),
        address: |server, _| server.unix(),
        ..NEAR
    },
    Route { name: "TCP, beside one process that computes", busy: 1, unlocked: SAME, ..NEAR },
    Route { name: "TCP, beside two", busy: 2, pairs: (300, 20), unlocked: SAME, ..NEAR },
    Route { name: "TCP, 0.1 ms each way", far: Duration::from_micros(100), ..FAR },
    Route { name: "TCP, 0.5 ms each way", far: Duration::from_micros(500), ..FAR },
    Route { name: "TCP, 5 ms each way", far: Duration::from_millis(5), pairs: (20, 2), ..FAR },
];

/// What is measured, in this order.
const VARIANTS: [&str; 5] = ["raw", "raw, polling", "`unlock()`", "drop", "`unlock()`, not polling"];

pub(crate) fn run(plan: &Plan) -> Section {
    let mut section = Section::new("Round-trip floor: one thread, nobody else wants the lock");
    section.paragraph(
        "Microseconds a pair: how long it takes, and the processor time of the client, each also relative to raw (the median of the rounds' ratios). Raw: \
         `SET NX PX`, then get-compare-del by `EVALSHA`, each waited for, on a bare connection that sleeps, or polls and yields.",
    );
    let (mut walls, mut costs) = (Vec::new(), Vec::new());
    for route in &ROUTES {
        let measured = measure(plan, route);
        let [wall, cost] = [0, 1].map(|of| measured.each_ref().map(|rounds| figures(rounds, of)));
        walls.push(row(route.name, &wall));
        costs.push(row(route.name, &cost));
        for (raw, limit) in route.unlocked.into_iter().enumerate() {
            let name = format!("{}: lock + unlock, relative to {}", route.name, VARIANTS[raw]);
            section.target(name, Limit::AtMost(limit), ratio(&wall[2], &wall[raw]));
        }
        let name = format!("{}: processor time of lock + unlock, relative to raw", route.name);
        section.target(name, Limit::AtMost(1.05), ratio(&cost[2], &cost[0]));
    }
    let header: Vec<_> = ["server reached by", VARIANTS[0]]
        .into_iter()
        .chain(VARIANTS[1..].iter().flat_map(|name| [*name, "relative"]))
        .collect();
    section.table(&header, &walls);
    section.paragraph("Processor time of the client:");
    section.table(&header, &costs);
    section
}

fn figures(rounds: &[[f64; 2]], of: usize) -> Vec<f64> {
    rounds.iter().map(|round| round[of]).collect()
}

fn row(name: &str, figures: &[Vec<f64>; 5]) -> Vec<String> {
    let [raw, others @ ..] = figures;
    let others = others.iter().flat_map(|figures| [median(figures), ratio(figures, raw)]);
    [name.to_owned(), number(median(raw))].into_iter().chain(others.map(number)).collect()
}

/// The rounds of each variant: microseconds a pair, and those of the processor.
fn measure(plan: &Plan, route: &Route) -> [Vec<[f64; 2]>; 5] {
    let server = Server::start(route.place.0);
    let proxy = Proxy::to(server.port(), route.far);
    let address = (route.address)(&server, &proxy);
    let count = plan.size(route.pairs.0, route.pairs.1);
    let _busy: Vec<_> = (0..route.busy).map(|_| Worker::start(Place::Anywhere, "compute", &[])).collect();
    pin::at(route.place.1, || {
        let (mut raw, mut polling, pair) =
            (Raw::connect(&address), Raw::connect(&address).polling(), Pair::new(&address, "x"));
        let locks = [Polling::Automatic, Polling::Off].map(|polling| {
            let store = RedisLockProcessor::builder(&address.url()).unwrap().polling(polling).connect().unwrap();
            let generator = DLockGenerator::new(store).unwrap();
            generator.generate("BENCH", "x").unwrap()
        });
        let [lock, sleeping_lock] = &locks;
        let mut variants: [Box<dyn FnMut() + '_>; 5] = [
            Box::new(|| pair.run(&mut raw)),
            Box::new(|| pair.run(&mut polling)),
            Box::new(|| unlocked(lock)),
            Box::new(|| dropped(lock)),
            Box::new(|| unlocked(sleeping_lock)),
        ];
        let mut rounds = [const { Vec::new() }; 5];
        for round in 0..=plan.rounds {
            for turn in 0..VARIANTS.len() {
                let variant = (round + turn) % VARIANTS.len();
                let figure = cost_of(count, &mut variants[variant]);
                // The first is for warming up.
                if round > 0 {
                    rounds[variant].push(figure);
                }
            }
        }
        rounds
    })
}

/// Microseconds that one of `count` calls takes, and those of this thread's processor time.
fn cost_of(count: usize, work: &mut dyn FnMut()) -> [f64; 2] {
    let before = (Instant::now(), cpu(ClockId::ThreadCPUTime));
    (0..count).for_each(|_| work());
    let each = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
    [each(before.0.elapsed()), each(cpu(ClockId::ThreadCPUTime) - before.1)]
}

pub(crate) fn unlocked(lock: &DistributedReentrantLock) {
    lock.lock().unwrap().unlock().unwrap();
}

pub(crate) fn dropped(lock: &DistributedReentrantLock) {
    drop(lock.lock().unwrap());
}
