//! `etcdctl lock` of etcd 3.4.23, with one server.

use super::super::consensus::{ConsensusStore, Etcd, Quorum, program};
use super::super::kit::Start;
use super::super::support::crew::eventually;
use super::{Locker, Signalled, is_there, same_store};
use rustix::process::Signal;
use std::path::Path;
use std::process::{Command, Stdio};

/// The program beside the server's.
fn etcdctl(etcd: &str) -> String {
    let beside = Path::new(etcd).with_file_name("etcdctl");
    if beside.exists() { beside.display().to_string() } else { "etcdctl".to_owned() }
}

fn locker() -> Option<Locker> {
    let etcd = program::<Etcd>();
    let etcdctl = etcdctl(&etcd);
    if !is_there(&etcdctl, "version", "etcdctl version: 3.4.23") || !is_there(&etcd, "--version", "etcd Version") {
        return None;
    }
    let (server, home) = (Etcd::start(1), tempfile::tempdir().unwrap());
    Some(Locker {
        words: [etcdctl.as_str(), "lock", "x", "--"].map(str::to_owned).into(),
        variables: vec![("ETCDCTL_API", "3".to_owned()), ("ETCDCTL_ENDPOINTS", format!("http://{}", server.address()))],
        home,
        _server: Some(Box::new(server)),
    })
}

/// `etcdctl` itself, with other words.
fn ctl(locker: &Locker, words: &[&str]) -> Command {
    let mut command = super::with_default_signals(&locker.words[0]);
    command.args(words).envs(locker.variables.iter().map(|(name, value)| (name, value)));
    command.current_dir(locker.home.path()).stdin(Stdio::null());
    command
}

/// How many hold the lock or wait for it.
fn count(locker: &Locker) -> usize {
    ctl(locker, &["get", "--prefix", "--keys-only", "x/"]).end().out.lines().filter(|line| !line.is_empty()).count()
}

/// Row: limit of the wait. Row: status: not acquired. There is no option: what limits other commands does not limit this one.
#[test]
fn it_waits_until_it_has_the_lock() {
    let Some(locker) = locker() else { return };
    let mut waiter = None;
    locker.while_held(|| {
        let waits = ctl(&locker, &["--command-timeout=100ms", "lock", "x", "--", "echo", "in"]).start();
        eventually("both are there", || count(&locker) == 2);
        waiter = Some(waits);
        ctl(&locker, &["version"]).end()
    });
    assert_eq!(waiter.unwrap().end().expect(0).out, "in\n");
    assert!(!ctl(&locker, &["lock", "--help"]).end().out.contains("--timeout"));
}

/// Row: status: its own errors.
#[test]
fn its_own_errors_are_1_or_128() {
    let Some(locker) = locker() else { return };
    ctl(&locker, &["lock"]).end().expect(128);
    locker.with(&[], &["no-such-command"]).end().expect(1);
}

/// Row: status of the command. Row: command ended by signal n.
#[test]
fn each_failure_of_the_command_is_1() {
    let Some(locker) = locker() else { return };
    for script in ["exit 3", "kill -9 $$"] {
        locker.shell(script).end().expect(1);
    }
    locker.shell("exit 0").end().expect(0);
}

/// Row: the lock is lost.
#[test]
fn a_loss_is_not_noticed() {
    let Some(locker) = locker() else { return };
    let running = locker.shell("echo $$ > pid; until [ -e go ]; do sleep 0.02; done; echo on").start();
    locker.pid_of("pid");
    ctl(&locker, &["del", "--prefix", "x/"]).end().expect(0);
    // Another one has it meanwhile.
    locker.shell("exit 0").end().expect(0);
    std::fs::write(locker.path("go"), "").unwrap();
    assert_eq!(running.end().expect(0).out, "on\n");
}

/// Row: process group of its own. Row: signals forwarded.
#[test]
fn the_command_shares_its_group_and_gets_no_signal() {
    let Some(locker) = locker() else { return };
    let (of_command, own) = locker.groups();
    assert_eq!(of_command, own);
    for (signal, becomes) in [
        (Signal::INT, Signalled::DoesNothing),
        (Signal::TERM, Signalled::DoesNothing),
        (Signal::USR1, Signalled::DoesNothing),
        // Its lock stays until the session ends.
        (Signal::HUP, Signalled::EndsTheLockerAlone),
    ] {
        assert_eq!(locker.signalled(signal), becomes, "{signal:?}");
    }
}

/// Row: what the command leaves behind. Row: the command if the locker is killed.
#[test]
fn whoever_is_left_runs_on() {
    let Some(locker) = locker() else { return };
    assert!(locker.leaves_behind() && locker.outlives_a_kill());
}

/// Row: standard input. Row: arguments. Row: a number that rises, for the command.
#[test]
fn arguments_are_passed_on_and_a_number_and_no_input() {
    let Some(locker) = locker() else { return };
    assert_eq!(locker.read_by(&[]), "");
    assert_eq!(locker.arguments(&[]), "[a b][$HOME]");
    let numbers = [(); 2].map(|()| locker.shell("echo $ETCD_LOCK_REV").end().out.trim().parse::<u64>().unwrap());
    assert!(numbers[0] < numbers[1], "{numbers:?}");
}

#[test]
fn dlock_runs_commands_on_the_same_store() {
    let Some(locker) = locker() else { return };
    same_store::runs_here(&locker, "etcd");
    same_store::is_waited_for(&locker, "etcd");
}
