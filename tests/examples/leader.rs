//! A leader: one of many processes does a thing for as long as it holds the lock. When it resigns, dies or loses its lease, another one
//! leads.
//!
//! ```sh
//! cargo run --example leader -- redis://127.0.0.1 3    # start it several times; it leads three terms and ends
//! ```
//!
//! The leader watches the channel of its lease. When that says that the lease is lost, it stops at once: another process may lead by then.
//! The token numbers the terms. A follower refuses an order whose token is smaller than one that it has seen.

#![allow(clippy::print_stdout, reason = "it talks to the one who runs it")]

use redis_dlock::{DLockConfig, DLockGenerator, Error};
use std::time::{Duration, Instant};
use std::{env, process, thread};

/// How long a term lasts. A real leader resigns when it is told to end.
const TERM: Duration = Duration::from_millis(200);

/// How often the leader does its work.
const BEAT: Duration = Duration::from_millis(50);

fn main() -> Result<(), Error> {
    let mut words = env::args().skip(1);
    let url = words.next().unwrap_or_else(|| "redis://127.0.0.1".to_owned());
    let terms: u32 = words.next().and_then(|terms| terms.parse().ok()).unwrap_or(1);
    let generator = DLockGenerator::connect(&url)?;
    // Others lead ten seconds after a leader has died, or sooner if an operator breaks its hold.
    let lock = generator.generate_with(DLockConfig::new("LEADER", "cleaner").with_lease(Duration::from_secs(10)))?;
    for _ in 0..terms {
        let guard = lock.lock()?; // follows until it is elected
        let (lost, begin) = (guard.lost(), Instant::now());
        println!("{} leads term {}", process::id(), guard.fencing_token());
        while begin.elapsed() < TERM && lost.recv_timeout(BEAT).is_err() {
            // The work of a leader, with the token of its term.
        }
        match guard.unlock() {
            Ok(()) => println!("{} resigns", process::id()),
            Err(Error::LeaseLost(loss)) => println!("{} leads no more: {}", process::id(), loss.cause),
            Err(error) => return Err(error),
        }
        thread::yield_now();
    }
    Ok(())
}
