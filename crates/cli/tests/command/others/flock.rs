//! `flock` of util-linux 2.38.

use super::super::kit::Start;
use super::{Locker, Signalled, is_there};
use rustix::process::Signal;

fn locker() -> Option<Locker> {
    is_there("flock", "--version", "util-linux 2.38").then(|| Locker {
        words: ["flock", "file"].map(str::to_owned).into(),
        variables: Vec::new(),
        home: tempfile::tempdir().unwrap(),
        _server: None,
    })
}

/// Row: limit of the wait. Row: status: not acquired.
#[test]
fn it_waits_for_as_long_as_it_is_told() {
    let Some(locker) = locker() else { return };
    for (options, status) in [(&["-n"][..], 1), (&["-w", "0.1"], 1), (&["-n", "-E", "42"], 42)] {
        let mut words = vec!["flock"];
        words.extend(options);
        let mut command = super::with_default_signals(words[0]);
        command.args(&words[1..]).args(["file", "true"]).current_dir(locker.home.path());
        locker.while_held(|| command.end()).expect(status);
    }
}

/// Row: status: its own errors.
#[test]
fn its_own_errors_are_64_to_78() {
    let Some(locker) = locker() else { return };
    for words in [&["--no-such-option"][..], &["/no/such/directory/file", "true"]] {
        let ended = super::with_default_signals("flock").args(words).current_dir(locker.home.path()).end();
        let status = ended.status.code().unwrap();
        assert!((64..=78).contains(&status), "{ended:?}");
    }
}

/// Row: status of the command. Row: command ended by signal n.
#[test]
fn the_status_is_passed_on() {
    let Some(locker) = locker() else { return };
    locker.shell("exit 3").end().expect(3);
    locker.shell("kill -9 $$").end().expect(128 + 9);
}

/// Row: the lock is lost. The file may go, and the lock is what the open file has.
#[test]
fn a_lock_cannot_be_lost() {
    let Some(locker) = locker() else { return };
    locker.shell("rm file; echo on").end().expect(0);
}

/// Row: process group of its own. Row: signals forwarded.
#[test]
fn the_command_shares_its_group_and_gets_no_signal() {
    let Some(locker) = locker() else { return };
    let (of_command, own) = locker.groups();
    assert_eq!(of_command, own);
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::USR1] {
        assert_eq!(locker.signalled(signal), Signalled::EndsTheLockerAlone, "{signal:?}");
    }
}

/// Row: what the command leaves behind. Row: the command if the locker is killed.
#[test]
fn whoever_is_left_has_the_lock() {
    let Some(locker) = locker() else { return };
    assert!(locker.leaves_behind() && locker.outlives_a_kill());
    let is_free = |options: &str| {
        let script = format!("flock {options} file sh -c 'sleep 1 >/dev/null 2>&1 &'; flock -n file true");
        let mut command = super::with_default_signals("sh");
        command.args(["-c", &script]).current_dir(locker.home.path()).end().status.success()
    };
    assert!(!is_free("") && is_free("-o"));
}

/// Row: standard input. Row: arguments. Row: a number that rises, for the command.
#[test]
fn input_and_arguments_are_passed_on_and_no_number() {
    let Some(locker) = locker() else { return };
    assert_eq!(locker.read_by(&[]), "a line");
    assert_eq!(locker.arguments(&[]), "[a b][$HOME]");
    let [first, second] = locker.environments();
    assert_eq!(first, second);
}
