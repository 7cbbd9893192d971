//! A process that counts under the lock of one version: worker 0.1|0.2 URL PROCESS ROUNDS. It prints its holds.

use std::error::Error;
use std::io::{Write, stdin, stdout};
use std::time::Duration;
use std::{env, thread};

/// Both versions have the same names.
macro_rules! work {
    ($dlock:ident, $url:expr, $process:expr, $rounds:expr) => {{
        use $dlock::{Clock, DLockConfig, DLockGenerator, SystemClock};
        let generator = DLockGenerator::connect($url)?;
        let lock = generator.generate_with(DLockConfig::new("TWO", "versions").with_lease(Duration::from_secs(60)))?;
        let mut counter = redis::Client::open($url)?.get_connection()?;
        println!("ready");
        stdin().read_line(&mut String::new())?;
        let mut holds = Vec::new();
        for _ in 0..$rounds {
            let asked = SystemClock.now().as_nanos();
            let guard = lock.lock()?;
            let begin = SystemClock.now().as_nanos();
            let read: u64 = redis::cmd("GET").arg("counter").query(&mut counter)?;
            thread::sleep(Duration::from_micros(300));
            redis::cmd("SET").arg("counter").arg(read + 1).exec(&mut counter)?;
            let end = SystemClock.now().as_nanos();
            holds.push(format!("{} 1 {} {asked} {begin} {end}", $process, guard.fencing_token()));
            guard.unlock()?;
        }
        holds
    }};
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<_> = env::args().skip(1).collect();
    let [version, url, process, rounds] = &words[..] else { return Err("worker 0.1|0.2 URL PROCESS ROUNDS".into()) };
    let (url, rounds) = (url.as_str(), rounds.parse::<u32>()?);
    let holds = match version.as_str() {
        "0.1" => work!(first_version, url, process, rounds),
        _ => work!(redis_dlock, url, process, rounds),
    };
    let mut out = stdout().lock();
    for hold in holds {
        writeln!(out, "{hold}")?;
    }
    Ok(())
}
