//! A cron job that is started on several machines, and never runs on two of them at the same time.
//!
//! ```sh
//! cargo run --example cron -- redis://127.0.0.1
//! ```
//!
//! The lock is tried once. Whoever does not get it has nothing to do. The lease is short, so that a machine that dies in the middle of the
//! job delays the next run little; it is renewed for as long as the job runs. The lock-delay gives what a dead machine has sent some time to
//! end before the job begins elsewhere.

#![allow(clippy::print_stdout, reason = "it talks to the one who runs it")]

use redis_dlock::{DLockConfig, DLockGenerator, Error};
use std::time::Duration;
use std::{env, thread};

/// How many steps the job has, and how long each of them takes.
const STEPS: u32 = 5;
const STEP: Duration = Duration::from_millis(100);

fn main() -> Result<(), Error> {
    let url = env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1".to_owned());
    let generator = DLockGenerator::connect(&url)?;
    let config = DLockConfig::new("CRON", "nightly export")
        .with_lease(Duration::from_secs(10))
        .with_lock_delay(Duration::from_secs(5))
        .with_reason("the nightly export");
    let lock = generator.generate_with(config)?;
    let Some(guard) = lock.try_lock()? else {
        println!("it runs elsewhere");
        return Ok(());
    };
    for step in 1..=STEPS {
        // Before each step that must not run beside another machine's. A step that writes passes the token along.
        guard.ensure_valid()?;
        println!("step {step} of {STEPS}, with token {}", guard.fencing_token());
        thread::sleep(STEP);
    }
    match guard.unlock() {
        Err(error) if error.is_lost() => return Err(error),
        // The export is done. A release that was not confirmed is repeated in the background.
        _ => println!("done"),
    }
    Ok(())
}
