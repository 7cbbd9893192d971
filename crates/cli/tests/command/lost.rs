//! A lock that is lost while the command runs.

use super::kit::{KEY, Kit, KitOn, Site, Start, lives, on_each_site, state};
use super::stalls::on_a_running_machine;
use super::support::Proxy;
use super::support::crew::{eventually, spawn};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::Signal;
use std::fs;
use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::time::Duration;

const WORK: &str = "echo $$ > pid; trap 'echo told > told; exit 0' TERM; while :; do sleep 0.01; done";

on_each_site!(
    the_command_is_told_to_stop_and_the_status_is_66,
    a_server_that_stands_still_or_dies_ends_the_command_at_the_end_of_the_lease,
);

fn shortest<S: Site>() -> String {
    format!("{}s", S::shortest().as_secs())
}

fn the_command_is_told_to_stop_and_the_status_is_66<S: Site>(kit: &mut KitOn<S>) {
    let running = kit.run(&["--lease", &shortest::<S>()], WORK).start();
    let group = kit.pid_of("pid");
    kit.server.delete(KEY);
    let ended = running.end().expect(66);
    // The shell may say first that its `sleep` was ended: a thread writes the messages.
    let is_told = |line: &str| line.starts_with("dlock: the lease of lock") && line.contains("deleted");
    assert!(ended.err.lines().any(is_told), "{ended:?}");
    // The library, too, has logged it.
    assert_eq!(ended.err.matches(" was lost ").count(), 1, "{ended:?}");
    assert_eq!(kit.line_of("told"), "told");
    assert!(!lives(group));
    kit.expect_free();
}

#[test]
fn a_command_that_does_not_stop_is_killed_after_the_grace() {
    let kit = Kit::new();
    let shell = "echo $$ > pid; trap '' TERM; while :; do sleep 1; done";
    let running = kit.run(&["--lease", "2s", "--grace", "100ms"], shell).start();
    let group = kit.pid_of("pid");
    kit.server.run::<bool>(&["SET", KEY, "another"]);
    running.end().expect(66).says(["another"]);
    assert!(!lives(group));
    assert_eq!(kit.server.run::<String>(&["GET", KEY]), "another");
}

fn a_server_that_stands_still_or_dies_ends_the_command_at_the_end_of_the_lease<S: Site>(kit: &mut KitOn<S>) {
    for dies in [false, true] {
        let _ = fs::remove_file(kit.path("pid"));
        let running = kit.run(&["--lease", &shortest::<S>()], WORK).start();
        let group = kit.pid_of("pid");
        if dies {
            kit.server.kill();
        } else {
            kit.server.signal(Signal::STOP);
        }
        running.end().expect(66);
        assert!(!lives(group));
        if !dies {
            kit.server.signal(Signal::CONT);
            eventually("the lock is free", || !kit.is_locked());
        }
    }
}

/// Somebody has stopped the terminal with Ctrl-S, or a pager reads no more.
#[test]
fn a_standard_error_that_nobody_reads_holds_nothing_up() {
    let kit = Kit::new();
    let shell = "trap 'exit 3' TERM; trap 'exit 8' USR1; echo $$ > pid; until [ -e go ]; do sleep 0.01; done";
    let delete: fn(&Kit) = |kit| kit.server.run(&["DEL", KEY]);
    let go: fn(&Kit) = |kit| fs::write(kit.path("go"), "").unwrap();
    for (options, act, status) in [
        (&["--lease", "2s"][..], delete, 66),
        (&["--lease", "2s", "--on-lost", "kill -USR1 $DLOCK_PID"], delete, 8),
        (&["--verbose"], go, 0),
    ] {
        ["pid", "go"].iter().for_each(|name| drop(fs::remove_file(kit.path(name))));
        let (_reader, full) = full_pipe();
        let running = kit.run(options, shell).stderr(full).start_quietly();
        let group = kit.pid_of("pid");
        act(&kit);
        running.end().expect(status);
        assert!(!lives(group));
        kit.expect_free();
    }
}

/// A pipe that has no room for another byte.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'.'; 4096]).is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer)
}

/// As the library logs it, for the first attempt. Whoever reads it in time can mend the server before the loss.
#[test]
fn a_lease_that_is_not_renewed_is_told_before_it_is_lost() {
    let mut kit = Kit::new();
    let err = fs::File::create(kit.path("err")).unwrap();
    let running = kit.run(&["--lease", "20s", "--log-format", "json"], WORK).stderr(err).start_quietly();
    kit.pid_of("pid");
    kit.server.kill();
    let mut line = String::new();
    eventually("it is told", || {
        let text = fs::read_to_string(kit.path("err")).unwrap();
        let found =
            text.split_inclusive('\n').find(|line| line.contains("lease renewal failed") && line.ends_with('\n'));
        line = found.unwrap_or_default().to_owned();
        !line.is_empty()
    });
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["level"], &line["lock"]), (&"warn".into(), &KEY.into()), "{line}");
    assert!(line["message"].as_str().unwrap().contains(" left: "), "{line}");
    running.signal(Signal::TERM);
    running.end().expect(0);
}

#[test]
fn a_dlock_that_stood_still_past_its_lease_ends_the_command_when_it_goes_on() {
    let kit = Kit::new();
    let running = kit.run(&["--lease", "2s"], WORK).start();
    kit.pid_of("pid");
    running.signal(Signal::STOP);
    eventually("the lease is over", || !kit.is_locked());
    running.signal(Signal::CONT);
    running.end().expect(66);
    kit.expect_free();
}

