//! The signals that `dlock` receives.
//!
//! They are blocked before any thread begins, and one thread waits for them. A signal that was ignored at the start (by `nohup`, or by a
//! shell that put the job into the background) stays ignored, even by the command. SIGPIPE never is: Rust's runtime ignores it before `main`, so
//! nobody knows whether it was ignored before, and `Command` gives the command its default action.

use super::terminal::Terminal;
use super::{RunEvent, group};
use crate::message::{queue, say};
use crate::status::{self, Failure};
use crate::threads;
use crate::timing;
use nix::sys::signal::{SigSet, Signal, raise};
use redis_dlock::CancelToken;
use std::fs;
use std::process;
use std::sync::OnceLock;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

/// The signals that are forwarded to the command. While there is no command, they end `dlock`.
pub(crate) const FORWARDED: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];

/// The signals that a key of the terminal sends.
pub(super) const OF_TERMINAL: [Signal; 2] = [Signal::SIGINT, Signal::SIGQUIT];

/// The receiver that a signal is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignalTarget {
    /// This process, which waits for the lock.
    Waits,
    /// The command.
    Runs,
    /// This process, whose command has ended with this status.
    Ends(u8),
}

/// Set when the command begins.
static BEGUN: OnceLock<()> = OnceLock::new();

/// Set to the status when the command has ended.
static ENDED: OnceLock<u8> = OnceLock::new();

/// A signal that the command has got.
static PASSED_ON: OnceLock<Signal> = OnceLock::new();

/// The signals of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signals {
    /// The signals that the thread waits for.
    waited_for: SigSet,
}

impl Signals {
    /// Blocks the signals. Must be called before any thread begins, and after the launchers were split off: the command inherits their signals.
    pub(crate) fn block() -> Result<Self, Failure> {
        let own = fs::read_to_string("/proc/self/status")
            .map_err(|error| Failure::system("cannot read /proc/self/status", error))?;
        // In the `/proc` of another PID namespace, processes have other numbers than those that `wait` and `kill` use here.
        if of_field(&own, "Pid:").and_then(|pid| pid.parse().ok()) != Some(process::id()) {
            let message = "/proc belongs to another PID namespace, and would name the wrong processes: mount one for this namespace, for \
                           example with `unshare --pid --fork --mount-proc`";
            return Err(Failure::new(status::SYSTEM, message));
        }
        let is_ignored = ignored(&own);
        if is_ignored(Signal::SIGCHLD) {
            let message = "was started with SIGCHLD ignored, and could not learn the command's exit status: start it with \
                           `env --default-signal=CHLD dlock …`";
            return Err(Failure::new(status::SYSTEM, message));
        }
        let mut waited_for = SigSet::from_iter([Signal::SIGCHLD, Signal::SIGCONT]);
        waited_for.extend(FORWARDED.into_iter().chain([Signal::SIGTSTP]).filter(|&signal| !is_ignored(signal)));
        // With SIGTTOU blocked, `dlock` can take the terminal back from the background.
        let mut blocked = waited_for;
        blocked.add(Signal::SIGTTOU);
        blocked.thread_block().map_err(|error| Failure::system("cannot block signals", error))?;
        Ok(Self { waited_for })
    }

    /// Starts the thread. It sends each signal as an event. A signal that ends programs also ends the wait for the lock.
    pub(crate) fn listen(&self, events: Sender<RunEvent>, cancel: CancelToken) -> Result<(), Failure> {
        let waited_for = self.waited_for;
        let listen = move || {
            loop {
                let Ok(signal) = waited_for.wait() else { continue };
                if signal == Signal::SIGTSTP && target() == SignalTarget::Waits {
                    // This thread stops the process, because the main thread waits for the lock.
                    if !group::own_is_orphaned() {
                        let _ = raise(Signal::SIGSTOP);
                    }
                    continue;
                }
                if events.send(RunEvent::Signal(signal)).is_err() {
                    return;
                }
                if FORWARDED.contains(&signal) {
                    cancel.cancel();
                    match target() {
                        // Programs do not take these two as orders to end.
                        SignalTarget::Runs if matches!(signal, Signal::SIGUSR1 | Signal::SIGUSR2) => {}
                        SignalTarget::Runs => drop(PASSED_ON.set(signal)),
                        SignalTarget::Waits => {
                            end_after(timing::ENDS_WITHIN, SignalTarget::Waits, move || end_by(signal));
                        }
                        asked @ SignalTarget::Ends(status) => {
                            end_after(timing::ENDS_WITHIN, asked, move || unanswered(status));
                        }
                    }
                }
            }
        };
        threads::start("dlock-signals", listen)
    }
}

/// Notes that the command begins. From now on a signal stops the command, and not this process.
pub(super) fn command_begins() {
    let _ = BEGUN.set(());
}

/// Notes that the command has ended with this status. From now on this process waits for the store for at most `limit`, and ends as `give_up` says.
/// If the command has got a signal, its sender waits for this process, too, so the wait is shorter.
pub(super) fn command_has_ended(status: u8, limit: Duration, give_up: impl FnOnce() -> u8 + Send + 'static) {
    let _ = ENDED.set(status);
    match PASSED_ON.get() {
        Some(_) => end_after(timing::RELEASES_WITHIN, target(), move || unanswered(status)),
        None => end_after(limit, target(), give_up),
    }
}

pub(super) fn target() -> SignalTarget {
    match (ENDED.get(), BEGUN.get()) {
        (Some(status), _) => SignalTarget::Ends(*status),
        (None, Some(())) => SignalTarget::Runs,
        (None, None) => SignalTarget::Waits,
    }
}

/// Ends this process after a time with the status that `end` returns, because the main thread may wait for a store that does not answer.
fn end_after(time: Duration, asked: SignalTarget, end: impl FnOnce() -> u8 + Send + 'static) {
    let end = move || {
        thread::sleep(time);
        // Otherwise the command has begun at the same time, and gets the signal.
        if target() == asked {
            let status = end();
            queue::finish();
            process::exit(status.into());
        }
    };
    // Without the thread, the end takes as long as the store takes.
    let _ = thread::Builder::new().name("dlock-end".to_owned()).spawn(end);
}

/// Says that a signal has ended the wait for the store, and returns the status of the command.
fn unanswered(status: u8) -> u8 {
    say("a signal has ended dlock before the store has answered: the lock ends with its lease at the latest");
    status
}

/// Ends this process by the signal if it came from the terminal. Otherwise returns the status for the signal.
pub(super) fn end_by(signal: Signal) -> u8 {
    if OF_TERMINAL.contains(&signal) && Terminal::open().is_ours() {
        die_of(signal);
    }
    status::of_signal(signal as i32)
}

/// Lets the signal end this process as if it had no handler. Unless a shell sees that, it goes on with its script or loop.
pub(super) fn die_of(signal: Signal) {
    queue::finish();
    let _ = SigSet::from(signal).thread_unblock();
    let _ = raise(signal);
}

/// Reads a field of `/proc/self/status`.
fn of_field<'s>(status: &'s str, name: &str) -> Option<&'s str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Reads the mask `SigIgn` of `/proc/self/status`.
fn ignored(status: &str) -> impl Fn(Signal) -> bool + use<> {
    let mask = of_field(status, "SigIgn:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    move |signal| mask >> (signal as i32 - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_bits_from_the_first() {
        let is_ignored = ignored("Name:\tx\nSigIgn:\t0000000000001001\n");
        assert!(is_ignored(Signal::SIGHUP) && is_ignored(Signal::SIGPIPE));
        assert!(!is_ignored(Signal::SIGINT) && !is_ignored(Signal::SIGCHLD));
    }
}
