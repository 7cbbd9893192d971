//! The signals that `dlock` receives.
//!
//! They are blocked before any thread begins, and one thread waits for them. A signal that was ignored at the start (by `nohup`, or by a
//! shell that put the job into the background) stays ignored, also by the command.

use super::{Event, group};
use crate::status::Failure;
use nix::sys::signal::{SigSet, Signal, raise};
use redis_dlock::CancelToken;
use std::fs;
use std::sync::OnceLock;
use std::sync::mpsc::Sender;
use std::thread;

/// Forwarded to the command. While there is none, they end `dlock`.
pub(crate) const FORWARDED: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];

/// Set when the command begins.
static BEGUN: OnceLock<()> = OnceLock::new();

/// The signals of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signals {
    /// What the thread waits for.
    waited_for: SigSet,
}

impl Signals {
    /// Blocks them. Must be called before any thread begins, and after the launchers were split off, whose signals are the command's.
    pub(crate) fn block() -> Result<Self, Failure> {
        let status = fs::read_to_string("/proc/self/status")
            .map_err(|error| Failure::system("cannot read /proc/self/status", error))?;
        let is_ignored = ignored(&status);
        if is_ignored(Signal::SIGCHLD) {
            let message = "was started with SIGCHLD ignored, and could not learn the command's exit status: start it with \
                           `env --default-signal=CHLD dlock …`";
            return Err(Failure::new(crate::status::SYSTEM, message));
        }
        let mut waited_for = SigSet::from_iter([Signal::SIGCHLD, Signal::SIGCONT]);
        waited_for.extend(FORWARDED.into_iter().chain([Signal::SIGTSTP]).filter(|&signal| !is_ignored(signal)));
        // With it blocked, `dlock` can take the terminal back from the background.
        let mut blocked = waited_for;
        blocked.add(Signal::SIGTTOU);
        blocked.thread_block().map_err(|error| Failure::system("cannot block signals", error))?;
        Ok(Self { waited_for })
    }

    /// Starts the thread. Each signal is told as an event; one that ends programs ends the wait for the lock, too.
    pub(crate) fn listen(&self, events: Sender<Event>, cancel: CancelToken) -> Result<(), Failure> {
        let waited_for = self.waited_for;
        let listen = move || {
            loop {
                let Ok(signal) = waited_for.wait() else { continue };
                if signal == Signal::SIGTSTP && BEGUN.get().is_none() {
                    // The main thread waits for the lock.
                    if !group::own_is_orphaned() {
                        let _ = raise(Signal::SIGSTOP);
                    }
                    continue;
                }
                if events.send(Event::Signal(signal)).is_err() {
                    return;
                }
                if FORWARDED.contains(&signal) {
                    cancel.cancel();
                }
            }
        };
        thread::Builder::new()
            .name("dlock-signals".to_owned())
            .spawn(listen)
            .map(drop)
            .map_err(|error| Failure::system("cannot start a thread", error))
    }
}

/// Tells that the command begins: it is for the command now to stop, and not for this process.
pub(crate) fn command_begins() {
    let _ = BEGUN.set(());
}

/// Reads the mask `SigIgn` of `/proc/self/status`.
fn ignored(status: &str) -> impl Fn(Signal) -> bool + use<> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
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
