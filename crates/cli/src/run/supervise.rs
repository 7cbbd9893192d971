//! A command that runs: signals go to its process group, Ctrl-Z stops `dlock` with it, a lost lock ends it, and nothing of it is left.

use super::Event;
use super::group::{self, Group};
use super::launch::{Launcher, Orders};
use super::terminal::Terminal;
use crate::args::{OnLost, Run};
use crate::status::{self, LOST, SYSTEM, say};
use nix::sys::signal::{Signal, raise};
use nix::unistd::{Pid, getpgrp};
use redis_dlock::{DLockGuard, LeaseLoss};
use rustix::process::{WaitOptions, WaitStatus, wait};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often to look for processes that end without a word: children of a process that has left the group.
const LOOK: Duration = Duration::from_millis(5);

/// How long after SIGKILL dead processes are waited for that belong to a parent that does not look at them.
const UNSEEN: Duration = Duration::from_secs(1);

const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// How a run has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) status: u8,
    /// The signal from the terminal that has ended the command, and is to end `dlock`.
    pub(crate) interrupted: Option<Signal>,
}

/// How far the end of the group has come.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// Nobody has asked for it.
    No,
    /// The stop signal was sent. Who is left then is killed.
    Asked {
        until: Instant,
    },
    Killed {
        at: Instant,
    },
}

