//! A leader: one of many processes does a thing for as long as it holds the lock. When it resigns, dies or loses its lease, another one
//! leads.
//!
//! ```sh
//! cargo run --example leader -- redis://127.0.0.1 3    # start it several times; it leads three terms and ends
//! ```
//!
//! The leader watches the channel of its term. When that says that the term is lost, it stops at once: another process may lead by then.
//! The token numbers the terms. A follower refuses an order whose token is smaller than one that it has seen.

#![allow(clippy::print_stdout, reason = "it talks to the one who runs it")]

use redis_dlock::{DLockConfig, DLockGenerator, Error};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use std::{env, process};

/// How long a term lasts. A real leader resigns when it is told to end.
const TERM: Duration = Duration::from_millis(200);

/// How often the leader does its work.
const BEAT: Duration = Duration::from_millis(50);

fn main() -> Result<(), Error> {
    let mut words = env::args().skip(1);
    let url = words.next().unwrap_or_else(|| "redis://127.0.0.1".to_owned());
    let mut terms: u32 = words.next().and_then(|terms| terms.parse().ok()).unwrap_or(1);
    let generator = DLockGenerator::connect(&url)?;
    // Others lead ten seconds after a leader has died, or sooner if an operator breaks its hold.
    let config = DLockConfig::new("LEADER", "cleaner").with_lease(Duration::from_secs(10));
    generator.leader_with(config)?.run(|term| {
        println!("{} leads term {}", process::id(), term.token());
        let (lost, begin) = (term.lost(), Instant::now());
        while begin.elapsed() < TERM && lost.recv_timeout(BEAT).is_err() {
            // The work of a leader, with the token of its term.
        }
        match term.resign() {
            Err(Error::LeaseLost(loss)) => println!("{} leads no more: {}", process::id(), loss.cause),
            _ => println!("{} resigns", process::id()),
        }
        terms -= 1;
        if terms == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}
