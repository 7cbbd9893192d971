//! Worker processes: this program once more, taking orders on stdin and answering on stdout. They are real processes: they can be
//! stopped and killed.
//!
//! In a test binary a worker runs one test, which is `#[ignore]`d and named by the test that starts it.

use super::crew::hang;
use super::process;
use crossbeam_channel::{Receiver, unbounded};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::collections::VecDeque;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;

/// What a worker process is to know from the beginning.
pub(crate) const SETTINGS: &str = "DLOCK_TEST_WORKER";

/// What an answer begins with: the test harness writes to stdout, too.
pub(crate) const MARK: &str = "@ ";

/// A worker process, killed when dropped.
pub(crate) struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
    /// Answers that were passed over.
    heard: VecDeque<String>,
}

impl Worker {
    /// Starts a process that runs the test at `path` (`module::name`).
    pub(crate) fn start(path: &str, settings: &str) -> Self {
        Self::start_with(path, settings, &[])
    }

    /// Starts a process with further environment variables.
    pub(crate) fn start_with(path: &str, settings: &str, variables: &[(&str, &str)]) -> Self {
        Self::launch(&[path, "--exact", "--nocapture", "--ignored"], settings, variables)
    }

    /// Starts this program with these arguments.
    pub(crate) fn launch(arguments: &[&str], settings: &str, variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(arguments)
            .env(SETTINGS, settings)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (send, answers) = unbounded();
        // Ends with the process.
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some((_, answer)) = line.split_once(MARK) {
                    let _ = send.send(answer.to_owned());
                }
            }
        });
        Self { child, orders, answers, heard: VecDeque::new() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn tell(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    pub(crate) fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.answer()
    }

    /// The next answer.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> String {
        self.heard.pop_front().unwrap_or_else(|| self.next())
    }

    /// The next answer, however long it takes.
    #[track_caller]
    pub(crate) fn answer_at_last(&mut self) -> String {
        self.heard.pop_front().unwrap_or_else(|| self.answers.recv().expect("the worker is alive"))
    }

    /// What follows `words` in the next answer that begins with them; others stay where they are.
    #[track_caller]
    pub(crate) fn answer_about(&mut self, words: &str) -> String {
        let rest = |answer: &String| answer.strip_prefix(words).map(|rest| rest.trim_start().to_owned());
        if let Some(place) = self.heard.iter().position(|answer| rest(answer).is_some()) {
            return self.heard.remove(place).as_ref().and_then(rest).unwrap();
        }
        loop {
            let answer = self.next();
            match rest(&answer) {
                Some(rest) => return rest,
                None => self.heard.push_back(answer),
            }
        }
    }

    /// Whether it has said anything that nobody has taken up.
    pub(crate) fn has_answered(&self) -> bool {
        !self.heard.is_empty() || !self.answers.is_empty()
    }

    #[track_caller]
    fn next(&self) -> String {
        self.answers.recv_timeout(hang()).unwrap_or_else(|e| panic!("no answer: {e}; not taken up: {:?}", self.heard))
    }

    /// Sends the process a signal; after STOP it stands still.
    pub(crate) fn signal(&self, signal: Signal) {
        process::signal(&self.child, signal);
    }

    /// Ends the process without a word, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// In a worker process: what it is to know. `None` in a process that runs the ignored tests for another reason.
pub(crate) fn settings() -> Option<String> {
    let settings = env::var(SETTINGS).ok()?;
    // Also a stopped worker ends with the test that has started it.
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    Some(settings)
}

/// In a worker process: what it is told.
pub(crate) fn orders() -> impl Iterator<Item = String> {
    std::io::stdin().lines().map_while(Result::ok)
}

/// In a worker process: tells the test.
#[expect(clippy::print_stdout, reason = "this is how a worker answers")]
pub(crate) fn answer(answer: &str) {
    println!("\n{MARK}{answer}");
}
