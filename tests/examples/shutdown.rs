//! A service that ends in order: on SIGTERM or Ctrl-C its threads give their locks back, and those that wait give up.
//!
//! ```sh
//! cargo run --example shutdown -- redis://127.0.0.1 20    # start it several times, and end each with `kill` or Ctrl-C
//! ```
//!
//! Two threads of each process share a shift: one works, and the other one waits. One token tells all of them to end. The manual's page
//! "Shutting down" says what happens in which order.

#![allow(clippy::print_stdout, reason = "it talks to the one who runs it")]

use redis_dlock::{CancelToken, DLockConfig, DLockGenerator, DistributedReentrantLock};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::error::Error;
use std::time::Duration;
use std::{env, process, thread};

/// How long a step of the work takes. A thread sees that it is to end after each step, or, as here, within it.
const STEP: Duration = Duration::from_millis(50);

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = env::args().skip(1);
    let url = words.next().unwrap_or_else(|| "redis://127.0.0.1".to_owned());
    let threads: u32 = words.next().map_or(Ok(20), |threads| threads.parse())?;
    let generator = DLockGenerator::connect(&url)?;
    let end = CancelToken::new();
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let mut workers = Vec::new();
    for n in 0..threads {
        let config = DLockConfig::new("SHIFT", (n / 2).to_string()).with_reason("a shift");
        let (lock, end) = (generator.generate_with(config)?, end.clone());
        workers.push(thread::spawn(move || work(&lock, &end)));
    }
    println!("process {} works; it ends on SIGTERM", process::id());
    signals.forever().next();
    end.cancel();
    for worker in workers {
        worker.join().map_err(|_| "a thread has panicked")??;
    }
    // What was released is answered when this returns, and the threads and connections of the generator are gone.
    generator.close();
    println!("process {} has ended in order", process::id());
    Ok(())
}

/// Works whenever it has the lock, until it is told to end.
fn work(lock: &DistributedReentrantLock, end: &CancelToken) -> Result<(), redis_dlock::Error> {
    let ended = end.cancelled();
    while let Some(guard) = lock.lock_cancellable(end)? {
        while guard.is_valid() {
            if ended.recv_timeout(STEP).is_ok() {
                return Ok(()); // the drop of the guard gives the lock back
            }
        }
    }
    Ok(())
}
