//! What the command has started outside its process group: daemons (`setsid`, a double fork), and jobs of a shell (`set -m`).
//!
//! `dlock` adopts whoever loses his parent (`PR_SET_CHILD_SUBREAPER`), so nobody of them gets away: as long as one lives, `dlock` has a child.

use super::group::{self, Group};
use crate::output::one_line;
use crate::status::say;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::fs;

/// See the module.
#[derive(Debug)]
pub(crate) struct Daemons {
    /// Processes of `dlock` itself: the guard, and what `--on-lost` runs.
    own: Vec<Pid>,
    /// Who was asked to end. The others have begun since.
    asked: HashSet<Pid>,
    is_said: bool,
}

impl Daemons {
    pub(crate) fn beside(guard: Pid) -> Self {
        Self { own: vec![guard], asked: HashSet::new(), is_said: false }
    }

    /// Counts a process, and all that it starts, as one of `dlock` itself.
    pub(crate) fn exclude(&mut self, process: Pid) {
        self.own.push(process);
    }

    /// Undoes [`exclude`](Self::exclude): what the process has left behind is the command's.
    pub(crate) fn include(&mut self, process: Pid) {
        self.own.retain(|own| *own != process);
    }

    /// Returns whether one is left, after the command has ended. Every run asks, so it looks at the children of this process alone.
    pub(crate) fn any(&self) -> bool {
        children().iter().any(|child| !self.own.contains(child))
    }

    /// Returns whether one has come to this process that was not asked to end. It is asked often, and looks at the children alone, too: to look at all
    /// processes may take longer than a lease has left.
    pub(crate) fn any_new(&self, command: Pid) -> bool {
        children().iter().any(|child| *child != command && !self.own.contains(child) && !self.asked.contains(child))
    }

    /// Returns all of them, children of children too.
    fn all(&self, group: Group) -> Vec<Pid> {
        let processes = group::processes();
        let mut found = vec![Pid::this()];
        // Each pass goes one generation down.
        let mut next = 0;
        while next < found.len() {
            let of = |parent: Pid| processes.iter().filter(move |(_, stat)| stat.parent == parent).map(|(pid, _)| *pid);
            let children: Vec<_> = of(found[next]).filter(|pid| !self.own.contains(pid)).collect();
            found.extend(children);
            next += 1;
        }
        let is_outside =
            |pid: &Pid| processes.iter().any(|(known, stat)| known == pid && stat.group != group.0 && stat.runs());
        found.into_iter().skip(1).filter(is_outside).collect()
    }

    /// Sends all of them a signal.
    pub(crate) fn signal(&self, group: Group, signal: Signal) {
        for pid in self.all(group) {
            let _ = kill(pid, signal);
        }
    }

    /// Asks those to end that were not asked yet, also those that are stopped.
    pub(crate) fn ask_to_end(&mut self, group: Group, signal: Signal) {
        let new: Vec<_> = self.all(group).into_iter().filter(|pid| !self.asked.contains(pid)).collect();
        self.tell(&new, "these are ended, too");
        for pid in new {
            let _ = kill(pid, signal).and_then(|()| kill(pid, Signal::SIGCONT));
            self.asked.insert(pid);
        }
    }

    /// Returns whether somebody of them runs whom this user may signal.
    pub(crate) fn are_in_reach(&self, group: Group) -> bool {
        self.all(group).into_iter().any(|pid| kill(pid, None).is_ok())
    }

    /// Says once who they are, and what becomes of them.
    pub(crate) fn say(&mut self, group: Group, fate: &str) {
        if !self.is_said {
            self.tell(&self.all(group), fate);
        }
    }

    fn tell(&mut self, of: &[Pid], fate: &str) {
        if !of.is_empty() && !self.is_said {
            self.is_said = true;
            let named: Vec<_> = of.iter().map(|pid| format!("{} ({pid})", name(*pid))).collect();
            say(&format!("outside its process group the command has started {}: {fate}", named.join(", ")));
        }
    }
}

/// The children of this process, whichever of its threads they belong to. The guard is one, so a system that names none does not tell.
fn children() -> Vec<Pid> {
    let mut found = Vec::new();
    for thread in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        // A thread may have ended meanwhile.
        let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        found.extend(text.split_whitespace().filter_map(|pid| Some(Pid::from_raw(pid.parse().ok()?))));
    }
    if found.is_empty() {
        let own = group::processes().into_iter().filter(|(_, stat)| stat.parent == Pid::this() && stat.runs());
        found.extend(own.map(|(pid, _)| pid));
    }
    found
}

fn name(pid: Pid) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).map_or_else(|_| "?".to_owned(), |name| one_line(name.trim_end()))
}
