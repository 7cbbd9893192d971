//! Nothing of the command's process group is left, however `dlock` ends.

use super::kit::{Kit, Start, children, launcher, lives, state};
use super::support::crew::eventually;
use rustix::process::{Signal, kill_process, kill_process_group};
use std::fs;

#[test]
fn no_client_record_outlives_a_command_that_has_ended() {
    let kit = Kit::new();
    let records = || kit.server.run::<Vec<String>>(&["KEYS", "DLOCK:1:client:*"]).len();
    for ends in ["exit 0", "kill -9 $$"] {
        let running = kit.run(&[], &format!("until [ -e go ]; do sleep 0.01; done; {ends}")).start();
        eventually("it has a record", || records() == 1);
        fs::write(kit.path("go"), "").unwrap();
        running.end();
        assert_eq!(records(), 0);
        fs::remove_file(kit.path("go")).unwrap();
    }
}

#[test]
fn what_the_command_leaves_behind_ends_before_the_lock_is_released() {
    let kit = Kit::new();
    // A child, an orphan, and one that ends only when it is told to, after a look at the lock.
    let tidy = "trap 'sleep 0.2; echo done > told; exit' TERM; echo > ready; while :; do sleep 0.01; done";
    let shell = format!(
        "echo $$ > pid; sleep 100 & (sleep 100 &) ; sh -c \"{tidy}\" & while ! test -e ready; do sleep 0.01; done; exit 3"
    );
    let running = kit.run(&[], &shell).start();
    let group = kit.pid_of("pid");
    eventually("the command has told its child, or the lock is free", || kit.path("told").exists() || !kit.is_locked());
    assert!(kit.path("told").exists(), "the lock was released before the last process had ended");
    running.end().expect(3);
    assert!(!lives(group));
    kit.expect_free();
}

#[test]
fn who_does_not_listen_is_killed_after_the_grace() {
    let kit = Kit::new();
    let shell = "echo $$ > pid; (trap '' TERM; while :; do sleep 1; done) & exit 4";
    kit.run(&["--grace", "200ms"], shell).end().expect(4);
    assert!(!lives(kit.pid_of("pid")));
    kit.expect_free();
}

#[test]
fn a_stopped_orphan_ends_too() {
    let kit = Kit::new();
    let shell =
        "echo $$ > pid; sh -c 'echo > ready; kill -STOP $$; exit' & while ! test -e ready; do sleep 0.01; done; exit 4";
    kit.run(&["--grace", "60s"], shell).end().expect(4);
    assert!(!lives(kit.pid_of("pid")));
}

#[test]
fn the_stop_signal_is_the_callers_choice() {
    let kit = Kit::new();
    let child = "(trap 'echo USR2 > told; exit' USR2; echo > ready; while :; do sleep 0.01; done)";
    let shell = format!("{child} & while ! test -e ready; do sleep 0.01; done; exit 4");
    kit.run(&["--stop-signal", "USR2", "--grace", "60s"], &shell).end().expect(4);
    assert_eq!(kit.line_of("told"), "USR2");
}

/// The guard ends the group: an orphan, one that ignores the stop signal, and the command itself.
#[test]
fn nothing_is_left_when_dlock_is_killed() {
    let kit = Kit::new();
    for whole_group in [false, true] {
        let _ = fs::remove_file(kit.path("pid"));
        let shell = "(trap '' TERM; while :; do sleep 1; done) & (sleep 100 &); trap '' TERM; echo $$ > pid; while :; do sleep 1; done";
        let running = kit.run(&["--lease", "2s"], shell).start();
        let group = kit.pid_of("pid");
        assert!(lives(group));
        if whole_group {
            kill_process_group(running.pid(), Signal::KILL).unwrap();
        } else {
            running.signal(Signal::KILL);
        }
        // The lock is there until the lease ends; nobody else is inside before the group is gone.
        eventually("the group is gone, or the lock is free", || !lives(group) || !kit.is_locked());
        assert!(!lives(group), "the lock was free first");
        running.end();
        eventually("the lease is over", || !kit.is_locked());
    }
}

#[test]
fn nothing_is_left_when_a_waiting_dlock_is_killed() {
    let kit = Kit::new();
    let holder = kit.holder(&[]);
    let waiter = kit.queued(&[], "echo ran > ran");
    let children = children(waiter.pid());
    assert_eq!(children.len(), 2, "the launcher and the guard");
    waiter.signal(Signal::KILL);
    waiter.end();
    for child in children {
        eventually("its processes are gone", || matches!(state(child), None | Some('Z')));
    }
    holder.stop();
    assert!(!kit.path("ran").exists());
}

#[test]
fn a_launcher_that_is_killed_during_the_wait_is_a_command_that_was_killed() {
    let kit = Kit::new();
    for on_lost in ["stop", "warn"] {
        let holder = kit.holder(&[]);
        let waiter = kit.queued(&["--lease", "5m", "--on-lost", on_lost], "echo ran > ran");
        kill_process(launcher(waiter.pid()), Signal::KILL).unwrap();
        holder.stop();
        waiter.end().expect(137);
        kit.expect_free();
    }
    assert!(!kit.path("ran").exists());
}

#[test]
fn the_command_dies_with_dlock_even_without_the_guard() {
    let kit = Kit::new();
    let running = kit.run(&[], "echo $$ > pid; exec sleep 100").start();
    let group = kit.pid_of("pid");
    let guard = children(running.pid()).into_iter().find(|pid| *pid != group);
    kill_process(guard.unwrap(), Signal::KILL).unwrap();
    running.signal(Signal::KILL);
    running.end();
    eventually("the command is gone", || !lives(group));
}
