//! The experiment in the README of JVM DLock: many threads want one lock; a trip is lock, 10 ms of work, unlock.

use crate::Plan;
use crate::support::kit::history::jain;
use crate::support::pin::Place;
use crate::support::plot::{Line, Picture};
use crate::support::raw::{Address, Pair, Raw};
use crate::support::report::{Limit, Section, number};
use crate::support::server::Server;
use crate::support::stats::median;
use crate::support::worker::{Worker, argument, listen, now, say};
use redis_dlock::{DLockConfig, DLockGenerator, Error};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const WORK: Duration = Duration::from_millis(10);
const LEASE: Duration = Duration::from_millis(60);

/// R = TPS / TPS of the traditional model, as JVM DLock published it, at 8, 16, … 128 threads.
const PUBLISHED: [f64; 16] =
    [1.01, 1.07, 1.21, 1.45, 1.56, 1.60, 1.66, 1.67, 1.69, 1.70, 1.71, 1.72, 1.74, 1.74, 1.67, 1.71];

/// What the threads do, and in how many processes.
struct Model {
    name: &'static str,
    /// Milliseconds between tries of those who poll; 0 for our lock.
    poll: u64,
    processes: usize,
}

const MODELS: [Model; 4] = [
    Model { name: "one process", poll: 0, processes: 1 },
    Model { name: "4 processes", poll: 0, processes: 4 },
    Model { name: "polling every 10 ms", poll: 10, processes: 1 },
    Model { name: "polling every 1 ms", poll: 1, processes: 1 },
];

/// What came of it.
#[derive(Clone, Copy)]
struct Figures {
    trips_per_second: f64,
    /// Trips finished in the window × the time that the same work takes without a lock, of the window.
    utilisation: f64,
    jain: f64,
    /// Trips whose lease was lost: the machine stood still for too long.
    lost: u64,
}

pub(crate) fn run(plan: &Plan) -> Section {
    let mut section = Section::new("The experiment of JVM DLock: one lock, 10 ms of work, lease 60 ms");
    section.paragraph(
        "R is our trips a second relative to the traditional model, in which every thread polls `SET NX PX` by itself, sleeping between tries. Utilisation: trips finished in the \
         window × the time that the same work takes one thread without a lock meanwhile, of the window. Jain: fairness over all threads.",
    );
    let server = Server::start(Place::Anywhere);
    // Some turns for each thread, or fairness over all of them says nothing.
    let turns = plan.size(8, 2);
    let counts: Vec<u64> = if plan.smoke { vec![8, 32] } else { (8..=128).step_by(8).collect() };
    let rounds = plan.size(plan.rounds.min(3), 1);
    let (mut rows, mut lines) = (Vec::new(), [const { Vec::new() }; 4]);
    let mut worst = [[f64::MAX; 2]; 2];
    for threads in counts {
        let mut figures: [Vec<Figures>; 4] = Default::default();
        for round in 0..rounds {
            for turn in 0..MODELS.len() {
                let i = (round + turn) % MODELS.len();
                // Throughput alone needs no turns.
                let window = if MODELS[i].poll == 0 { WORK * threads as u32 * turns } else { Duration::ZERO };
                // A trip more or less must not count.
                let window = window.max(plan.size(Duration::from_secs(3), Duration::from_millis(200)));
                figures[i].push(measure(&server, &MODELS[i], threads, window));
            }
        }
        let of = |i: usize, what: fn(&Figures) -> f64| median(&figures[i].iter().map(what).collect::<Vec<_>>());
        let r = |i: usize| of(0, |f| f.trips_per_second) / of(i, |f| f.trips_per_second);
        let mut row = vec![threads.to_string(), PUBLISHED[threads as usize / 8 - 1].to_string()];
        row.extend([r(2), r(3), of(0, |f| f.trips_per_second)].map(number));
        for (i, worst) in worst.iter_mut().enumerate() {
            let both = [of(i, |f| f.utilisation), of(i, |f| f.jain)];
            row.extend(both.map(number));
            worst[0] = worst[0].min(both[0]);
            worst[1] = worst[1].min(both[1]);
        }
        row.push((0..2).flat_map(|i| &figures[i]).map(|figures| figures.lost).sum::<u64>().to_string());
        rows.push(row);
        lines.iter_mut().enumerate().for_each(|(i, line)| line.push((threads as f64, of(i, |f| f.utilisation))));
    }
    let header = [
        "threads",
        "JVM's R",
        "R, 10 ms",
        "R, 1 ms",
        "trips/s",
        "utilisation",
        "Jain",
        "4 processes: utilisation",
        "Jain",
        "lost leases",
    ];
    section.table(&header, &rows);
    for (model, (limit, worst)) in MODELS.iter().zip([0.99, 0.98].into_iter().zip(worst)) {
        section.target(format!("{}: the least utilisation", model.name), Limit::AtLeast(limit), worst[0]);
        section.target(format!("{}: the least Jain index", model.name), Limit::AtLeast(0.99), worst[1]);
    }
    let lines = MODELS.iter().zip(lines).map(|(model, points)| Line { name: model.name.to_owned(), points }).collect();
    let title = "Lock trips against threads: the share of the time in which work is done";
    let picture = Picture { title, x: "threads", y: "utilisation", log_x: false, lines };
    picture.draw(&plan.directory.join("jvm-trip.svg"));
    section.picture("jvm-trip.svg", title);
    section
}

