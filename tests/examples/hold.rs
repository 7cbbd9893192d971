//! Holds many locks until its standard input ends: to see what locks cost that are held. The manual's page "Sizing" says what to look at.
//!
//! ```sh
//! cargo run --release --example hold -- redis://127.0.0.1 10000
//! ```

#![allow(clippy::print_stdout, reason = "it talks to the one who runs it")]

use redis_dlock::DLockGenerator;
use std::error::Error;
use std::io::{Read, stdin};
use std::process;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "redis://127.0.0.1".to_owned());
    let count: u32 = arguments.next().map_or(Ok(1), |count| count.parse())?;
    let generator = DLockGenerator::connect(&url)?;
    // Other processes that run this hold other locks.
    let name = |n| generator.generate("HOLD", format!("{}-{n}", process::id()));
    let guards = (0..count).map(|n| name(n)?.lock_owned()).collect::<Result<Vec<_>, _>>()?;
    println!("process {} holds {count} locks until its input ends", process::id());
    stdin().read_to_end(&mut Vec::new())?;
    drop(guards);
    Ok(())
}
