//! Supervises the command while it runs: passes signals to its process group, stops `dlock` with it at Ctrl-Z, ends it after a loss, and leaves
//! nothing of it, daemons included.

use super::RunEvent;
use super::daemons::Daemons;
use super::group::{self, Group};
use super::launch::{Launcher, Orders};
use super::signals::OF_TERMINAL;
use super::terminal::Terminal;
use crate::args::{OnLost, Run, WithDaemons};
use crate::message::complain;
use crate::status::{self, LOST, SYSTEM};
use crate::timing;
use nix::sys::signal::{Signal, raise};
use nix::unistd::{Pid, getpgrp};
use redis_dlock::{DLockGuard, LeaseLoss};
use rustix::process::{WaitOptions, WaitStatus, wait};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The end of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunEnd {
    pub(crate) status: u8,
    /// The signal from the terminal that has ended the command, and has to end `dlock`, too.
    pub(crate) interrupted: Option<Signal>,
}

/// The command of `--on-lost`.
#[derive(Debug)]
enum OnLostCommand {
    /// There is no such command, or it has ended.
    None,
    Ready(Launcher),
    Runs(Group),
}

impl OnLostCommand {
    fn group(&self) -> Option<Group> {
        match self {
            Self::None => None,
            Self::Ready(launcher) => Some(launcher.group()),
            Self::Runs(group) => Some(*group),
        }
    }
}

/// The stages of ending the group and the daemons.
#[derive(Clone, Copy, Debug)]
enum GroupEnd {
    /// Nobody has asked for it.
    No,
    /// The stop signal was sent. Processes that are left at `until` are killed.
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
    max_hold: Option<Duration>,
    /// The end of the time of `--max-hold`.
    held_until: Option<Instant>,
    group: Group,
    terminal: Terminal,
    /// The status with which the process that became the command has ended.
    end: Option<WaitStatus>,
    ending: GroupEnd,
    is_lost: bool,
    hook: OnLostCommand,
    /// The moment until which the command of `--on-lost` is waited for, once the command has ended.
    hook_until: Option<Instant>,
    daemons: Daemons,
    /// Whether SIGTSTP was sent to our own group, which includes this process.
    stops_own: bool,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(
        wanted: &'a Run,
        orders: Orders<'a>,
        group: Group,
        on_lost: Option<Launcher>,
        held: &'a DLockGuard<'a>,
        max_hold: Option<Duration>,
    ) -> Self {
        Self {
            wanted,
            orders,
            held,
            max_hold,
            held_until: max_hold.map(timing::after),
            group,
            terminal: Terminal::open(),
            end: None,
            ending: GroupEnd::No,
            is_lost: false,
            hook: on_lost.map_or(OnLostCommand::None, OnLostCommand::Ready),
            hook_until: None,
            daemons: Daemons::of(group.0),
            stops_own: false,
        }
    }

    /// Prepares the beginning of the command.
    pub(crate) fn begin(&mut self) {
        self.terminal.share(self.group);
    }

    /// Whether the command runs, or its daemons are waited for as if they were the command.
    fn is_at_work(&self) -> bool {
        self.end.is_none() || self.wanted.daemons == WithDaemons::Wait
    }

    /// How long the command, or what it has left behind, may go on without a renewal. `None` if a loss does not end it, or is known.
    fn may_go_on_for(&self) -> Option<Duration> {
        let runs = self.is_at_work() || matches!(self.ending, GroupEnd::Asked { .. });
        let watches = self.wanted.on_lost == OnLost::Stop && runs && !self.is_lost;
        watches.then(|| self.held.remaining().saturating_sub(self.wanted.reserve(self.max_hold)))
    }

    /// Returns when no process is left that has to end.
    pub(crate) fn until_the_end(mut self, inbox: &Receiver<RunEvent>) -> RunEnd {
        loop {
            // The first look is for what has happened during the wait for the lock.
            self.look();
            if self.is_over() {
                break;
            }
            match self.next(inbox) {
                Ok(RunEvent::Signal(Signal::SIGCHLD)) | Err(RecvTimeoutError::Timeout) => {}
                Ok(RunEvent::Signal(Signal::SIGCONT)) => self.go_on(),
                Ok(RunEvent::Signal(Signal::SIGTSTP)) if self.stops_own => {}
                Ok(RunEvent::Signal(signal)) => self.pass_on(signal),
                Ok(RunEvent::Lost(loss)) => self.lose(&loss),
                Ok(RunEvent::Connected(_)) => {}
                // The thread that waits for signals never ends before the process does.
                Err(RecvTimeoutError::Disconnected) => self.end_all(self.wanted.grace()),
            }
        }
        if self.wanted.daemons == WithDaemons::Leave && self.daemons.any() {
            self.daemons.say(self.group, "these run on without the lock");
        }
        let was_given = self.terminal.is_given();
        self.terminal.take_back();
        self.outcome(was_given)
    }

