//! Four processes on one file, one of which is killed inside.

#![allow(clippy::unwrap_used, missing_docs)]

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// How many times each process takes the lock, and in which hold one of them is killed.
const HOLDS: usize = 50;
const LAST: usize = 5;

/// No hold begins before the one before it has ended, by `unlock` or with its process, and the tokens rise.
#[test]
fn four_processes_exclude_one_another_and_outlive_one_that_is_killed() {
    let directory = TempDir::new().unwrap();
    let log = directory.path().join("log");
    let start = |arguments: &[usize]| start(directory.path(), &log, arguments);
    let mut victim = start(&[HOLDS, LAST]);
    let others = [start(&[HOLDS]), start(&[HOLDS]), start(&[HOLDS])];

    let killed = victim.id().to_string();
    // The last token of the process that is killed, as soon as it stays inside.
    let last_token = loop {
        let log = fs::read_to_string(&log).unwrap();
        let mut tokens = log.lines().filter_map(|line| line.strip_prefix(&killed)?.strip_prefix(" enters "));
        if let Some(token) = tokens.nth(LAST - 1) {
            assert!(log.ends_with(&format!("{killed} enters {token}\n")), "{log}");
            break token.to_owned();
        }
        assert_eq!(victim.try_wait().unwrap(), None, "it ended too early");
        thread::sleep(Duration::from_millis(5));
    };
    victim.kill().unwrap();
    victim.wait().unwrap();
    // The others may be through. This one finds the lock held by the dead process, or waits with them.
    let late = start(&[1]);
    for mut process in others.into_iter().chain([late]) {
        assert!(process.wait().unwrap().success());
    }

    let log = fs::read_to_string(&log).unwrap();
    let mut inside = None;
    let mut tokens = Vec::<u64>::new();
    for line in log.lines() {
        let (holder, event, token) = match line.split(' ').collect::<Vec<_>>()[..] {
            [process, event, token] => ((process, token), event, token),
            _ => panic!("{line:?}"),
        };
        if event == "enters" {
            assert!(inside.is_none_or(|other| other == (&*killed, &*last_token)), "{line:?} beside {inside:?}:\n{log}");
            inside = Some(holder);
            tokens.push(token.parse().unwrap());
        } else {
            assert_eq!(inside.take(), Some(holder), "{line:?}:\n{log}");
        }
    }
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
    assert_eq!((tokens.len(), inside), (3 * HOLDS + LAST + 1, None));
}

/// Starts a process that adds its lines to the log.
fn start(directory: &Path, log: &Path, arguments: &[usize]) -> Child {
    let log = OpenOptions::new().create(true).append(true).open(log).unwrap();
    Command::new(env!("CARGO_BIN_EXE_sqlite-store"))
        .arg(directory.join("locks.db"))
        .args(arguments.iter().map(ToString::to_string))
        .stdout(log)
        .spawn()
        .unwrap()
}
