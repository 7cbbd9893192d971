//! A program that drops a guard, or the holds of tasks, and ends: what tests/it/ending.rs starts. Its arguments are the server's URL, the lock's
//! target, where its generator is, how it ends, and what happens to the server between lock and drop.

use futures_lite::future::block_on;
use redis_dlock::{DLockConfig, DLockGenerator, DLockGuard, DistributedReentrantLock, Hold};
use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// Long against the test.
const LEASE: Duration = Duration::from_secs(30);

/// How many threads work on other locks, in a pool and in a crowd.
const POOL: u32 = 4;
const CROWD: u32 = 16;

/// How many locks tasks have beside that one. They are given back before it.
const TASKS: u32 = 64;

static GENERATOR: OnceLock<DLockGenerator> = OnceLock::new();

/// The exit code of a program that did not come to its drop.
const NOT_BEGUN: i32 = 3;

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(NOT_BEGUN);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let [url, target, place, end, event] = &words[..] else { return Err("five arguments".into()) };
    let connect = || DLockGenerator::connect(url);
    let (local, shared);
    let generator = match &**place {
        "local" | "tasks" => {
            local = connect()?;
            &local
        }
        "static" => GENERATOR.get_or_init(|| connect().expect("a server")),
        "pool" | "crowd" => {
            shared = Arc::new(connect()?);
            for n in 0..if place == "pool" { POOL } else { CROWD } {
                work(Arc::clone(&shared), format!("{target}-{n}"));
            }
            &*shared
        }
        other => return Err(other.into()),
    };
    let lock = generator.generate_with(DLockConfig::new("END", target).with_lease(LEASE))?;
    lock.lock()?.unlock()?;
    let held = if place == "tasks" { Held::ByTasks(awaited(&lock, generator)?) } else { Held::Here(lock.lock()?) };
    let mut admin = redis::Client::open(&**url)?.get_connection()?;
    match &**event {
        "plain" => {}
        "flushed" => redis::cmd("SCRIPT").arg("FLUSH").exec(&mut admin)?,
        "cut" => redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).exec(&mut admin)?,
        other => return Err(other.into()),
    }
    drop(held);
    match &**end {
        "return" => Ok(()),
        "exit" => std::process::exit(0),
        "abort" => std::process::abort(),
        _ => panic!("as it is told"),
    }
}

enum Held<'a> {
    Here(#[expect(dead_code, reason = "it is dropped")] DLockGuard<'a>),
    ByTasks(#[expect(dead_code, reason = "they are dropped")] Vec<Hold>),
}

/// Awaits this lock after others.
fn awaited(lock: &DistributedReentrantLock, generator: &DLockGenerator) -> Result<Vec<Hold>, redis_dlock::Error> {
    let other = |n: u32| generator.generate_with(DLockConfig::new("OTHER", n.to_string()).with_lease(LEASE));
    let locks: Result<Vec<_>, _> = (0..TASKS).map(other).chain([Ok(lock.clone())]).collect();
    locks?.iter().map(|lock| block_on(lock.hold_async())).collect()
}

/// Starts a thread that is never without a lock of its own for long.
fn work(generator: Arc<DLockGenerator>, target: String) {
    thread::spawn(move || {
        let lock = generator.generate_with(DLockConfig::new("END", &target).with_lease(LEASE)).expect("a lock");
        loop {
            // The connection may be cut.
            drop(lock.try_lock());
        }
    });
}
