//! The launcher: a process that waits for the lock together with `dlock`, and then becomes the command.
//!
//! What must happen between fork and exec happens here, in a program of its own, because nothing else is safe without `unsafe`. The
//! launcher is started first, and gets ready while `dlock` connects. It waits at a *gate*, a pipe on which `dlock` writes the fencing
//! token. If `dlock` ends before that, the pipe ends, and so does the launcher.

use super::group::Group;
use crate::status::{self, CANNOT_EXECUTE, Failure, NOT_FOUND, SYSTEM, say};
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, close, getppid, pipe2};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The hidden subcommand.
pub(crate) const WORD: &str = "--launch-command";

/// This program.
pub(crate) const SELF: &str = "/proc/self/exe";

pub(crate) const KEY: &str = "DLOCK_KEY";
pub(crate) const TOKEN: &str = "DLOCK_TOKEN";
pub(crate) const PID: &str = "DLOCK_PID";

/// How a command begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    /// The lock's key.
    pub(crate) key: &'a str,
    /// What the kernel sends the command when `dlock` dies.
    pub(crate) stop_signal: Signal,
    pub(crate) to_unblock: SigSet,
}

/// A launcher that waits at its gate. It is killed when dropped.
#[derive(Debug)]
pub(crate) struct Launcher {
    pid: Pid,
    /// `None` when the gate was opened.
    gate: Option<File>,
}

impl Launcher {
    /// Starts it, in a process group of its own. The thread that calls this must not end before the process does: the kernel takes its
    /// end for that of `dlock`.
    pub(crate) fn start(terms: Terms<'_>, command: &[OsString]) -> Result<Self, Failure> {
        let mut words = vec![OsString::from("--")];
        words.extend_from_slice(command);
        Self::start_with(terms, &words, |_| {})
    }

    /// Starts a shell command beside the command `of`, with nothing to read, and lets it run.
    pub(crate) fn run_shell(terms: Terms<'_>, text: &str, token: u64, of: Group) -> Result<Pid, Failure> {
        let words = ["--", "sh", "-c", text].map(OsString::from);
        let mut launcher = Self::start_with(terms, &words, |launcher| {
            launcher.stdin(Stdio::null()).env(PID, of.0.to_string());
        })?;
        launcher.open_gate(token);
        Ok(launcher.pid)
    }

    fn start_with(terms: Terms<'_>, words: &[OsString], change: impl FnOnce(&mut Command)) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::system("cannot start the launcher of the command", error);
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC).map_err(|error| failed(error.into()))?;
        // No other process is started before this end is closed here.
        fcntl(&reader, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|error| failed(error.into()))?;
        let mut launcher = Command::new(SELF);
        launcher
            .arg0("dlock")
            .arg(WORD)
            .arg(reader.as_raw_fd().to_string())
            .arg(Pid::this().to_string())
            .arg((terms.stop_signal as i32).to_string())
            .arg(numbers(terms.to_unblock))
            .args(words)
            .env(KEY, terms.key)
            .process_group(0);
        change(&mut launcher);
        let child = launcher.spawn().map_err(failed)?;
        let pid = Pid::from_raw(child.id().try_into().map_err(|error| Failure::system("a process id", error))?);
        Ok(Self { pid, gate: Some(writer.into()) })
    }

    pub(crate) fn group(&self) -> Group {
        Group(self.pid)
    }

    /// Lets it become the command. If it has ended meanwhile, its status tells.
    pub(crate) fn open_gate(&mut self, token: u64) {
        if let Some(mut gate) = self.gate.take() {
            let _ = gate.write_all(format!("{token}\n").as_bytes());
        }
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        if self.gate.is_some() {
            let _ = kill(self.pid, Signal::SIGKILL);
            let _ = waitpid(self.pid, None);
        }
    }
}

fn numbers(signals: SigSet) -> String {
    let numbers: Vec<_> = signals.iter().map(|signal| (signal as i32).to_string()).collect();
    numbers.join(",")
}

/// Runs the launcher: the hidden subcommand. Returns only if the command cannot be executed.
pub(crate) fn become_command(words: impl Iterator<Item = OsString>) -> u8 {
    let words: Vec<_> = words.collect();
    let Some((orders, command)) = words.iter().position(|word| word == "--").map(|at| words.split_at(at)) else {
        say("--launch-command is for dlock itself: use `dlock run`");
        return status::USAGE;
    };
    let Some((orders, [_, program, arguments @ ..])) = Orders::read(orders).zip(Some(command)) else {
        say("--launch-command is for dlock itself: use `dlock run`");
        return status::USAGE;
    };
    match orders.follow() {
        Ok(Some(token)) => {
            let error = Command::new(program).args(arguments).env(TOKEN, token).exec();
            say(&format!("cannot execute {program:?}: {error}"));
            if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT_EXECUTE }
        }
        // Nobody waits for this status.
        Ok(None) => SYSTEM,
        Err(error) => {
            say(&format!("cannot prepare the command: {error}"));
            SYSTEM
        }
    }
}

/// What `dlock` asks of its launcher.
struct Orders {
    gate: RawFd,
    parent: Pid,
    stop_signal: Signal,
    to_unblock: SigSet,
}

impl Orders {
    fn read(words: &[OsString]) -> Option<Self> {
        let [gate, parent, stop_signal, to_unblock] = words else { return None };
        let number = |word: &OsStr| word.to_str()?.parse::<i32>().ok();
        let signal = |number: i32| Signal::try_from(number).ok();
        let listed = to_unblock.to_str()?.split(',').filter(|word| !word.is_empty());
        Some(Self {
            gate: number(gate)?,
            parent: Pid::from_raw(number(parent)?),
            stop_signal: signal(number(stop_signal)?)?,
            to_unblock: listed.map(|word| signal(word.parse().ok()?)).collect::<Option<_>>()?,
        })
    }

    /// Ties this process to its parent, and waits at the gate. Returns the token; `None` if the parent has died or wants no command.
    fn follow(self) -> io::Result<Option<String>> {
        prctl::set_pdeathsig(self.stop_signal)?;
        // A descriptor is a number here. Opened anew, it is one that closes by itself.
        let mut gate = File::open(format!("/proc/self/fd/{}", self.gate))?;
        close(self.gate)?;
        let mut token = String::new();
        gate.read_to_string(&mut token)?;
        // It may have died before its death was of interest.
        let is_wanted = token.ends_with('\n') && getppid() == self.parent;
        self.to_unblock.thread_unblock()?;
        Ok(is_wanted.then(|| token.trim_end().to_owned()))
    }
}
