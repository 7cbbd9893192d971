//! Tasks that await their locks, beside threads that block for theirs, in turns on the same server.

use crate::Plan;
use crate::support::pin::{self, SETTINGS};
use crate::support::report::{Limit, Section, number};
use crate::support::server::Server;
use crate::support::stats::{median, ratio};
use crate::support::worker::cpu;
use futures_lite::future::block_on;
use redis_dlock::{DLockGenerator, DLockGuard, DistributedReentrantLock};
use rustix::time::ClockId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
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
    /// A thread that has another thread take the lock and drop the guard.
    ByAnother,
    /// The same with `unlock()`.
    ByAnotherThatWaits,
}

impl Way {
    /// Whether it waits for the end of the hold.
    fn waits(self) -> bool {
        matches!(self, Self::ThreadsThatWait | Self::TasksThatWait | Self::ByAnotherThatWaits)
    }
}

/// Each with the place of the threads that end their holds in the same way.
const WAYS: [(&str, Way, usize); 6] = [
    ("threads, drop", Way::Threads, 0),
    ("tasks, drop", Way::Tasks, 0),
    ("a thread by way of another, drop", Way::ByAnother, 0),
    ("threads, `unlock()`", Way::ThreadsThatWait, 3),
    ("tasks, `release_async().await`", Way::TasksThatWait, 3),
    ("a thread by way of another, `unlock()`", Way::ByAnotherThatWaits, 3),
];

pub(crate) fn run(plan: &Plan) -> Section {
    let mut section = Section::new("Tasks");
    section.paragraph(
        "Each thread or task has a key of its own, which is free. One task is polled by `block_on`, and more by the two threads of a tokio runtime. The last \
         column compares the time of a pair with that of threads that end their holds in the same way. A thread that polls a task must not wait for \
         the store, so another thread does, and wakes it. *By way of another* is the least that this costs: a thread that blocks has another one call \
         `lock()` and end the guard, which yields for 50 µs before it sleeps, as the client's thread does.",
    );
    for (setting, server_place, client_place) in SETTINGS {
        let server = Server::start(server_place);
        let mut rows = Vec::new();
        for (crew, limit) in CREWS {
            let rounds = pin::at(client_place, || measure(plan, &server, crew));
            // One thread by way of another is what a task must cost at least. More of them would measure something else.
            for ((name, way, threads), (times, costs)) in
                WAYS.iter().zip(&rounds).filter(|(_, (times, _))| !times.is_empty())
            {
                let (time, of_threads) = (median(times), ratio(times, &rounds[*threads].0));
                let figures = [1e6 / time, time, median(costs)].map(number);
                rows.push(
                    [vec![crew.to_string(), (*name).to_owned()], figures.into(), vec![format!("{of_threads:.2}")]]
                        .concat(),
                );
                if matches!(way, Way::Tasks | Way::TasksThatWait) {
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
        let is_for_one = |way: Way| matches!(way, Way::ByAnother | Way::ByAnotherThatWaits);
        for ((_, way, _), (times, costs)) in
            WAYS.iter().zip(&mut rounds).filter(|((_, way, _), _)| crew == 1 || !is_for_one(*way))
        {
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
                        end(guard, way);
                        pairs.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            thread::sleep(window);
            stop.store(true, Ordering::Relaxed);
        }),
        Way::ByAnother | Way::ByAnotherThatWaits => return pairs_by_another(&locks[0], way, window),
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
    if way.waits() { hold.release_async().await.unwrap() } else { drop(hold) }
}

fn end(guard: DLockGuard<'_>, way: Way) {
    if way.waits() { guard.unlock().unwrap() } else { drop(guard) }
}

/// For how long the other thread yields before it sleeps.
const AWAKE: Duration = Duration::from_micros(50);

/// What the other thread is to do.
const NOTHING: u32 = 0;
const TAKE: u32 = 1;
const END: u32 = 2;
const STOP: u32 = 3;

/// Has another thread take and release the lock for so long. Returns how often.
fn pairs_by_another(lock: &DistributedReentrantLock, way: Way, window: Duration) -> u64 {
    let (order, caller) = (AtomicU32::new(NOTHING), thread::current());
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut held = None;
            loop {
                let awake_until = Instant::now() + AWAKE;
                while order.load(Ordering::Acquire) == NOTHING {
                    if Instant::now() < awake_until { thread::yield_now() } else { thread::park() }
                }
                match order.load(Ordering::Acquire) {
                    TAKE => held = Some(lock.lock().unwrap()),
                    END => end(held.take().unwrap(), way),
                    _ => return,
                }
                order.store(NOTHING, Ordering::Release);
                caller.unpark();
            }
        });
        let until_done = || {
            while order.load(Ordering::Acquire) != NOTHING {
                thread::park();
            }
        };
        let tell = |what| {
            until_done();
            order.store(what, Ordering::Release);
            other.thread().unpark();
        };
        let (until, mut pairs) = (Instant::now() + window, 0);
        while Instant::now() < until {
            tell(TAKE);
            until_done();
            tell(END);
            if way.waits() {
                until_done();
            }
            pairs += 1;
        }
        tell(STOP);
        pairs
    })
}
