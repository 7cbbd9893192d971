//! A process that counts under the lock of one version: worker VERSION URL COUNTER PROCESS ROUNDS. The counter is on a Redis server. The process prints
//! its holds.

use std::error::Error;
use std::io::{Write, stdin, stdout};
use std::time::Duration;
use std::{env, thread};

/// All versions have the same names.
macro_rules! work {
    ($dlock:ident, $generator:expr, $counter:expr, $process:expr, $rounds:expr) => {{
        use $dlock::{Clock, DLockConfig, SystemClock};
        let generator = $generator?;
        let lock = generator.generate_with(DLockConfig::new("TWO", "versions").with_lease(Duration::from_secs(60)))?;
        let mut counter = redis::Client::open($counter)?.get_connection()?;
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

/// The generator of a version on etcd or Consul.
macro_rules! on_consensus {
    ($dlock:ident, $consensus:ident, $url:expr) => {
        if $url.starts_with("etcd:") {
            $dlock::DLockGenerator::new($consensus::EtcdLockProcessor::new($url)?)
        } else {
            $dlock::DLockGenerator::new($consensus::ConsulLockProcessor::new($url)?)
        }
    };
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<_> = env::args().skip(1).collect();
    let [version, url, counter, process, rounds] = &words[..] else {
        return Err("worker VERSION URL COUNTER PROCESS ROUNDS".into());
    };
    let (url, counter, rounds) = (url.as_str(), counter.as_str(), rounds.parse::<u32>()?);
    let holds = match version.as_str() {
        "0.1" => work!(first_version, first_version::DLockGenerator::connect(url), counter, process, rounds),
        "before" => work!(before, on_consensus!(before, consensus_before, url), counter, process, rounds),
        _ if url == counter => work!(redis_dlock, redis_dlock::DLockGenerator::connect(url), counter, process, rounds),
        _ => work!(redis_dlock, on_consensus!(redis_dlock, dlock_consensus, url), counter, process, rounds),
    };
    let mut out = stdout().lock();
    for hold in holds {
        writeln!(out, "{hold}")?;
    }
    Ok(())
}
