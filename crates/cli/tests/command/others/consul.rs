//! `consul lock` of Consul 1.22.5, with one server.

use super::super::consensus::{ConsensusStore, Consul, Quorum, program};
use super::super::kit::Start;
use super::super::support::crew::eventually;
use super::{Locker, Signalled, is_there, same_store};
use rustix::process::Signal;
use std::process::{Command, Stdio};

/// What comes after `consul lock` and the prefix: the command as it is, and its own status.
const AS_IT_IS: [&str; 3] = ["lock", "-shell=false", "p"];

fn locker() -> Option<Locker> {
    let program = program::<Consul>();
    if !is_there(&program, "version", "Consul v1.22.5") {
        return None;
    }
    let (server, home) = (Consul::start(1), tempfile::tempdir().unwrap());
    let words = [&[program.as_str()][..], &AS_IT_IS].concat();
    Some(Locker {
        words: words.into_iter().map(str::to_owned).collect(),
        variables: vec![("CONSUL_HTTP_ADDR", server.address().to_owned())],
        home,
        _server: Some(Box::new(server)),
    })
}

/// `consul` itself, with other words.
fn consul(locker: &Locker, words: &[&str]) -> Command {
    let mut command = super::with_default_signals(&locker.words[0]);
    command.args(words).envs(locker.variables.iter().map(|(name, value)| (name, value)));
    command.current_dir(locker.home.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Row: limit of the wait. Row: status: not acquired. Row: status: its own errors.
#[test]
fn it_waits_for_as_long_as_it_is_told_and_each_error_is_1() {
    let Some(locker) = locker() else { return };
    locker.while_held(|| consul(&locker, &["lock", "-timeout=1s", "p", "true"]).end()).expect(1);
    consul(&locker, &["lock"]).end().expect(1);
    consul(&locker, &["lock", "-http-addr=127.0.0.1:1", "p", "true"]).end().expect(1);
}

/// Row: status of the command. Row: command ended by signal n.
#[test]
fn the_status_is_not_passed_on() {
    let Some(locker) = locker() else { return };
    for script in ["exit 3", "kill -9 $$"] {
        locker.shell(script).end().expect(0);
        consul(&locker, &["lock", "-child-exit-code", "-shell=false", "p", "sh", "-c", script]).end().expect(2);
    }
}

/// Row: the lock is lost.
#[test]
fn a_loss_ends_the_commands_process() {
    let Some(locker) = locker() else { return };
    let script =
        "trap 'echo got > got; exit' TERM; (trap '' TERM; sleep 100) & echo $$ > pid; while :; do sleep 0.02; done";
    let running = locker.shell(&format!("exec >/dev/null 2>&1; {script}")).start();
    locker.pid_of("pid");
    consul(&locker, &["kv", "delete", "p/.lock"]).end().expect(0);
    eventually("the command was told", || locker.path("got").exists());
    running.end();
}

/// Row: process group of its own. Row: signals forwarded.
#[test]
fn the_command_shares_its_group_and_gets_two_signals() {
    let Some(locker) = locker() else { return };
    let (of_command, own) = locker.groups();
    assert_eq!(of_command, own);
    for (signal, becomes) in [
        (Signal::INT, Signalled::Forwarded),
        (Signal::TERM, Signalled::Forwarded),
        (Signal::USR1, Signalled::DoesNothing),
        (Signal::USR2, Signalled::DoesNothing),
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
fn input_and_arguments_are_passed_on_if_that_is_wanted_and_no_number() {
    let Some(mut locker) = locker() else { return };
    assert_eq!(locker.read_by(&[]), "");
    assert_eq!(locker.arguments(&[]), "[a b][$HOME]");
    let [first, second] = locker.environments();
    assert_eq!(first, second);
    let program = locker.words[0].clone();
    locker.words = [program.as_str(), "lock", "-pass-stdin", "p"].map(str::to_owned).into();
    assert_eq!(locker.read_by(&[]), "a line");
    let home = std::env::var("HOME").unwrap_or_default();
    let joined = if home.is_empty() { "[a][b]".to_owned() } else { format!("[a][b][{home}]") };
    assert_eq!(locker.arguments(&[]), joined, "a shell takes them apart");
}

#[test]
fn dlock_runs_commands_on_the_same_store() {
    let Some(locker) = locker() else { return };
    same_store::runs_here(&locker, "consul");
    same_store::is_waited_for(&locker, "consul");
}
