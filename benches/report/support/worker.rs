//! Further processes: this program once more, with another job. They are told and answer in lines of numbers.

use super::kit::worker::{self, SETTINGS};
use super::pin::{self, Place};
use rustix::time::{ClockId, clock_gettime};
use std::env;
use std::io::{BufRead, stdin};
use std::time::Duration;

pub(crate) use super::kit::worker::answer as say;

/// A process of ours. Killed when dropped.
pub(crate) struct Worker(worker::Worker);

/// The job of this process, if it is a worker.
pub(crate) fn job() -> Option<String> {
    // Not `worker::settings`: it ends a worker with the thread that has started it, and that of `pin::at` ends at once.
    env::var(SETTINGS).ok()
}

/// What a worker was given for its job.
pub(crate) fn argument<T: std::str::FromStr>(n: usize) -> T {
    env::args().nth(1 + n).and_then(|argument| argument.parse().ok()).expect("a worker gets its arguments")
}

/// Waits for a line of the process that started this one; ends with it.
pub(crate) fn listen() -> Vec<u64> {
    let mut line = String::new();
    if stdin().lock().read_line(&mut line).unwrap_or(0) == 0 {
        std::process::exit(0);
    }
    numbers(&line)
}

/// Nanoseconds of a clock that all processes of a machine share.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The processor time of the calling thread, or of its whole process.
pub(crate) fn cpu(clock: ClockId) -> Duration {
    clock_gettime(clock).try_into().unwrap()
}

fn numbers(line: &str) -> Vec<u64> {
    line.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

impl Worker {
    pub(crate) fn start(place: Place, job: &str, arguments: &[&str]) -> Self {
        Self(pin::at(place, || worker::Worker::launch(arguments, job, &[])))
    }

    pub(crate) fn tell(&mut self, numbers: &[u64]) {
        let words: Vec<_> = numbers.iter().map(u64::to_string).collect();
        self.0.tell(&words.join(" "));
    }

    /// Waits for a line: the numbers in it.
    pub(crate) fn hear(&mut self) -> Vec<u64> {
        numbers(&self.0.answer_at_last())
    }
}
