//! Processes that the command has started outside its process group: daemons (`setsid`, a double fork), and jobs of a shell (`set -m`).
//!
//! `dlock` adopts processes that lose their parent (`PR_SET_CHILD_SUBREAPER`), so it loses none of them: as long as one lives, `dlock` has a child.

use super::group::{self, Group};
use crate::message::say;
use crate::output::one_line;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::fs;

/// The processes outside the group: see the module.
#[derive(Debug)]
pub(crate) struct Daemons {
    /// Children that are none of the command's: the guard, the launcher of `--on-lost`, and those of a program that has become `dlock` by `exec`.
    own: Vec<Pid>,
    /// The processes that were asked to end. The others have begun since.
    asked: HashSet<Pid>,
    is_said: bool,
}

impl Daemons {
    /// The daemons of a command that is about to begin as this process. All other children that there are now are none of the command's.
    pub(crate) fn of(command: Pid) -> Self {
        let own = children().into_iter().filter(|child| *child != command).collect();
        Self { own, asked: HashSet::new(), is_said: false }
    }

    /// Notes that a child has ended. Processes that it has left behind belong to the command, and so may the next one with its number.
    pub(crate) fn child_ended(&mut self, ended: Pid) {
        self.own.retain(|own| *own != ended);
    }

    /// Returns whether such a process is left after the command has ended. Every run asks, so this only looks at the children of this process.
    pub(crate) fn any(&self) -> bool {
        children().iter().any(|child| !self.own.contains(child))
    }

    /// Returns whether this process has a new child that was not asked to end. It is called often, so it only looks at the children, too: a look at
    /// all processes may take longer than the rest of the lease.
    pub(crate) fn any_new(&self, command: Pid) -> bool {
        children().iter().any(|child| *child != command && !self.own.contains(child) && !self.asked.contains(child))
    }

    /// Returns all such processes, with the children of children.
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

    /// Asks the processes that were not asked yet to end, including stopped ones.
    pub(crate) fn ask_to_end(&mut self, group: Group, signal: Signal) {
        let new: Vec<_> = self.all(group).into_iter().filter(|pid| !self.asked.contains(pid)).collect();
        self.tell(&new, "these are ended, too");
        for pid in new {
            let _ = kill(pid, signal).and_then(|()| kill(pid, Signal::SIGCONT));
            self.asked.insert(pid);
        }
    }

    /// Returns whether one of them runs that this user may signal.
    pub(crate) fn are_in_reach(&self, group: Group) -> bool {
        self.all(group).into_iter().any(|pid| kill(pid, None).is_ok())
    }

    /// Says once which processes these are, and what will happen to them.
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

/// The children of all threads of this process. The guard is one of them. So if the list is empty, the system does not tell.
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