#[test]
fn with_a_warning_the_command_goes_on() {
    let kit = Kit::new();
    let shell = "echo > in; while ! test -e go; do sleep 0.01; done; exit 6";
    let err = fs::File::create(kit.path("err")).unwrap();
    let running = kit.run(&["--lease", "2s", "--on-lost", "warn"], shell).stderr(err).start_quietly();
    kit.line_of("in");
    kit.server.run::<i64>(&["DEL", KEY]);
    assert!(kit.line_of("err").contains("the command goes on"));
    assert!(state(running.pid()).is_some_and(|state| state != 'Z'));
    fs::write(kit.path("go"), "").unwrap();
    running.end().expect(6);
    kit.expect_free();
}

#[test]
fn a_command_of_the_callers_is_told_of_the_loss() {
    let kit = Kit::new();
    let shell = "trap 'exit 8' USR1; echo $$ > pid; while :; do sleep 0.01; done";
    let tell = "echo $DLOCK_KEY $DLOCK_PID ${DLOCK_TOKEN:+token} > told; kill -USR1 $DLOCK_PID";
    let running = kit.run(&["--lease", "2s", "--on-lost", tell], shell).start();
    let group = kit.line_of("pid");
    kit.server.run::<i64>(&["DEL", KEY]);
    running.end().expect(8);
    assert_eq!(kit.line_of("told"), format!("{KEY} {group} token"));
    kit.expect_free();
}

/// Shows: G3.
#[test]
fn the_lease_is_renewed_for_as_long_as_the_command_runs() {
    let kit = Kit::new();
    let running = kit.run(&["--lease", "6s"], "echo > in; while ! test -e go; do sleep 0.1; done").start();
    kit.line_of("in");
    let locker: String = kit.server.run(&["GET", KEY]);
    let (mut left, mut renewals) = (0, 0);
    eventually("two renewals", || {
        let now: i64 = kit.server.run(&["PTTL", KEY]);
        renewals += usize::from(left > 0 && now > left);
        left = now;
        renewals == 2
    });
    assert_eq!(kit.server.run::<String>(&["GET", KEY]), locker);
    fs::write(kit.path("go"), "").unwrap();
    running.end().expect(0);
    kit.expect_free();
}

/// `dlock` is cut off from the server, and what the shell command has started ignores the stop signal. Each command that holds the lock writes into
/// one file, so that the order shows whether two were inside. The second one is inside for longer than anything of the first one may be. The file
/// `go` is there once the lease has less left than the default grace. The first one ends with this status. The server's lease runs on while the
/// machine stands still.
fn is_over_when_its_lease_is(lease: &[&str], shell: &str, status: i32) {
    on_a_running_machine(Duration::from_millis(500), || play_to_the_end_of_a_lease(lease, shell, status));
}

fn play_to_the_end_of_a_lease(lease: &[&str], shell: &str, status: i32) {
    let kit = Kit::new();
    let network = Proxy::to(kit.server.port(), Duration::ZERO);
    let first = kit.run(lease, shell).env("DLOCK_URL", network.url()).start();
    let group = kit.pid_of("pid");
    network.cut_off();
    let second = kit.run(lease, "echo second >> log; sleep 1; echo second >> log").start();
    // A lease may last for longer than a hang guard.
    while lives(group) {
        if kit.server.run::<i64>(&["PTTL", KEY]) < 4000 {
            fs::write(kit.path("go"), "").unwrap();
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let first = first.end().expect(status);
    assert_eq!(first.err.contains("could not be renewed"), status == 66, "{first:?}");
    second.end().expect(0);
    let log = fs::read_to_string(kit.path("log")).unwrap();
    let beside = log.lines().skip_while(|line| *line == "first").filter(|line| *line == "first").count();
    assert_eq!(beside, 0, "the first one wrote after the second one had begun");
}

/// Ignores the stop signal.
const DEAF: &str = "echo $$ > pid; trap '' TERM; while :; do echo first >> log; sleep 0.01; done";

#[test]
fn a_command_that_ignores_the_stop_signal_has_ended_when_its_lease_is_over() {
    is_over_when_its_lease_is(&["--lease", "6s"], DEAF, 66);
}

/// The command ends while the lease has less left than the grace, and more than the 2.5 s before its end at which `dlock` ends the command.
#[test]
fn what_a_command_has_left_behind_has_ended_when_the_lease_is_over() {
    let shell = format!("({DEAF}) & until [ -e go ]; do sleep 0.01; done; exit 3");
    is_over_when_its_lease_is(&["--lease", "15s"], &shell, 3);
}

#[test]
#[ignore = "takes half a minute"]
fn in_twenty_runs_at_the_defaults_nobody_is_inside_beside_another() {
    let runs: Vec<_> = (0..20).map(|_| spawn(|| is_over_when_its_lease_is(&[], DEAF, 66))).collect();
    // Longer than a hang, because a lease is.
    while !runs.iter().all(|run| run.is_finished()) {
        std::thread::sleep(Duration::from_millis(100));
    }
    runs.into_iter().for_each(|run| run.join());
}

#[test]
fn a_grace_that_outlasts_the_lease_is_told_at_the_start() {
    let kit = Kit::new();
    for option in ["--lease", "--max-hold"] {
        let said = format!("--grace 5s is longer than a sixth of {option} 6s");
        kit.run(&[option, "6s", "--grace", "5s"], "true").end().expect(0).says([&said]);
        assert!(kit.run(&[option, "6s"], "true").end().expect(0).err.is_empty());
    }
}
