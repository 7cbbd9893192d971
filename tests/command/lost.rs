//! A lock that is lost while the command runs.

use super::kit::{KEY, Kit, Start, lives};
use super::support::crew::eventually;
use rustix::process::Signal;
use std::fs;

const WORK: &str = "echo $$ > pid; trap 'echo told > told; exit 0' TERM; while :; do sleep 0.01; done";

#[test]
fn the_command_is_told_to_stop_and_the_status_is_66() {
    let kit = Kit::new();
    let running = kit.run(&["--lease", "2s"], WORK).start();
    let group = kit.pid_of("pid");
    kit.server.run::<i64>(&["DEL", KEY]);
    let ended = running.end().expect(66);
    assert!(ended.err.starts_with("dlock: the lease of lock") && ended.err.contains("deleted"), "{ended:?}");
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
    let ended = running.end().expect(66);
    assert!(ended.err.contains("another"), "{ended:?}");
    assert!(!lives(group));
    assert_eq!(kit.server.run::<String>(&["GET", KEY]), "another");
}

#[test]
fn a_server_that_stands_still_or_dies_ends_the_command_at_the_end_of_the_lease() {
    let mut kit = Kit::new();
    for dies in [false, true] {
        let _ = fs::remove_file(kit.path("pid"));
        let running = kit.run(&["--lease", "1s"], WORK).start();
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

#[test]
fn a_dlock_that_stood_still_past_its_lease_ends_the_command_when_it_goes_on() {
    let kit = Kit::new();
    let running = kit.run(&["--lease", "500ms"], WORK).start();
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
    let running = kit
        .run(&["--lease", "2s", "--on-lost", "warn"], shell)
        .stderr(fs::File::create(kit.path("err")).unwrap())
        .spawn();
    let mut running = running.unwrap();
    kit.line_of("in");
    kit.server.run::<i64>(&["DEL", KEY]);
    assert!(kit.line_of("err").contains("the command goes on"));
    assert!(running.try_wait().unwrap().is_none());
    fs::write(kit.path("go"), "").unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(6));
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
    let running = kit.run(&["--lease", "3s"], "mkfifo go; echo > in; read -r _ < go").start();
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
    fs::write(kit.path("go"), "\n").unwrap();
    running.end().expect(0);
    kit.expect_free();
}
