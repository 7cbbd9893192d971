//! The test's side of a worker process; `play.rs` is the other one.

use super::play::CLOCK;
use super::scene::TARGET;
use crate::support::history::Hold;
use crate::support::worker::Worker;
use redis_dlock::Moment;
use rustix::process::Signal;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use tempfile::NamedTempFile;

/// A worker process with clients of its own.
pub(super) struct Actor {
    worker: Worker,
    /// How far its clock is ahead.
    clock: NamedTempFile,
    ahead: Duration,
}

/// What a thread says when it has the lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) token: u64,
    pub(super) begin: Moment,
    pub(super) valid: bool,
    pub(super) remaining: Duration,
}

/// What the threads of an actor do all the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contest {
    pub(super) clients: usize,
    /// In each client.
    pub(super) threads: usize,
    /// How often each thread has the lock; for ever if it is 0, until they are told to finish.
    pub(super) rounds: usize,
    pub(super) lease: Duration,
    pub(super) hold: Duration,
}

impl Actor {
    pub(super) fn start(url: &str) -> Self {
        let clock = NamedTempFile::new().unwrap();
        let variables = [(CLOCK, clock.path().to_str().unwrap())];
        let worker = Worker::start_with("hand_over::play::play", url, &variables);
        let mut actor = Self { worker, clock, ahead: Duration::ZERO };
        actor.advance(Duration::ZERO);
        actor
    }

    pub(super) fn pid(&self) -> u32 {
        self.worker.pid()
    }

    /// Starts a thread of this name that locks.
    pub(super) fn lock(&mut self, name: &str, client: usize, lease: Duration) {
        self.lock_another(name, client, lease, TARGET);
    }

    /// Starts a thread of this name that locks another lock.
    pub(super) fn lock_another(&mut self, name: &str, client: usize, lease: Duration, target: &str) {
        self.worker.tell(&format!("lock {name} {client} {} {target}", lease.as_millis()));
    }

    /// Waits until it has the lock.
    #[track_caller]
    pub(super) fn held(&mut self, name: &str) -> Held {
        let said = self.worker.answer_about(&format!("{name} held"));
        let [token, begin, valid, remaining] = said.split(' ').collect::<Vec<_>>()[..] else { panic!("{said}") };
        Held {
            token: token.parse().unwrap(),
            begin: Moment::from_nanos(begin.parse().unwrap()),
            valid: valid.parse().unwrap(),
            remaining: Duration::from_millis(remaining.parse().unwrap()),
        }
    }

    /// Lets it unlock, and waits until it has: the end of its hold.
    #[track_caller]
    pub(super) fn unlock(&mut self, name: &str) -> Moment {
        self.worker.tell(&format!("unlock {name}"));
        let said = self.worker.answer_about(&format!("{name} free"));
        let (end, outcome) = said.split_once(' ').unwrap();
        assert_eq!(outcome, "fine", "{name}");
        Moment::from_nanos(end.parse().unwrap())
    }

    /// How many threads wait in a client.
    #[track_caller]
    pub(super) fn waiting(&mut self, client: usize) -> usize {
        self.worker.tell(&format!("waiting {client}"));
        self.worker.answer_about("waiting").parse().unwrap()
    }

    /// Whether nobody has said anything more.
    pub(super) fn is_silent(&self) -> bool {
        !self.worker.has_answered()
    }

    /// Starts threads that lock, hold and unlock in a loop.
    pub(super) fn contend(&mut self, contest: &Contest) {
        let Contest { clients, threads, rounds, lease, hold } = contest;
        let (lease, hold) = (lease.as_millis(), hold.as_micros());
        self.worker.tell(&format!("contend {clients} {threads} {rounds} {lease} {hold}"));
    }

    /// How many holds they have had.
    #[track_caller]
    pub(super) fn count(&mut self) -> usize {
        self.worker.tell("count");
        self.worker.answer_about("count").parse().unwrap()
    }

    /// Tells them to finish.
    pub(super) fn finish(&mut self) {
        self.worker.tell("finish");
    }

    /// Their holds, once they have finished.
    #[track_caller]
    pub(super) fn holds(&mut self, process: usize) -> Vec<Hold> {
        let mut holds = Vec::new();
        loop {
            let said = self.worker.answer();
            let Some(hold) = said.strip_prefix("hold ") else { return holds };
            holds.push(Hold { process, ..hold.parse().unwrap() });
        }
    }

    /// Moves the clock of its clients forward, also while it is stopped.
    pub(super) fn advance(&mut self, time: Duration) {
        self.ahead += time;
        let ahead = u64::try_from(self.ahead.as_nanos()).unwrap();
        self.clock.as_file().write_all_at(&ahead.to_ne_bytes(), 0).unwrap();
    }

    /// Stops it; it stands still when this returns.
    pub(super) fn stop(&self) {
        self.worker.signal(Signal::STOP);
    }

    pub(super) fn go_on(&self) {
        self.worker.signal(Signal::CONT);
    }

    pub(super) fn kill(&mut self) {
        self.worker.kill();
    }
}
