//! What each thread does: lock, read, pause, write, unlock.

use crate::Result;
use redis_dlock::{Clock, DLockConfig, DLockGenerator, Moment, SystemClock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The same for all threads of a process.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) process: u32,
    pub(crate) rounds: u32,
    pub(crate) lease: Duration,
    pub(crate) pause: Duration,
    pub(crate) target: String,
}

/// One hold, from just after `lock` to just before `unlock`.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) process: u32,
    pub(crate) thread: u32,
    /// On a clock that all processes of the machine share.
    pub(crate) start: Moment,
    pub(crate) end: Moment,
    /// Zero without a lock.
    pub(crate) token: u64,
    /// The count that was read.
    pub(crate) read: u64,
}

impl Hold {
    pub(crate) fn to_line(&self) -> String {
        let Self { process, thread, start, end, token, read } = self;
        format!("{process} {thread} {} {} {token} {read}", start.as_nanos(), end.as_nanos())
    }

    pub(crate) fn from_line(line: &str) -> Result<Self> {
        let numbers: Vec<u64> = line.split(' ').map(str::parse).collect::<std::result::Result<_, _>>()?;
        let [process, thread, start, end, token, read] = numbers[..] else {
            return Err(format!("a worker said {line:?}").into());
        };
        let (start, end) = (Moment::from_nanos(start), Moment::from_nanos(end));
        Ok(Self { process: process.try_into()?, thread: thread.try_into()?, start, end, token, read })
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

/// Runs one thread a counter; their holds.
pub(crate) fn run(job: &Job, counters: Vec<Counter>, generator: Option<&DLockGenerator>) -> Result<Vec<Hold>> {
    std::thread::scope(|scope| {
        let spawn = |(thread, counter)| scope.spawn(move || contend(job, thread, counter, generator));
        let threads: Vec<_> = (1..).zip(counters).map(spawn).collect();
        let mut holds = Vec::new();
        for thread in threads {
            holds.extend(thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))?);
        }
        Ok(holds)
    })
}

fn contend(job: &Job, thread: u32, mut counter: Counter, generator: Option<&DLockGenerator>) -> Result<Vec<Hold>> {
    let config = DLockConfig::new("CONTEND", &job.target).with_lease(job.lease);
    let lock = generator.map(|generator| generator.generate_with(config)).transpose()?;
    let mut holds = Vec::new();
    for _ in 0..job.rounds {
        let guard = lock.as_ref().map(|lock| lock.lock()).transpose()?;
        let start = SystemClock.now();
        let read = counter.read()?;
        std::thread::sleep(job.pause);
        counter.write(read + 1)?;
        let end = SystemClock.now();
        let token = guard.as_ref().map_or(0, |guard| guard.fencing_token());
        holds.push(Hold { process: job.process, thread, start, end, token, read });
        // A lost lease is an error here, so a run that ends well was exclusive to the end of each hold.
        guard.map_or(Ok(()), |guard| guard.unlock())?;
    }
    Ok(holds)
}
