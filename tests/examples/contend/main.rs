//! Threads, and with `--redis` processes, contend for one lock; then it is proved that nothing was lost.
//!
//! ```text
//! cargo run --release -p contend --example contend
//! cargo run --release -p contend --example contend -- --redis redis://127.0.0.1 --processes 3
//! ```
//!
//! The lock protects a counter that is read, left alone for a while, and written: without a lock, writes are lost
//! (`--no-lock` shows it). Every hold is recorded with its begin and end on the machine's own monotonic clock.

#![allow(clippy::print_stdout)] // a program for people

#[allow(dead_code, reason = "tests use more of it")]
#[path = "../../support/history.rs"]
mod history;
mod report;
mod worker;

use clap::Parser;
use redis_dlock::{Clock, DLockGenerator, LockProcessor, MemoryLockProcessor, RedisLockProcessor, SystemClock};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;
use worker::{Counter, Job, Visit};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Contends for one lock, prints who held it in which order, and checks that nothing was lost.
#[derive(Debug, Parser)]
struct Options {
    /// Threads in each process.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// How often each thread takes the lock.
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The lease in milliseconds. A waiter of another process asks again every sixth of it.
    #[arg(long, value_name = "MS", default_value_t = 500)]
    lease: u64,
    /// How long a thread stays between reading and writing the counter, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1)]
    pause: u64,
    /// Contend on this Redis server; without it, on the embedded store of one process.
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// How many processes contend [default: 2].
    #[arg(long, value_name = "N", requires = "redis", value_parser = clap::value_parser!(u32).range(1..))]
    processes: Option<u32>,
    /// Print all holds, not only the first and the last ones.
    #[arg(long)]
    all: bool,
    /// Let waiters of other processes ask for the lock instead of handing it to them.
    #[arg(long)]
    polling: bool,
    /// Do the same without the lock, to see that the check can fail.
    #[arg(long)]
    no_lock: bool,
    /// Be the worker process with this number.
    #[arg(long, hide = true, requires = "run")]
    worker: Option<usize>,
    /// What tells this run's keys from those of others.
    #[arg(long, hide = true)]
    run: Option<String>,
}

fn main() -> ExitCode {
    env_logger::init();
    let options = Options::parse();
    let outcome = match (&options.redis, options.worker, &options.run) {
        (Some(url), Some(process), Some(run)) => work(&options, url, process, run).map(|()| true),
        (Some(url), ..) => contend_on_redis(&options, url),
        (None, ..) => contend_embedded(&options),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("contend: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Options {
    fn job(&self, process: usize, run: &str) -> Job {
        Job {
            process,
            rounds: self.rounds,
            lease: Duration::from_millis(self.lease),
            pause: Duration::from_millis(self.pause),
            target: run.to_owned(),
        }
    }

    fn generator(&self, store: impl LockProcessor) -> Result<DLockGenerator> {
        Ok(DLockGenerator::builder().listener(!self.polling).build(store)?)
    }

    fn processes(&self) -> u32 {
        if self.redis.is_some() { self.processes.unwrap_or(2) } else { 1 }
    }

    fn announce(&self, store: &str) {
        let (processes, threads, rounds) = (self.processes(), self.threads, self.rounds);
        let lock = if self.no_lock { "no lock" } else { "one lock" };
        println!("processes: {processes}, threads in each: {threads}, rounds of each: {rounds}; {lock}, {store}");
    }

    fn report(&self, mut visits: Vec<Visit>, count: u64) -> bool {
        let expected = u64::from(self.processes()) * u64::from(self.threads) * u64::from(self.rounds);
        visits.sort_by_key(|visit| visit.hold.begin);
        report::print(&visits, self.all, !self.no_lock);
        report::prove(&visits, expected, count, !self.no_lock)
    }
}

/// All threads in this process, on the embedded store.
fn contend_embedded(options: &Options) -> Result<bool> {
    options.announce("the embedded store");
    let generator = options.generator(MemoryLockProcessor::new())?;
    let counter = Counter::cell();
    let counters = (0..options.threads).map(|_| counter.share()).collect::<Result<_>>()?;
    let visits = worker::run(&options.job(1, "contend"), counters, (!options.no_lock).then_some(&generator))?;
    let count = counter.share()?.read()?;
    Ok(options.report(visits, count))
}

/// The parent: starts the workers together, collects their holds, and looks at the counter.
fn contend_on_redis(options: &Options, url: &str) -> Result<bool> {
    let run = format!("{}-{}", std::process::id(), SystemClock.now().as_nanos());
    // What stands before the `@` may be a password, and on a Unix socket what stands after the `?`.
    let place = url.rsplit_once('@').map_or(url, |(_, place)| place);
    options.announce(place.split('?').next().unwrap_or_default());
    // First the lock's own words about a server that cannot carry it.
    RedisLockProcessor::connect(url)?;
    let mut counter = Counter::connect(url, &run)?;
    counter.write(0)?;
    let visits = run_workers(options.processes(), &run);
    let count = counter.read();
    counter.remove()?;
    Ok(options.report(visits?, count?))
}

fn run_workers(processes: u32, run: &str) -> Result<Vec<Visit>> {
    let mut workers = Vec::new();
    for process in 1..=processes {
        let child = Command::new(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .args(["--run", run, "--worker", &process.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        workers.push(child);
    }
    // No early return from here on: every worker is waited for.
    let readers: Vec<_> = workers.iter_mut().map(|worker| worker.stdout.take().map(BufReader::new)).collect();
    let mut lines: Vec<_> = readers.into_iter().flatten().map(BufRead::lines).collect();
    for worker_lines in &mut lines {
        worker_lines.next(); // "ready", or the end of a worker that failed: its exit code tells
    }
    for worker in &mut workers {
        drop(worker.stdin.take()); // the start for all of them
    }
    let collected = std::thread::scope(|scope| {
        let collect = |lines: std::io::Lines<_>| lines.map(|line| Visit::from_line(&line?)).collect::<Result<Vec<_>>>();
        let threads: Vec<_> = lines.into_iter().map(|lines| scope.spawn(move || collect(lines))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a reader panicked".into()))).collect()
    });
    let ends: Vec<_> = workers.iter_mut().map(Child::wait).collect();
    for (process, end) in (1..).zip(ends) {
        let status = end?;
        if !status.success() {
            return Err(format!("process {process} failed: {status}").into());
        }
    }
    let visits: Vec<Vec<Visit>> = Result::from_iter::<Vec<_>>(collected)?;
    Ok(visits.into_iter().flatten().collect())
}

/// A worker: connects, waits for the start, contends, and tells its holds.
fn work(options: &Options, url: &str, process: usize, run: &str) -> Result<()> {
    let generator = options.generator(RedisLockProcessor::connect(url)?)?;
    let counters = (0..options.threads).map(|_| Counter::connect(url, run)).collect::<Result<_>>()?;
    println!("ready");
    std::io::stdout().flush()?;
    std::io::stdin().lock().read_line(&mut String::new())?;
    let visits = worker::run(&options.job(process, run), counters, (!options.no_lock).then_some(&generator))?;
    let mut out = std::io::stdout().lock();
    for visit in visits {
        writeln!(out, "{}", visit.to_line())?;
    }
    Ok(out.flush()?)
}
