//! The terminal, and its foreground group.
//!
//! A terminal sends Ctrl-C and Ctrl-Z to one process group, the foreground, and only that group may read. The command has a group of its
//! own, which must become the foreground if it is to behave as it does without `dlock`.

use super::group::Group;
use nix::unistd::{getpgrp, tcgetpgrp, tcsetpgrp};
use std::fs::File;
use std::io::{self, IsTerminal};

/// The controlling terminal, if there is one.
#[derive(Debug)]
pub(crate) struct Terminal {
    file: Option<File>,
    /// Whether the command gets the foreground when it begins. In a pipeline (`dlock run … | less`) other programs may need the terminal. The command
    /// then gets the foreground when it asks for it.
    at_once: bool,
    is_given: bool,
}

impl Terminal {
    pub(crate) fn open() -> Self {
        let file = File::open("/dev/tty").ok();
        let at_once = file.is_some() && io::stdin().is_terminal() && io::stdout().is_terminal();
        Self { file, at_once, is_given: false }
    }

    pub(crate) fn exists(&self) -> bool {
        self.file.is_some()
    }

    /// Returns whether this process's group is the foreground.
    pub(crate) fn is_ours(&self) -> bool {
        self.file.as_ref().is_some_and(|file| tcgetpgrp(file) == Ok(getpgrp()))
    }

    /// Returns whether the command has the foreground, or had it when it last stopped or ended.
    pub(crate) fn is_given(&self) -> bool {
        self.is_given
    }

    /// Notes whether the command still has the foreground, after a stop in which a shell may have taken it.
    pub(crate) fn look(&mut self, command: Group) {
        self.is_given = self.file.as_ref().is_some_and(|file| tcgetpgrp(file) == Ok(command.0));
    }

    /// Gives the command the foreground when it begins or continues.
    pub(crate) fn share(&mut self, with: Group) {
        if self.at_once {
            self.give(with);
        }
    }

    /// Gives the command the foreground, if it is ours to give. Returns whether it was.
    pub(crate) fn give(&mut self, to: Group) -> bool {
        let is_ours = self.is_ours();
        if let Some(file) = self.file.as_ref().filter(|_| is_ours) {
            self.is_given = tcsetpgrp(file, to.0).is_ok();
            // A command that has asked for it once will need it again.
            self.at_once |= self.is_given;
        }
        is_ours
    }

    /// Takes the foreground back from the command, or from a job of the command that has it. Returns whether the command had it. SIGTTOU is
    /// blocked.
    pub(crate) fn take_back(&mut self) -> bool {
        let was_given = self.is_given;
        if let Some(file) = self.file.as_ref().filter(|_| was_given) {
            let _ = tcsetpgrp(file, getpgrp());
            self.is_given = false;
        }
        was_given
    }
}