/// Looks after the command from its beginning to the end of its group.
pub(crate) struct Supervisor<'a> {
    wanted: &'a Run,
    orders: Orders<'a>,
    held: &'a DLockGuard<'a>,
    group: Group,
    terminal: Terminal,
    /// How the process that became the command has ended.
    end: Option<WaitStatus>,
    ending: Ending,
    is_lost: bool,
    /// The command of `--on-lost`, until it runs.
    on_lost: Option<Launcher>,
    /// Whether SIGTSTP was sent to our own group, of which we are a part.
    stops_own: bool,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(
        wanted: &'a Run,
        orders: Orders<'a>,
        group: Group,
        on_lost: Option<Launcher>,
        held: &'a DLockGuard<'a>,
    ) -> Self {
        Self {
            wanted,
            orders,
            held,
            group,
            terminal: Terminal::open(),
            end: None,
            ending: Ending::No,
            is_lost: false,
            on_lost,
            stops_own: false,
        }
    }

    /// Prepares the beginning of the command.
    pub(crate) fn begin(&mut self) {
        self.terminal.share(self.group);
    }

    /// How long the command may go on without a renewal. `None` if it is not ended at a loss, or ends already.
    fn may_go_on_for(&self) -> Option<Duration> {
        let watches = self.wanted.on_lost == OnLost::Stop && self.end.is_none() && matches!(self.ending, Ending::No);
        watches.then(|| self.held.remaining().saturating_sub(self.wanted.reserve()))
    }

    /// Returns when nothing of the group is left.
    pub(crate) fn until_the_end(mut self, inbox: &Receiver<Event>) -> Outcome {
        while !self.is_over() {
            match self.next(inbox) {
                Ok(Event::Signal(Signal::SIGCHLD)) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Event::Signal(Signal::SIGCONT)) => self.go_on(),
                Ok(Event::Signal(Signal::SIGTSTP)) if self.stops_own => {}
                Ok(Event::Signal(signal)) => self.group.signal(signal),
                Ok(Event::Lost(loss)) => self.lose(&loss),
                Ok(Event::Connected(_)) => {}
                // The thread that waits for signals never ends before the process does.
                Err(RecvTimeoutError::Disconnected) => self.end_group(self.wanted.grace()),
            }
            self.look();
        }
        let was_given = self.terminal.is_given();
        self.terminal.take_back();
        self.outcome(was_given)
    }

    fn next(&self, inbox: &Receiver<Event>) -> Result<Event, RecvTimeoutError> {
        let is_ending = self.end.is_some() || !matches!(self.ending, Ending::No);
        match self.may_go_on_for() {
            _ if is_ending => inbox.recv_timeout(LOOK),
            // A lease that cannot be renewed becomes no longer.
            Some(left) => inbox.recv_timeout(left.max(LOOK)),
            None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
        }
    }

    /// Looks what became of the children, and does what is due.
    fn look(&mut self) {
        // No child is left when it fails.
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            self.child_changed(Pid::from_raw(pid.as_raw_nonzero().get()), status);
        }
        if self.may_go_on_for().is_some_and(|left| left.is_zero()) {
            self.lose_now();
        }
        if self.end.is_some() && matches!(self.ending, Ending::No) && !self.group.is_gone() {
            self.end_group(self.wanted.grace());
        }
        if let Ending::Asked { until } = self.ending
            && Instant::now() >= until
        {
            self.group.signal(Signal::SIGKILL);
            self.ending = Ending::Killed { at: Instant::now() };
        }
    }

    /// Returns whether the command has ended, and whatever it has left behind.
    fn is_over(&self) -> bool {
        let is_long_killed = matches!(self.ending, Ending::Killed { at } if at.elapsed() > UNSEEN);
        let is_gone =
            || self.group.is_gone() || is_long_killed && (self.group.is_dead() || self.group.is_beyond_reach());
        self.end.is_some() && is_gone()
    }

    fn child_changed(&mut self, pid: Pid, status: WaitStatus) {
        let (is_command, has_stopped) = (pid == self.group.0, status.stopped());
        if is_command && has_stopped {
            if let Some(Ok(signal)) = status.stopping_signal().map(Signal::try_from) {
                self.child_stopped(signal);
            }
        } else if is_command {
            self.end = Some(status);
        }
    }

    /// The command has stopped. Stops `dlock`, too, if a shell is there that can continue it.
    fn child_stopped(&mut self, signal: Signal) {
        let asks = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        if signal != Signal::SIGTSTP && !asks || !self.terminal.exists() {
            // Somebody has stopped it from outside, and will continue it the same way. The lock stays ours.
            return;
        }
        let had_terminal = self.terminal.take_back();
        if asks && self.terminal.give(self.group) {
            return self.group.signal(Signal::SIGCONT);
        }
        if group::own_is_orphaned() {
            // Nobody could continue us. The kernel ignores Ctrl-Z for such a program, and hangs up on one that waits for a terminal that it
            // cannot get.
            if asks {
                self.group.signal(Signal::SIGHUP);
            }
            self.terminal.share(self.group);
            return self.group.signal(Signal::SIGCONT);
        }
        if had_terminal && signal == Signal::SIGTSTP {
            // The terminal has told the command alone. The shell waits for all of the job.
            self.stops_own = true;
            Group(getpgrp()).signal(Signal::SIGTSTP);
        }
        // All of `dlock` stands still here until somebody continues it; then SIGCONT is an event.
        let _ = raise(Signal::SIGSTOP);
    }

    /// `dlock` was continued.
    fn go_on(&mut self) {
        self.stops_own = false;
        if self.wanted.on_lost == OnLost::Stop && !self.held.is_valid() {
            // The group is continued to end.
            return self.lose_now();
        }
        self.terminal.share(self.group);
        self.group.signal(Signal::SIGCONT);
    }

    fn lose(&mut self, loss: &LeaseLoss) {
        if loss.key != self.orders.key {
            return;
        }
        match &self.wanted.on_lost {
            OnLost::Stop => self.lose_now(),
            OnLost::Warn => say(&format!("{loss}; the command goes on")),
            OnLost::Run(text) => {
                say(&format!("{loss}; the command goes on, and {text:?} is run"));
                if let Some(mut launcher) = self.on_lost.take() {
                    launcher.open_gate(self.orders);
                }
            }
        }
    }

    /// Ends the command, because the lock is lost.
    fn lose_now(&mut self) {
        if !self.is_lost && self.end.is_none() {
            self.is_lost = true;
            match self.held.loss() {
                Some(loss) => say(&format!("{loss}; the command is ended")),
                None => {
                    let left = self.held.remaining();
                    say(&format!("the lease could not be renewed, and is over in {left:.1?}; the command is ended"));
                }
            }
            self.end_group(self.wanted.grace_after_loss());
        }
    }

    fn end_group(&mut self, grace: Duration) {
        if matches!(self.ending, Ending::No) {
            self.group.ask_to_end(self.wanted.stop_signal);
            // What no clock reaches is no limit.
            let until = Instant::now().checked_add(grace).unwrap_or_else(|| Instant::now() + A_YEAR);
            self.ending = Ending::Asked { until };
        }
    }

    fn outcome(&self, was_given: bool) -> Outcome {
        let exited = self.end.and_then(|end| u8::try_from(end.exit_status()?).ok());
        let signalled = self.end.and_then(WaitStatus::terminating_signal);
        let status = match (exited, signalled) {
            _ if self.is_lost => LOST,
            (Some(code), _) => code,
            (None, Some(signal)) => status::of_signal(signal),
            (None, None) => SYSTEM,
        };
        let of_terminal = [Signal::SIGINT, Signal::SIGQUIT];
        let interrupted = of_terminal
            .into_iter()
            .find(|&signal| signalled == Some(signal as i32) && !self.is_lost && self.terminal.is_ours());
        if let Some(signal) = interrupted
            && was_given
        {
            // The terminal has told the command alone. Without `dlock`, a script that runs it would have been told, too.
            Group(getpgrp()).signal(signal);
        }
        Outcome { status, interrupted }
    }
}
