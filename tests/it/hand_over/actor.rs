//! The test's side of a worker process; `play.rs` is the other one.

use super::scene::TARGET;
use crate::support::history::Hold;
use crate::support::worker::Worker;
use redis_dlock::Moment;
use rustix::process::Signal;
use std::time::Duration;

/// A worker process with clients of its own.
pub(super) struct Actor(Worker);

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
        Self(Worker::start("hand_over::play::play", url))
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Starts a thread of this name that locks.
    pub(super) fn lock(&mut self, name: &str, client: usize, lease: Duration) {
        self.lock_another(name, client, lease, TARGET);
    }

    /// Starts a thread of this name that locks another lock.
    pub(super) fn lock_another(&mut self, name: &str, client: usize, lease: Duration, target: &str) {
        self.0.tell(&format!("lock {name} {client} {} {target}", lease.as_millis()));
    }

    /// Waits until it has the lock.
    #[track_caller]
    pub(super) fn held(&mut self, name: &str) -> Held {
        let said = self.0.answer_about(&format!("{name} held"));
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
        self.0.tell(&format!("unlock {name}"));
        let said = self.0.answer_about(&format!("{name} free"));
        let (end, outcome) = said.split_once(' ').unwrap();
        assert_eq!(outcome, "fine", "{name}");
        Moment::from_nanos(end.parse().unwrap())
    }

    /// How many threads wait in a client.
    #[track_caller]
    pub(super) fn waiting(&mut self, client: usize) -> usize {
        self.0.tell(&format!("waiting {client}"));
        self.0.answer_about("waiting").parse().unwrap()
    }

    /// Whether nobody has said anything more.
    pub(super) fn is_silent(&self) -> bool {
        !self.0.has_answered()
    }

    /// Starts threads that lock, hold and unlock in a loop.
    pub(super) fn contend(&mut self, contest: &Contest) {
        let Contest { clients, threads, rounds, lease, hold } = contest;
        let (lease, hold) = (lease.as_millis(), hold.as_micros());
        self.0.tell(&format!("contend {clients} {threads} {rounds} {lease} {hold}"));
    }

    /// How many holds they have had.
    #[track_caller]
    pub(super) fn count(&mut self) -> usize {
        self.0.tell("count");
        self.0.answer_about("count").parse().unwrap()
    }

    /// Tells them to finish.
    pub(super) fn finish(&mut self) {
        self.0.tell("finish");
    }

    /// Their holds, once they have finished.
    #[track_caller]
    pub(super) fn holds(&mut self, process: usize) -> Vec<Hold> {
        let mut holds = Vec::new();
        loop {
            let said = self.0.answer();
            let Some(hold) = said.strip_prefix("hold ") else { return holds };
            holds.push(Hold { process, ..hold.parse().unwrap() });
        }
    }

    /// Moves the clock of its clients forward.
    #[track_caller]
    pub(super) fn advance(&mut self, time: Duration) {
        self.0.tell(&format!("advance {}", time.as_millis()));
        self.0.answer_about("advanced");
    }

    /// Stops it; it stands still when this returns.
    pub(super) fn stop(&self) {
        self.0.signal(Signal::STOP);
    }

    pub(super) fn go_on(&self) {
        self.0.signal(Signal::CONT);
    }

    pub(super) fn kill(&mut self) {
        self.0.kill();
    }
}
