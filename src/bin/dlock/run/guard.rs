//! The guard: a process that ends the command's process group if `dlock` is killed.
//!
//! It holds one end of a pipe, and sees `dlock` die by the end of the pipe. It is in a session of its own, so that neither a signal to
//! `dlock`'s process group nor the end of the terminal reaches it. The signals that `dlock` has blocked are blocked here, too.

use super::group::Group;
use super::launch::SELF;
use crate::status::{Failure, USAGE, say};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, setsid};
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The hidden subcommand.
pub(crate) const WORD: &str = "--guard-command";

/// How often the guard looks whether the group is gone.
const LOOK: Duration = Duration::from_millis(10);

/// How long the guard looks after SIGKILL.
const AFTER_KILL: Duration = Duration::from_secs(10);

/// The guard, as `dlock` has it. If it is dropped without [`dismiss`](Self::dismiss), the guard does its work. Dropping it waits for its end, so
/// that no dead process is left where nobody looks for dead orphans, as in many containers.
#[derive(Debug)]
pub(crate) struct Guard {
    pid: Pid,
    /// `None` when it was dismissed.
    line: Option<ChildStdin>,
}

impl Guard {
    pub(crate) fn start(stop_signal: Signal, grace: Duration) -> Result<Self, Failure> {
        let child = Command::new(SELF)
            .arg0("dlock")
            .arg(WORD)
            .arg((stop_signal as i32).to_string())
            .arg(grace.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| Failure::system("cannot start the guard of the command", error))?;
        let pid = child.id().try_into().map_err(|error| Failure::system("a process id", error))?;
        Ok(Self { pid: Pid::from_raw(pid), line: child.stdin })
    }

    /// Tells it whom to guard. From then on the group ends with `dlock`.
    pub(crate) fn protect(&mut self, group: Group) -> Result<(), Failure> {
        let told = self.line.as_mut().map_or(Ok(()), |line| line.write_all(format!("{}\n", group.0).as_bytes()));
        told.map_err(|error| Failure::system("the guard of the command has ended", error))
    }

    /// Ends it, because the group is gone. It has nothing that it would have to put in order, and may not even have started.
    pub(crate) fn dismiss(&mut self) {
        if let Some(line) = self.line.take() {
            // In this order: at the end of its line it would go to work.
            let _ = kill(self.pid, Signal::SIGKILL);
            drop(line);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.line = None;
        let _ = waitpid(self.pid, None);
    }
}

/// Runs the guard: the hidden subcommand.
pub(crate) fn keep_watch(words: impl Iterator<Item = OsString>) -> u8 {
    let words: Vec<_> = words.collect();
    let number = |word: &OsStr| word.to_str()?.parse::<u64>().ok();
    let orders = match &words[..] {
        [signal, grace] => number(signal).zip(number(grace)),
        _ => None,
    };
    let signal = orders.and_then(|(signal, _)| Signal::try_from(i32::try_from(signal).ok()?).ok());
    let Some(((_, grace), stop_signal)) = orders.zip(signal) else {
        say("--guard-command is for dlock itself: use `dlock run`");
        return USAGE;
    };
    let _ = setsid();
    let _ = prctl::set_name(c"dlock-guard");
    let mut group = None;
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        group = line.parse().ok().map(|pid| Group(Pid::from_raw(pid)));
    }
    if let Some(group) = group {
        end(group, stop_signal, Duration::from_millis(grace));
    }
    0
}

/// Ends a group that has lost its `dlock`.
fn end(group: Group, stop_signal: Signal, grace: Duration) {
    group.ask_to_end(stop_signal);
    if !gone_within(group, grace) {
        group.signal(Signal::SIGKILL);
        gone_within(group, AFTER_KILL);
    }
}

fn gone_within(group: Group, limit: Duration) -> bool {
    let start = Instant::now();
    loop {
        if group.is_gone() {
            return true;
        }
        if start.elapsed() >= limit {
            return false;
        }
        thread::sleep(LOOK);
    }
}
