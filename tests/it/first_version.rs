//! The example in the README of version 0.1.0, word for word: programs that were written by it compile and work.

#![allow(clippy::print_stdout, reason = "it prints")]

use redis_dlock::{DLockConfig, DLockGenerator, Error, MemoryLockProcessor};
use std::time::Duration;

fn main() -> Result<(), Error> {
    // One generator for a program. On Redis: DLockGenerator::connect("redis://user:password@host:6379/0")?
    let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
    let lock = generator.generate_with(DLockConfig::new("ORDER", "4711").with_lease(Duration::from_secs(10)))?;

    let guard = lock.lock()?; // waits; the lease is renewed for as long as the guard lives
    println!("inside, with token {}", guard.fencing_token());
    guard.ensure_valid()?; // before each step that must not run beside another holder
    guard.unlock()?; // or drop it; unlock() returns the error that a drop can only log

    if let Some(guard) = lock.try_lock_for(Duration::from_millis(200))? {
        println!("inside again, {:?} left", guard.remaining());
    } else {
        println!("somebody else holds it");
    }
    Ok(())
}

#[test]
fn it_works() {
    main().unwrap();
}