fn measure(server: &Server, model: &Model, threads: u64, window: Duration) -> Figures {
    let (port, poll) = (server.port().to_string(), model.poll.to_string());
    let threads = (threads / model.processes as u64).to_string();
    let start = || Worker::start(Place::Anywhere, "trips", &[&port, &poll, &threads]);
    let mut workers: Vec<_> = (0..model.processes).map(|_| start()).collect();
    workers.iter_mut().for_each(|worker| assert!(worker.hear().is_empty()));
    // All are under way when the window begins.
    let begin = now() + 300_000_000;
    workers.iter_mut().for_each(|worker| worker.tell(&[begin, begin + window.as_nanos() as u64]));
    let alone = alone(begin + window.as_nanos() as u64);
    let (mut lost, mut trips) = (0, Vec::new());
    for worker in &mut workers {
        let said = worker.hear();
        lost += said[0];
        trips.extend(&said[1..]);
    }
    let per_second = trips.iter().sum::<u64>() as f64 / window.as_secs_f64();
    Figures { trips_per_second: per_second, utilisation: per_second * alone, jain: jain(&trips), lost }
}

/// Seconds that the work takes without a lock, on average until then: a sleep takes longer than it is asked to, and longer still while others
/// use the machine.
fn alone(end: u64) -> f64 {
    let (begin, mut times) = (now(), 0);
    while now() < end {
        thread::sleep(WORK);
        times += 1;
    }
    (now() - begin) as f64 / 1e9 / f64::from(times)
}

/// A worker whose threads make trips, and that tells how many leases were lost, and how many trips each thread finished in the window.
pub(crate) fn make_trips() {
    let address = Address::Tcp(argument(0));
    let (poll, threads): (u64, usize) = (argument(1), argument(2));
    let generator = DLockGenerator::connect(&address.url()).unwrap();
    let connections: Vec<_> = (0..if poll == 0 { 0 } else { threads })
        .map(|n| (Raw::connect(&address), Pair::with(&address, "trips", &format!("poller-{n}"), LEASE)))
        .collect();
    say("");
    let (begin, end) = <[u64; 2]>::try_from(listen()).unwrap().into();
    let lost = &AtomicU64::new(0);
    let counts: Vec<u64> = thread::scope(|scope| {
        let count = |trip: &mut dyn FnMut(&dyn Fn()) -> bool| {
            let mut finished = 0;
            while now() < end {
                let is_done = trip(&|| {
                    if now() < end {
                        thread::sleep(WORK);
                    }
                });
                finished += u64::from(is_done && (begin..end).contains(&now()));
            }
            finished
        };
        let mut workers = Vec::new();
        for _ in 0..if poll == 0 { threads } else { 0 } {
            let lock = generator.generate_with(DLockConfig::new("BENCH", "trips").with_lease(LEASE)).unwrap();
            workers.push(scope.spawn(move || {
                count(&mut |work| {
                    let guard = lock.lock().unwrap();
                    work();
                    match guard.unlock() {
                        Ok(()) => true,
                        Err(Error::LeaseLost(_)) => {
                            lost.fetch_add(1, Ordering::Relaxed);
                            false
                        }
                        Err(error) => panic!("{error}"),
                    }
                })
            }));
        }
        for (mut raw, pair) in connections {
            workers.push(scope.spawn(move || {
                count(&mut |work| {
                    while !pair.try_lock(&mut raw) {
                        if now() >= end {
                            return false;
                        }
                        thread::sleep(Duration::from_millis(poll));
                    }
                    work();
                    pair.unlock(&mut raw)
                })
            }));
        }
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let counts: Vec<_> = [lost.load(Ordering::Relaxed)].into_iter().chain(counts).collect();
    say(&counts.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
}
