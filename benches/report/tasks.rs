//! Tasks that await their locks, beside threads that block for theirs, in turns on the same server.

use crate::Plan;
use crate::support::pin::{self, SETTINGS};
use crate::support::report::{Limit, Section, number};
use crate::support::server::Server;
use crate::support::stats::{median, ratio};
use crate::support::worker::cpu;
use futures_lite::future::block_on;
use redis_dlock::{DLockGenerator, DistributedReentrantLock};
use rustix::time::ClockId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// How many tasks, and how many threads, and how much longer a pair of a task may take.
const CREWS: [(usize, f64); 2] = [(1, 1.5), (64, 1.25)];

/// How the locks of a round are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A thread for each lock, which drops its guard.
    Threads,
    /// A task for each lock, which drops its hold.
    Tasks,
    /// The same with `unlock()`.
    ThreadsThatWait,
    /// The same with `release_async().await`.
    TasksThatWait,
}

const WAYS: [(&str, Way); 4] = [
    ("threads, drop", Way::Threads),
    ("tasks, drop", Way::Tasks),
    ("threads, `unlock()`", Way::ThreadsThatWait),
    ("tasks, `release_async().await`", Way::TasksThatWait),
];

pub(crate) fn run(plan: &Plan) -> Section {
    let mut section = Section::new("Tasks");
    section.paragraph(
        "Each thread or task has a key of its own, which is free. One task is polled by `block_on`, and more by the two threads of a tokio runtime. The last \
         column compares the time of a pair with that of threads that end their holds in the same way.",
    );
    for (setting, server_place, client_place) in SETTINGS {
        let server = Server::start(server_place);
        let mut rows = Vec::new();
        for (crew, limit) in CREWS {
            let rounds = pin::at(client_place, || measure(plan, &server, crew));
            for (n, ((name, _), (times, costs))) in WAYS.iter().zip(&rounds).enumerate() {
                let (time, of_threads) = (median(times), ratio(times, &rounds[n / 2 * 2].0));
                let figures = [1e6 / time, time, median(costs)].map(number);
                rows.push(
                    [vec![crew.to_string(), (*name).to_owned()], figures.into(), vec![format!("{of_threads:.2}")]]
                        .concat(),
                );
                if n % 2 == 1 {
                    section.target(
                        format!("{setting}, {crew} keys: {name} against threads"),
                        Limit::AtMost(limit),
                        of_threads,
                    );
                }
            }
        }
        section.paragraph(format!("**{setting}**"));
        section.table(&["keys", "", "pairs a second", "a pair, µs", "clients' processor, µs", "of threads"], &rows);
    }
    section
}

/// Microseconds that a pair takes, and that it costs the processor, round by round, of each way.
fn measure(plan: &Plan, server: &Server, crew: usize) -> [(Vec<f64>, Vec<f64>); WAYS.len()] {
    let window = plan.size(Duration::from_millis(400), Duration::from_millis(30));
    let generator = DLockGenerator::connect(&server.tcp().url()).unwrap();
    let locks: Vec<_> = (0..crew).map(|n| generator.generate("TASKS", format!("{n}")).unwrap()).collect();
    let runtime = Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let mut rounds = WAYS.map(|_| (Vec::new(), Vec::new()));
    // The first round warms up.
    for round in 0..=plan.rounds {
        for ((_, way), (times, costs)) in WAYS.iter().zip(&mut rounds) {
            let (begin, before) = (Instant::now(), cpu(ClockId::ProcessCPUTime));
            let pairs = pairs_in(&runtime, &locks, *way, window) as f64;
            let (took, cost) = (begin.elapsed(), cpu(ClockId::ProcessCPUTime) - before);
            if round > 0 {
                times.push(took.as_secs_f64() * 1e6 / pairs);
                costs.push(cost.as_secs_f64() * 1e6 / pairs);
            }
        }
    }
    rounds
}

/// Takes and releases each of the locks for so long. Returns how often, for all of them together.
fn pairs_in(runtime: &Runtime, locks: &[DistributedReentrantLock], way: Way, window: Duration) -> u64 {
    let (stop, pairs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let work = |lock: &DistributedReentrantLock| (lock.clone(), Arc::clone(&stop), Arc::clone(&pairs));
    match way {
        Way::Threads | Way::ThreadsThatWait => thread::scope(|scope| {
            for (lock, stop, pairs) in locks.iter().map(work) {
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let guard = lock.lock().unwrap();
                        if way == Way::Threads {
                            drop(guard);
                        } else {
                            guard.unlock().unwrap();
                        }
                        pairs.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            thread::sleep(window);
            stop.store(true, Ordering::Relaxed);
        }),
        Way::Tasks | Way::TasksThatWait if locks.len() == 1 => {
            let end = Instant::now() + window;
            let (lock, _, pairs) = work(&locks[0]);
            block_on(async {
                while Instant::now() < end {
                    pair(&lock, way).await;
                    pairs.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Way::Tasks | Way::TasksThatWait => {
            let tasks = locks.iter().map(work).map(|(lock, stop, pairs)| {
                runtime.spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        pair(&lock, way).await;
                        pairs.fetch_add(1, Ordering::Relaxed);
                    }
                })
            });
            let tasks: Vec<_> = tasks.collect();
            thread::sleep(window);
            stop.store(true, Ordering::Relaxed);
            runtime.block_on(async {
                for task in tasks {
                    task.await.unwrap();
                }
            });
        }
    }
    pairs.load(Ordering::Relaxed)
}

async fn pair(lock: &DistributedReentrantLock, way: Way) {
    let hold = lock.hold_async().await.unwrap();
    if way == Way::Tasks { drop(hold) } else { hold.release_async().await.unwrap() }
}
