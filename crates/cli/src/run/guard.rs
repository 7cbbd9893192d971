//! The guard: a process that ends the command's process group if `dlock` is killed.
//!
//! It reads from a pipe to which `dlock` has the other end. When `dlock` dies, the guard reads the end of the pipe. It is in a session of its own, so
//! that neither a signal to `dlock`'s process group nor the end of the terminal reaches it.

use super::fork::split_off;
use super::group::Group;
use crate::status::{Failure, SYSTEM};
use crate::timing;
use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout, pipe2, setsid};
use rustix::process::{PidfdFlags, WaitOptions, pidfd_open, pidfd_send_signal, waitpid};
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

/// The guard, as `dlock` sees it. If it is dropped after [`protect`](Self::protect) and without [`dismiss`](Self::dismiss), the guard does its work.
/// Dropping it waits for the guard's end: many containers have no process that reaps dead orphans.
#[derive(Debug)]
pub(crate) struct Guard {
    pid: rustix::process::Pid,
    /// The process itself. Its number may belong to another process by now, if somebody has killed the guard.
    process: OwnedFd,
    /// The pipe to the guard. `None` once the guard was dismissed. A launcher has a copy of the pipe until it becomes its command.
    line: Option<File>,
    is_told: bool,
}

impl Guard {
    /// Splits the guard off. The calling thread must be the only one.
    pub(crate) fn start() -> Result<Self, Failure> {
        Self::try_start().map_err(|error| Failure::system("cannot start the guard of the command", error))
    }

    fn try_start() -> io::Result<Self> {
        let line = pipe2(OFlag::O_CLOEXEC)?;
        let (pid, (_, line)) = split_off(c"dlock-guard", line, |(reader, writer)| {
            drop(writer);
            match keep_watch(reader.into()) {
                Ok(()) => 0,
                Err(_) => SYSTEM,
            }
        })?;
        let pid = rustix::process::Pid::from_raw(pid.as_raw()).ok_or_else(|| io::Error::other("no process id"))?;
        Ok(Self { pid, process: pidfd_open(pid, PidfdFlags::empty())?, line: Some(line.into()), is_told: false })
    }

    /// Tells the guard which group to guard, and how to end it. From then on the group ends with `dlock`.
    pub(crate) fn protect(&mut self, group: Group, stop_signal: Signal, grace: Duration) -> Result<(), Failure> {
        let orders = format!("{} {} {}\n", group.0, stop_signal as i32, grace.as_millis());
        self.is_told = true;
        let told = self.line.as_mut().map_or(Ok(()), |line| line.write_all(orders.as_bytes()));
        told.map_err(|error| Failure::system("the guard of the command has ended", error))
    }

    /// Kills the guard, because there is no group, or no group any more. The guard has nothing to clean up.
    pub(crate) fn dismiss(&mut self) {
        if let Some(line) = self.line.take() {
            // The kill comes first: at the end of its pipe the guard would end the group.
            let _ = pidfd_send_signal(&self.process, rustix::process::Signal::KILL);
            drop(line);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_told {
            self.dismiss();
        }
        self.line = None;
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
    }
}

/// The work of the guard.
fn keep_watch(line: File) -> io::Result<()> {
    // A signal to all processes with this name is meant for `dlock`, which ends its command itself.
    SigSet::all().thread_block()?;
    setsid()?;
    // The guard must not keep files open that other processes read until their end.
    let nowhere = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&nowhere).and(dup2_stdout(&nowhere)).and(dup2_stderr(&nowhere))?;
    let mut orders = String::new();
    BufReader::new(line).read_to_string(&mut orders)?;
    if let Some((group, stop_signal, grace)) = read(&orders) {
        end(group, stop_signal, grace);
    }
    Ok(())
}

/// Reads the orders. There are none if `dlock` has ended before the command began.
fn read(orders: &str) -> Option<(Group, Signal, Duration)> {
    let mut words = orders.strip_suffix('\n')?.split(' ');
    let group = Group(Pid::from_raw(words.next()?.parse().ok()?));
    let stop_signal = Signal::try_from(words.next()?.parse::<i32>().ok()?).ok()?;
    Some((group, stop_signal, Duration::from_millis(words.next()?.parse().ok()?)))
}

/// Ends a group that has lost its `dlock`.
fn end(group: Group, stop_signal: Signal, grace: Duration) {
    group.ask_to_end(stop_signal);
    if !gone_within(group, grace) {
        group.signal(Signal::SIGKILL);
        gone_within(group, timing::GUARD_LOOKS_FOR);
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
        thread::sleep(timing::GUARD_LOOK);
    }
}
