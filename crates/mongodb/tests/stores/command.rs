//! The command `dlock` on MongoDB.

use crate::fresh::Fresh;
use crate::support::crew::eventually;
use dlock_conformance::Store;
use redis_dlock::port::Operations;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

fn dlock(store: &Fresh, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dlock"));
    command.args(arguments).env("DLOCK_URL", store.url()).env("XDG_CONFIG_HOME", "/nowhere");
    command.stdin(Stdio::null());
    command
}

fn said(mut command: Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

#[test]
fn a_command_runs_under_a_lock_that_people_see_and_break() {
    let store = Fresh::start();
    let run = dlock(&store, &["run", "EXPORT", "nightly", "--reason", "a test", "--", "sleep", "60"]).spawn();
    let mut run = run.unwrap();
    let processor = store.processor();
    eventually("it has the lock", || processor.inspect("DLOCK_EXPORT_nightly", LONG).unwrap().holder.is_some());
    let (status, listed) = said(dlock(&store, &["ls"]));
    assert!(status == Some(0) && listed.contains("nightly"), "{listed}");
    // The lock comes first, and then what its client says of itself.
    eventually("it says why", || said(dlock(&store, &["show", "EXPORT", "nightly"])).1.contains("a test"));
    let holder = processor.inspect("DLOCK_EXPORT_nightly", LONG).unwrap().holder.unwrap();
    let (status, broken) =
        said(dlock(&store, &["break", "EXPORT", "nightly", "--locker", &holder, "--reason", "no more"]));
    assert_eq!(status, Some(0), "{broken}");
    let ended = run.wait().unwrap();
    assert!(!ended.success());
    assert_eq!(store.leftovers(), [""; 0]);
}

#[test]
fn the_doctor_says_that_locks_work() {
    let store = Fresh::start();
    let (status, found) = said(dlock(&store, &["doctor"]));
    assert!(status == Some(0) && found.contains("the login may lock"), "{found}");
    let (status, refused) = said(dlock(&store, &["--replica-acks", "1", "ls"]));
    assert!(status != Some(0) && refused.contains("--replica-acks"), "{refused}");
}

#[test]
fn a_job_is_done_once_in_a_while_and_people_see_when() {
    let store = Fresh::start();
    let once = || said(dlock(&store, &["run", "EXPORT", "hourly", "--once-every", "1h", "--", "true"]));
    assert_eq!(once().0, Some(0));
    let (status, refused) = once();
    assert!(status == Some(65) && refused.contains("done at"), "{refused}");
    let (status, shown) = said(dlock(&store, &["show", "EXPORT", "hourly", "--json"]));
    assert!(status == Some(0) && shown.contains("\"delayed_release\""), "{shown}");
    let (status, waited) = said(dlock(&store, &["wait", "EXPORT", "hourly", "--timeout", "20s"]));
    assert_eq!(status, Some(0), "{waited}");
    let (status, seen) = said(dlock(&store, &["watch", "EXPORT_*", "--count", "1"]));
    assert!(status == Some(0) && seen.contains("hourly"), "{seen}");
}

/// The lease alone ends what it held.
#[test]
fn a_process_that_is_killed_keeps_nobody_out_for_longer_than_its_lease() {
    let store = Fresh::start();
    let run =
        |options: &[&str], words: &[&str]| dlock(&store, &[&["run", "EXPORT", "killed"], options, words].concat());
    let mut killed = run(&["--lease", "2s"], &["--", "sleep", "5"]).spawn().unwrap();
    let processor = store.processor();
    eventually("it has the lock", || processor.inspect("DLOCK_EXPORT_killed", LONG).unwrap().holder.is_some());
    killed.kill().unwrap();
    killed.wait().unwrap();
    let (status, ended) = said(run(&["--wait", "20s"], &["--", "true"]));
    assert_eq!(status, Some(0), "{ended}");
    assert_eq!(store.leftovers(), [""; 0]);
}
