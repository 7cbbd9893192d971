//! The launcher: a process that waits for the lock together with `dlock`, and then becomes the command.
//!
//! `dlock` splits it off before anything else. The launcher waits at a *gate*, a pipe on which `dlock` writes its orders. If `dlock` ends before
//! that, the pipe ends, and so does the launcher.

use super::fork::split_off;
use super::group::Group;
use crate::message::{are_about, complain};
use crate::status::{CANNOT_EXECUTE, Failure, NOT_FOUND, SYSTEM};
use nix::fcntl::OFlag;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, getppid, pipe2, setpgid};
use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

pub(crate) const KEY: &str = "DLOCK_KEY";
pub(crate) const TOKEN: &str = "DLOCK_TOKEN";
pub(crate) const PID: &str = "DLOCK_PID";

/// What `dlock` tells its launcher when the lock is acquired.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Orders<'a> {
    /// The lock's key.
    pub(crate) key: &'a str,
    pub(crate) token: u64,
    /// The signal that the kernel sends the command when `dlock` dies.
    pub(crate) stop_signal: Signal,
    /// How many of the last arguments of `dlock` are the command.
    pub(crate) words: usize,
}

/// A launcher that waits at its gate. It is killed when dropped.
#[derive(Debug)]
pub(crate) struct Launcher {
    pid: Pid,
    /// The gate. `None` once it was opened.
    gate: Option<File>,
}

impl Launcher {
    /// Splits a launcher off, in a process group of its own. The thread that calls this must be the only one, and must not end before the process
    /// does: the kernel treats its end as that of `dlock`.
    pub(crate) fn start() -> Result<Self, Failure> {
        Self::start_with(|words| {
            let arguments: Vec<_> = env::args_os().collect();
            let mut words = arguments[arguments.len().saturating_sub(words)..].iter();
            let mut command = Command::new(words.next().map_or_else(Default::default, OsString::clone));
            command.args(words);
            command
        })
    }

    /// Does the same as [`start`](Self::start) for a shell command that runs beside the command `of`, with an empty standard input.
    pub(crate) fn start_shell(text: &str, of: Group) -> Result<Self, Failure> {
        Self::start_with(|_| {
            let mut shell = Command::new("sh");
            shell.args(["-c", text]).stdin(Stdio::null()).env(PID, of.0.to_string());
            shell
        })
    }

    fn start_with(command: impl FnOnce(usize) -> Command) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::system("cannot start the launcher of the command", error);
        let gate = pipe2(OFlag::O_CLOEXEC).map_err(|error| failed(error.into()))?;
        let parent = Pid::this();
        let launched = split_off(c"dlock-launcher", gate, |(reader, writer)| {
            drop(writer);
            become_command(parent, reader.into(), command)
        });
        let (pid, (_, writer)) = launched.map_err(failed)?;
        // The launcher does the same. Whichever comes first, from now on there is a group that can be signalled.
        let _ = setpgid(pid, pid);
        Ok(Self { pid, gate: Some(writer.into()) })
    }

    pub(crate) fn group(&self) -> Group {
        Group(self.pid)
    }

    /// Lets the launcher become the command. If it has ended meanwhile, its status will show that.
    pub(crate) fn open_gate(&mut self, orders: Orders<'_>) {
        if let Some(mut gate) = self.gate.take() {
            let Orders { key, token, stop_signal, words } = orders;
            let _ = gate.write_all(format!("{}\0{words}\0{token}\0{key}\0", stop_signal as i32).as_bytes());
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

/// Becomes the command once the gate opens. Returns only if that never happens, or the command cannot be executed.
fn become_command(parent: Pid, gate: File, command: impl FnOnce(usize) -> Command) -> u8 {
    match await_orders(parent, gate) {
        Ok(Some(Wanted { words, token, key })) => {
            are_about(key.clone());
            let mut command = command(words);
            let error = command.env(KEY, key).env(TOKEN, token).exec();
            complain(&format!("cannot execute {:?}: {error}", command.get_program()));
            if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT_EXECUTE }
        }
        // Nobody waits for this status.
        Ok(None) => SYSTEM,
        Err(error) => {
            complain(&format!("cannot prepare the command: {error}"));
            SYSTEM
        }
    }
}

/// The orders, as the launcher reads them.
struct Wanted {
    words: usize,
    token: String,
    key: String,
}

/// Waits at the gate, and ties this process to its parent. Returns `None` if the parent has died or wants no command.
fn await_orders(parent: Pid, gate: File) -> io::Result<Option<Wanted>> {
    let own = Pid::from_raw(0);
    setpgid(own, own)?;
    // A launcher that was split off later may have a copy of the gate's other end. So its end may come late.
    let fields: io::Result<Vec<_>> = BufReader::new(gate).split(b'\0').take(4).collect();
    let fields: Result<Vec<_>, _> = fields?.into_iter().map(String::from_utf8).collect();
    let Ok(Ok([stop_signal, words, token, key])) = fields.map(<[String; 4]>::try_from) else { return Ok(None) };
    let (Ok(stop_signal), Ok(words)) = (stop_signal.parse::<i32>(), words.parse()) else { return Ok(None) };
    prctl::set_pdeathsig(Signal::try_from(stop_signal)?)?;
    // The parent may have died before the kernel was asked to report its death.
    Ok((getppid() == parent).then_some(Wanted { words, token, key }))
}
