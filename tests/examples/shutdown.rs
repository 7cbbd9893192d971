//! A service that ends in order: on SIGTERM or Ctrl-C its threads or tasks give their locks back, and those that wait give up.
//!
//! ```sh
//! cargo run --example shutdown -- redis://127.0.0.1 20          # start it several times, and end each with `kill` or Ctrl-C
//! cargo run --example shutdown -- redis://127.0.0.1 20 tasks    # the same with tasks on tokio
//! ```
//!
//! Two workers of each process share a shift: one works, and the other one waits. One token tells all threads to end, and one channel all tasks. The
//! manual's page "Shutting down" says what happens in which order.

#![allow(clippy::print_stdout, reason = "it talks to the one who runs it")]

use redis_dlock::{CancelToken, DLockConfig, DLockGenerator, DistributedReentrantLock};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::error::Error;
use std::time::Duration;
use std::{env, process, thread};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long a step of the work takes. A worker sees that it is to end after each step, or, as here, within it.
const STEP: Duration = Duration::from_millis(50);

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = env::args().skip(1);
    let url = words.next().unwrap_or_else(|| "redis://127.0.0.1".to_owned());
    let workers: u32 = words.next().map_or(Ok(20), |workers| workers.parse())?;
    let generator = DLockGenerator::connect(&url)?;
    let lock = |n: u32| generator.generate_with(DLockConfig::new("SHIFT", (n / 2).to_string()).with_reason("a shift"));
    let locks: Vec<_> = (0..workers).map(lock).collect::<Result<_, _>>()?;
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    println!("process {} works; it ends on SIGTERM", process::id());
    match words.next().as_deref() {
        Some("tasks") => tasks(locks, &mut signals)?,
        _ => threads(locks, &mut signals)?,
    }
    // What was released is answered when this returns, and the threads and connections of the generator are gone.
    generator.close();
    println!("process {} has ended in order", process::id());
    Ok(())
}

/// A thread for each lock. Returns when all have ended, after a signal.
fn threads(locks: Vec<DistributedReentrantLock>, signals: &mut Signals) -> Result<(), Box<dyn Error>> {
    let end = CancelToken::new();
    let start = |lock: DistributedReentrantLock| {
        let end = end.clone();
        thread::spawn(move || work(&lock, &end))
    };
    let workers: Vec<_> = locks.into_iter().map(start).collect();
    signals.forever().next();
    end.cancel();
    for worker in workers {
        worker.join().map_err(|_| "a thread has panicked")??;
    }
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

/// A task for each lock. Returns when all have ended, after a signal.
fn tasks(locks: Vec<DistributedReentrantLock>, signals: &mut Signals) -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::new()?;
    let (end, ended) = watch::channel(false);
    let start = |lock| runtime.spawn(work_in_task(lock, ended.clone()));
    let workers: Vec<_> = locks.into_iter().map(start).collect();
    signals.forever().next();
    end.send(true)?;
    for worker in workers {
        runtime.block_on(worker)??;
    }
    Ok(())
}

/// Does the same as [`work`], in a task.
async fn work_in_task(
    lock: DistributedReentrantLock,
    mut ended: watch::Receiver<bool>,
) -> Result<(), redis_dlock::Error> {
    loop {
        let hold = tokio::select! {
            hold = lock.hold_async() => hold?,
            _ = ended.changed() => return Ok(()), // the drop of the future gives its place in the queue up
        };
        while hold.is_valid() {
            if timeout(STEP, ended.changed()).await.is_ok() {
                return Ok(()); // the drop of the hold gives the lock back
            }
        }
    }
}