    fn next(&self, inbox: &Receiver<RunEvent>) -> Result<RunEvent, RecvTimeoutError> {
        let look = match self.ending {
            GroupEnd::No if self.end.is_none() => None,
            GroupEnd::No if self.is_at_work() => Some(timing::IDLE_LOOK),
            _ => Some(timing::LOOK),
        };
        // A lease that cannot be renewed becomes no longer.
        let left = self.may_go_on_for().map(|left| left.max(timing::LOOK));
        match look.into_iter().chain(left).min() {
            Some(pause) => inbox.recv_timeout(pause),
            None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
        }
    }

    /// Passes a signal to the command and, if daemons are waited for, to the daemons.
    fn pass_on(&mut self, signal: Signal) {
        // The command may have ended, and its end may not be noticed yet.
        self.reap();
        self.group.signal(signal);
        if self.end.is_some() && self.is_at_work() {
            self.daemons.signal(self.group, signal);
        }
    }

    /// Reaps children that have ended, and notices those that have stopped.
    fn reap(&mut self) {
        // It fails when no child is left.
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            self.child_changed(Pid::from_raw(pid.as_raw_nonzero().get()), status);
        }
    }

    /// Reaps the children, and does what is due.
    fn look(&mut self) {
        self.reap();
        if self.end.is_some() && matches!(self.ending, GroupEnd::No) {
            self.look_after_the_end();
        }
        if self.may_go_on_for().is_some_and(|left| left.is_zero()) {
            self.lose_now();
        }
        let with_daemons = self.wanted.daemons != WithDaemons::Leave;
        match self.ending {
            GroupEnd::Asked { until } if Instant::now() >= until => {
                self.group.signal(Signal::SIGKILL);
                self.ending = GroupEnd::Killed { at: Instant::now() };
            }
            GroupEnd::Asked { .. } if with_daemons && self.daemons.any_new(self.group.0) => {
                self.daemons.ask_to_end(self.group, self.wanted.stop_signal);
            }
            _ => {}
        }
        if with_daemons && matches!(self.ending, GroupEnd::Killed { .. }) && self.daemons.any() {
            self.daemons.signal(self.group, Signal::SIGKILL);
        }
        if let (OnLostCommand::Runs(group), Some(until)) = (&self.hook, self.hook_until)
            && Instant::now() >= until
        {
            group.signal(Signal::SIGKILL);
        }
    }

    /// Called after the command's end. Ends the processes that it has left behind, unless they are waited for.
    fn look_after_the_end(&mut self) {
        let has_daemons = self.wanted.daemons != WithDaemons::Leave && self.daemons.any();
        match self.wanted.daemons {
            WithDaemons::Wait if has_daemons => self.daemons.say(self.group, "the lock is kept until these end"),
            WithDaemons::Wait => {}
            _ if has_daemons || !self.group.is_gone() => self.end_all(self.wanted.grace()),
            _ => {}
        }
    }

    /// Returns whether the command has ended, and all that it has left behind.
    fn is_over(&self) -> bool {
        let is_long_killed = matches!(self.ending, GroupEnd::Killed { at } if at.elapsed() > timing::UNSEEN);
        let is_gone =
            || self.group.is_gone() || is_long_killed && (self.group.is_dead() || self.group.is_beyond_reach());
        let are_gone = || {
            self.wanted.daemons == WithDaemons::Leave
                || !self.daemons.any()
                || is_long_killed && !self.daemons.are_in_reach(self.group)
        };
        self.end.is_some() && !matches!(self.hook, OnLostCommand::Runs(_)) && is_gone() && are_gone()
    }

    fn child_changed(&mut self, pid: Pid, status: WaitStatus) {
        let (is_command, has_stopped) = (pid == self.group.0, status.stopped());
        if !has_stopped {
            self.daemons.child_ended(pid);
        }
        if is_command && has_stopped {
            if let Some(Ok(signal)) = status.stopping_signal().map(Signal::try_from) {
                self.child_stopped(signal);
            }
        } else if is_command {
            self.end = Some(status);
            self.hook_until = Some(timing::after(self.wanted.grace()));
        } else if self.hook.group() == Some(Group(pid)) && !has_stopped {
            self.hook = OnLostCommand::None;
        }
    }

    /// Called when the command has stopped. Stops `dlock`, too, if a shell can continue it.
    fn child_stopped(&mut self, signal: Signal) {
        let asks = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        if signal != Signal::SIGTSTP && !asks || !self.terminal.exists() {
            // Somebody has stopped the command from outside, and will continue it the same way. The lock stays ours.
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
            // The terminal has only signalled the command. The shell waits for the whole job.
            self.stops_own = true;
            Group(getpgrp()).signal(Signal::SIGTSTP);
        }
        // All of `dlock` stands still here until somebody continues it. SIGCONT then comes as an event.
        let _ = raise(Signal::SIGSTOP);
    }

    /// Called when `dlock` was continued.
    fn go_on(&mut self) {
        self.stops_own = false;
        self.terminal.look(self.group);
        if self.wanted.on_lost == OnLost::Stop && !self.held.is_valid() {
            // The group is only continued so that it can end.
            return self.lose_now();
        }
        self.terminal.share(self.group);
        self.group.signal(Signal::SIGCONT);
    }

    fn lose(&mut self, loss: &LeaseLoss) {
        if loss.key != self.orders.key {
            return;
        }
        // The launcher may have ended, and its end may not be noticed yet.
        self.reap();
        match (&self.wanted.on_lost, &mut self.hook) {
            (OnLost::Stop, _) => self.lose_now(),
            (OnLost::Run(text), OnLostCommand::Ready(launcher)) => {
                complain(&format!("{loss}; the command goes on, and {text:?} is run"));
                launcher.open_gate(self.orders);
                self.hook = OnLostCommand::Runs(launcher.group());
            }
            (OnLost::Run(text), OnLostCommand::None) => {
                complain(&format!("{loss}; the command goes on, and {text:?} cannot be run: its process was killed"));
            }
            _ => complain(&format!("{loss}; the command goes on")),
        }
    }

    /// Ends the command, because the lock is lost. What it has left behind, and is ending, gets no more time than the command would.
    fn lose_now(&mut self) {
        let grace = self.wanted.grace_after_loss(self.max_hold);
        if let GroupEnd::Asked { until } = &mut self.ending {
            *until = timing::after(grace).min(*until);
        } else if !self.is_lost && self.is_at_work() {
            self.is_lost = true;
            match self.held.loss() {
                Some(loss) => complain(&format!("{loss}; the command is ended")),
                None => {
                    let left = self.held.remaining();
                    let by_max_hold = |until: Instant| until <= Instant::now() + left + timing::MAX_HOLD_NEAR;
                    let what = if self.held_until.is_some_and(by_max_hold) {
                        "the time that --max-hold allows"
                    } else {
                        "the lease could not be renewed, and"
                    };
                    complain(&format!("{what} is over in {left:.1?}; the command is ended"));
                }
            }
            self.end_all(grace);
        }
    }

    fn end_all(&mut self, grace: Duration) {
        if matches!(self.ending, GroupEnd::No) {
            // The grace begins here, because finding the daemons takes time.
            self.ending = GroupEnd::Asked { until: timing::after(grace) };
            self.group.ask_to_end(self.wanted.stop_signal);
            if self.wanted.daemons != WithDaemons::Leave {
                self.daemons.ask_to_end(self.group, self.wanted.stop_signal);
            }
        }
    }

    fn outcome(&self, was_given: bool) -> RunEnd {
        let exited = self.end.and_then(|end| u8::try_from(end.exit_status()?).ok());
        let signalled = self.end.and_then(WaitStatus::terminating_signal);
        let status = match (exited, signalled) {
            _ if self.is_lost => LOST,
            (Some(code), _) => code,
            (None, Some(signal)) => status::of_signal(signal),
            (None, None) => SYSTEM,
        };
        let interrupted = OF_TERMINAL
            .into_iter()
            .find(|&signal| signalled == Some(signal as i32) && !self.is_lost && self.terminal.is_ours());
        if let Some(signal) = interrupted
            && was_given
        {
            // The terminal has only signalled the command. Without `dlock`, it would have signalled a script that runs the command, too.
            Group(getpgrp()).signal(signal);
        }
        RunEnd { status, interrupted }
    }
}
