//! A process that takes a lock on a SQLite file again and again, and prints when it is inside, and with which token.
//!
//! ```sh
//! cargo run -p sqlite-store -- locks.db 50
//! ```
//!
//! A third argument says in which hold it stays until it is killed.

#![allow(clippy::print_stdout, reason = "it talks to the one who runs it")]

use redis_dlock::{DLockConfig, DLockGenerator};
use sqlite_store::SqliteLockProcessor;
use std::error::Error;
use std::process;
use std::time::Duration;
use std::{env, thread};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let path = arguments.next().ok_or("which file?")?;
    let holds: u32 = arguments.next().map_or(Ok(50), |holds| holds.parse())?;
    let last: Option<u32> = arguments.next().map(|last| last.parse()).transpose()?;

    let generator = DLockGenerator::new(SqliteLockProcessor::open(path)?)?;
    let lock = generator.generate_with(DLockConfig::new("ORDER", "4711").with_lease(Duration::from_secs(5)))?;
    let process = process::id();
    for hold in 1..=holds {
        let guard = lock.lock()?;
        let token = guard.fencing_token();
        println!("{process} enters {token}");
        thread::sleep(Duration::from_millis(1));
        if last == Some(hold) {
            thread::sleep(Duration::MAX);
        }
        println!("{process} leaves {token}");
        guard.unlock()?;
        // The others ask at intervals: the lock is free for some of their questions.
        thread::sleep(Duration::from_millis(u64::from(process + hold) % 20));
    }
    Ok(())
}
