//! Holds locks until it is told to end (Ctrl-C, TERM): to see what locks cost that are held, or waited for. The manual's page "Sizing" says what to look
//! at, and `benches/sizing.sh` looks at it.
//!
//! ```sh
//! cargo run --release --example hold -- redis://127.0.0.1 10000      # locks of its own
//! cargo run --release --example hold -- redis://127.0.0.1 1 stock    # the same lock in each process: the second one waits
//! ```

#![allow(clippy::print_stdout, reason = "it talks to the one who runs it")]

use redis_dlock::DLockGenerator;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::error::Error;
use std::process;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "redis://127.0.0.1".to_owned());
    let count: u32 = arguments.next().map_or(Ok(1), |count| count.parse())?;
    let name = arguments.next().unwrap_or_else(|| process::id().to_string());
    let generator = DLockGenerator::connect(&url)?;
    let lock = |n| generator.generate("HOLD", format!("{name}-{n}"))?.lock_owned();
    let guards = (0..count).map(lock).collect::<Result<Vec<_>, _>>()?;
    // From here on a signal ends it in order. Before, it ends at once.
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    println!("process {} holds {count} locks until it is told to end", process::id());
    signals.forever().next();
    drop(guards);
    Ok(())
}
