//! Lock + unlock, a key for each thread or task, nobody else wants them: this crate, other lock crates, locks for other languages, and the raw pair.
//!
//! Arguments: port of a Redis server, rounds, milliseconds a round; then a name and a command for each program of another language. Writes lines
//! `name, threads, pairs a second of each round`, by tabs.

#[allow(dead_code, unused_imports)]
#[path = "../../report/support/crew.rs"]
mod crew;
#[allow(dead_code)]
#[path = "../../../tests/support"]
mod kit {
    pub(crate) mod crew;
}
mod locks;
mod programs;
#[allow(dead_code)]
#[path = "../../report/support/raw.rs"]
mod raw;
#[allow(dead_code)]
#[path = "../../report/support/stats.rs"]
mod stats;

use crew::Work;
use locks::{Asynchronous, Dist, Ours, RedisLock, Rslock};
use programs::Program;
use raw::{Address, Pair, Raw};
use stats::{Variant, interleave};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

fn main() {
    let argument = |n| std::env::args().nth(n).and_then(|word| word.parse::<u64>().ok()).expect("port, rounds, ms");
    let (address, rounds) = (Address::Tcp(argument(1) as u16), argument(2) as usize);
    let window = Duration::from_millis(argument(3));
    let words: Vec<_> = std::env::args().skip(4).collect();
    let programs: Vec<_> = words.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
    // As many workers as the figures of others that we know of were measured with.
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for threads in [1, 16] {
        measure(&address, &runtime, &programs, threads, rounds, window);
    }
}

fn measure(
    address: &Address,
    runtime: &Runtime,
    programs: &[(&str, &str)],
    threads: usize,
    rounds: usize,
    window: Duration,
) {
    let url = address.url();
    let Address::Tcp(port) = *address else { panic!("the programs take a port") };
    let started: Vec<_> =
        programs.iter().map(|(_, command)| RefCell::new(Program::start(command, port, threads))).collect();
    let keys: Vec<_> = (0..threads).map(|n| n.to_string()).collect();
    let mut connections: Vec<_> = keys.iter().map(|_| Raw::connect(address)).collect();
    let pairs: Vec<_> = keys.iter().map(|key| Pair::new(address, key)).collect();
    let generator = redis_dlock::DLockGenerator::connect(&url).unwrap();
    let locks: Vec<_> = keys.iter().map(|key| generator.generate("BENCH", key).unwrap()).collect();
    let [released, dropped] = [true, false].map(|awaits_release| Ours { generator: generator.clone(), awaits_release });
    let redlock = redlock::RedLock::new(vec![url.as_str()]);
    let enter = runtime.enter();
    let peers = RefCell::new((
        runtime.block_on(Rslock::new(&url)),
        runtime.block_on(RedisLock::new(&url)),
        runtime.block_on(Dist::new(&url)),
    ));
    drop(enter);
    let threads_do = |works: Vec<Work<'_>>| crew::run(&mut { works }, window, Duration::ZERO).per_second;
    let mut variants: Vec<(&str, Variant<'_>)> = vec![
        (
            "raw pair, own connections",
            Box::new(|| {
                let each = connections.iter_mut().zip(&pairs);
                threads_do(each.map(|(raw, pair)| -> Work<'_> { Box::new(|| pair.run(raw)) }).collect())
            }),
        ),
        (
            "redis-dlock, unlock()",
            Box::new(|| {
                threads_do(
                    locks
                        .iter()
                        .map(|lock| -> Work<'_> { Box::new(|| lock.lock().unwrap().unlock().unwrap()) })
                        .collect(),
                )
            }),
        ),
        (
            "redis-dlock, drop",
            Box::new(|| {
                threads_do(locks.iter().map(|lock| -> Work<'_> { Box::new(|| drop(lock.lock().unwrap())) }).collect())
            }),
        ),
        ("redis-dlock, tasks, release_async()", Box::new(|| tasks_do(runtime, &released, &keys, window))),
        ("redis-dlock, tasks, drop", Box::new(|| tasks_do(runtime, &dropped, &keys, window))),
        (
            "redlock (blocking)",
            Box::new(|| {
                let redlock = &redlock;
                threads_do(
                    keys.iter().map(|key| -> Work<'_> { Box::new(move || locks::redlock(redlock, key)) }).collect(),
                )
            }),
        ),
        ("rslock (tokio)", Box::new(|| tasks_do(runtime, &peers.borrow().0, &keys, window))),
        ("redis-lock (tokio)", Box::new(|| tasks_do(runtime, &peers.borrow().1, &keys, window))),
        ("distributed-lock-redis (tokio)", Box::new(|| tasks_do(runtime, &peers.borrow().2, &keys, window))),
    ];
    for ((name, _), program) in programs.iter().zip(&started) {
        variants.push((name, Box::new(|| program.borrow_mut().work(window))));
    }
    let names: Vec<_> = variants.iter().map(|(name, _)| *name).collect();
    let mut variants: Vec<_> = variants.drain(..).map(|(_, variant)| variant).collect();
    for (name, figures) in names.iter().zip(interleave(rounds, &mut variants)) {
        let figures: Vec<_> = figures.iter().map(f64::to_string).collect();
        println!("{name}\t{threads}\t{}", figures.join("\t"));
    }
}

/// Pairs a second, a task for each key.
fn tasks_do<L: Asynchronous>(runtime: &Runtime, lock: &L, keys: &[String], window: Duration) -> f64 {
    let stop = Arc::new(AtomicBool::new(false));
    let begin = Instant::now();
    let tasks: Vec<_> =
        keys.iter().map(|key| runtime.spawn(pairs(lock.clone(), key.clone(), Arc::clone(&stop)))).collect();
    std::thread::sleep(window);
    stop.store(true, Ordering::Relaxed);
    let pairs: u64 = tasks.into_iter().map(|task| runtime.block_on(task).unwrap()).sum();
    pairs as f64 / begin.elapsed().as_secs_f64()
}

async fn pairs<L: Asynchronous>(lock: L, key: String, stop: Arc<AtomicBool>) -> u64 {
    let mut pairs = 0;
    while !stop.load(Ordering::Relaxed) {
        lock.pair(&key).await;
        pairs += 1;
    }
    pairs
}
