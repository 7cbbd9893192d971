//! What each thread does: lock, read, pause, write, unlock.

use crate::Result;
use crate::history::Hold;
use redis_dlock::{Clock, DLockConfig, DLockGenerator, SystemClock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The same for all threads of a process.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) process: usize,
    pub(crate) rounds: u32,
    pub(crate) lease: Duration,
    pub(crate) pause: Duration,
    pub(crate) target: String,
}

/// One hold, and the count that was read in it.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) hold: Hold,
    pub(crate) read: u64,
}

impl Visit {
    pub(crate) fn to_line(&self) -> String {
        format!("{} {}", self.read, self.hold)
    }

    pub(crate) fn from_line(line: &str) -> Result<Self> {
        let (read, hold) = line.split_once(' ').ok_or_else(|| format!("a worker said {line:?}"))?;
        Ok(Self { hold: hold.parse()?, read: read.parse()? })
    }
}

/// What the lock protects: a number that can be read and written, but not counted up in one step.
pub(crate) enum Counter {
    Cell(Arc<AtomicU64>),
    Redis(redis::Connection, String),
}

impl Counter {
    pub(crate) fn cell() -> Self {
        Self::Cell(Arc::default())
    }

    pub(crate) fn connect(url: &str, run: &str) -> Result<Self> {
        let connection = redis::Client::open(url)?.get_connection_with_timeout(Duration::from_secs(2))?;
        connection.set_read_timeout(Some(Duration::from_secs(5)))?;
        connection.set_write_timeout(Some(Duration::from_secs(5)))?;
        Ok(Self::Redis(connection, format!("contend:{run}")))
    }

    /// Another handle of a cell.
    pub(crate) fn share(&self) -> Result<Self> {
        match self {
            Self::Cell(cell) => Ok(Self::Cell(Arc::clone(cell))),
            Self::Redis(..) => Err("a connection is not shared".into()),
        }
    }

    pub(crate) fn read(&mut self) -> Result<u64> {
        match self {
            Self::Cell(cell) => Ok(cell.load(Ordering::SeqCst)),
            Self::Redis(connection, key) => Ok(redis::cmd("GET").arg(&*key).query(connection)?),
        }
    }

    pub(crate) fn write(&mut self, count: u64) -> Result<()> {
        match self {
            Self::Cell(cell) => cell.store(count, Ordering::SeqCst),
            Self::Redis(connection, key) => redis::cmd("SET").arg(&*key).arg(count).exec(connection)?,
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self) -> Result<()> {
        if let Self::Redis(connection, key) = self {
            redis::cmd("DEL").arg(&*key).exec(connection)?;
        }
        Ok(())
    }
}

/// Runs one thread a counter; their visits.
pub(crate) fn run(job: &Job, counters: Vec<Counter>, generator: Option<&DLockGenerator>) -> Result<Vec<Visit>> {
    std::thread::scope(|scope| {
        let spawn = |(thread, counter)| scope.spawn(move || contend(job, thread, counter, generator));
        let threads: Vec<_> = (1..).zip(counters).map(spawn).collect();
        let mut visits = Vec::new();
        for thread in threads {
            visits.extend(thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))?);
        }
        Ok(visits)
    })
}

fn contend(job: &Job, thread: usize, mut counter: Counter, generator: Option<&DLockGenerator>) -> Result<Vec<Visit>> {
    let config = DLockConfig::new("CONTEND", &job.target).with_lease(job.lease);
    let lock = generator.map(|generator| generator.generate_with(config)).transpose()?;
    let mut visits = Vec::new();
    for _ in 0..job.rounds {
        let asked = SystemClock.now();
        let guard = lock.as_ref().map(|lock| lock.lock()).transpose()?;
        let begin = SystemClock.now();
        let read = counter.read()?;
        std::thread::sleep(job.pause);
        counter.write(read + 1)?;
        let end = SystemClock.now();
        let token = guard.as_ref().map_or(0, |guard| guard.fencing_token());
        visits.push(Visit { hold: Hold { process: job.process, thread, token, asked, begin, end }, read });
        // A lost lease is an error here, so a run that ends well was exclusive to the end of each hold.
        guard.map_or(Ok(()), |guard| guard.unlock())?;
    }
    Ok(visits)
}
