//! The process group of the command.

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgrp};
use std::fs;

/// A process group, by the process that began it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(pub(crate) Pid);

/// The fields of `/proc/{pid}/stat`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stat {
    state: char,
    pub(super) parent: Pid,
    pub(super) group: Pid,
    session: Pid,
}

impl Stat {
    /// Whether the process has not ended. An ended process may still wait for its parent to reap it.
    pub(super) fn runs(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}

impl Group {
    /// Sends all of its processes a signal. Nothing happens if there is none.
    pub(crate) fn signal(self, signal: Signal) {
        let _ = killpg(self.0, signal);
    }

    /// Asks all of its processes to end, including stopped ones.
    pub(crate) fn ask_to_end(self, signal: Signal) {
        self.signal(signal);
        self.signal(Signal::SIGCONT);
    }

    /// Returns whether the group has no process, not even an ended one that its parent has not reaped.
    pub(crate) fn is_gone(self) -> bool {
        killpg(self.0, None) == Err(Errno::ESRCH)
    }

    /// Returns whether no process of the group runs, and its ended ones have a parent that does not reap them.
    pub(crate) fn is_dead(self) -> bool {
        let processes = processes();
        let mut members = processes.iter().filter(|(_, stat)| stat.group == self.0);
        !members.any(|(_, stat)| stat.runs()) && (!processes.is_empty() || self.is_gone())
    }

    /// Returns whether this user has no right to signal it.
    pub(crate) fn is_beyond_reach(self) -> bool {
        killpg(self.0, None) == Err(Errno::EPERM)
    }
}

/// Returns whether nobody could continue this process's own group if it stopped: no process of the group has a parent in another group of the same
/// session, such as a shell. The kernel ignores Ctrl-Z for such a group.
pub(crate) fn own_is_orphaned() -> bool {
    let own = getpgrp();
    let Some(mut process) = stat(Pid::this()) else { return true };
    loop {
        let Some(parent) = stat(process.parent) else { return true };
        if parent.group != own {
            return parent.session != process.session;
        }
        process = parent;
    }
}

/// Returns all processes. The list is empty if the system does not tell.
pub(super) fn processes() -> Vec<(Pid, Stat)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| Some(Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?)));
    pids.filter_map(|pid| Some((pid, stat(pid)?))).collect()
}

fn stat(pid: Pid) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads `4711 (name) S 1 4711 4711 …`; the name may contain parentheses.
fn parse(line: &str) -> Option<Stat> {
    let mut words = line.rsplit_once(") ")?.1.split(' ');
    let state = words.next()?.chars().next()?;
    let mut number = || Some(Pid::from_raw(words.next()?.parse().ok()?));
    Some(Stat { state, parent: number()?, group: number()?, session: number()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_skipped() {
        let stat = parse("12 (a ) R b) S 3 4 5 34816 4 0").expect("a line");
        assert_eq!(
            (stat.state, stat.parent, stat.group, stat.session),
            ('S', Pid::from_raw(3), Pid::from_raw(4), Pid::from_raw(5))
        );
        let own = super::stat(Pid::this()).expect("this process");
        assert_eq!((own.group, own.parent), (getpgrp(), Pid::parent()));
    }

    #[test]
    fn this_group_lives() {
        let own = Group(getpgrp());
        assert!(!own.is_gone() && !own.is_dead() && !own.is_beyond_reach());
    }
}
