//! A program that drops a guard and ends: what tests/it/ending.rs starts. Its arguments are the server's URL, the lock's target, where its
//! generator is, how it ends, and what happens to the server between lock and drop.

use redis_dlock::{DLockConfig, DLockGenerator};
use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// Long against the test.
const LEASE: Duration = Duration::from_secs(30);

/// How many threads work on other locks, in a pool and in a crowd.
const POOL: u32 = 4;
const CROWD: u32 = 16;

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
        "local" => {
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
    let guard = lock.lock()?;
    let mut admin = redis::Client::open(&**url)?.get_connection()?;
    match &**event {
        "plain" => {}
        "flushed" => redis::cmd("SCRIPT").arg("FLUSH").exec(&mut admin)?,
        "cut" => redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).exec(&mut admin)?,
        other => return Err(other.into()),
    }
    drop(guard);
    match &**end {
        "return" => Ok(()),
        "exit" => std::process::exit(0),
        "abort" => std::process::abort(),
        _ => panic!("as it is told"),
    }
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
