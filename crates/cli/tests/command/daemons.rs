//! Processes that leave the command's process group: by `setsid`, by a double fork, as a job of a shell. And the command of `--on-lost`.

use super::kit::{KEY, Kit, Start, children, launcher, state};
use super::support::crew::eventually;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::Command;

/// The ways out of the process group. Each runs the script `daemon`, and the command goes on.
const WAYS: [(&str, &str); 3] = [
    ("setsid", "setsid sh daemon &"),
    ("double fork", "setsid sh -c '(sh daemon &)' &"),
    ("job control", "bash -c 'set -m; sh daemon &'"),
];

/// A command that starts a daemon in one of these ways, and ends with 3 once the daemon runs.
fn command(kit: &Kit, way: &str, daemon: &str) -> String {
    ["daemon", "pid", "go", "told"].iter().for_each(|name| drop(fs::remove_file(kit.path(name))));
    fs::write(kit.path("daemon"), format!("{daemon}\n")).unwrap();
    format!("{way}\nuntil [ -s pid ]; do sleep 0.01; done; exit 3")
}

const SLEEPS: &str = "echo $$ > pid; exec sleep 100";

fn is_gone(pid: Pid) -> bool {
    matches!(state(pid), None | Some('Z'))
}

#[test]
fn a_daemon_is_ended_with_the_command() {
    let kit = Kit::new();
    for (name, way) in WAYS {
        let ended = kit.run(&[], &command(&kit, way, SLEEPS)).end().expect(3);
        let daemon = kit.pid_of("pid");
        assert!(is_gone(daemon), "{name}: {ended:?}");
        assert_eq!(ended.err.lines().count(), 1, "{name}: {ended:?}");
        // It has written its number before it becomes `sleep`.
        let names = ["sh", "sleep"].map(|program| format!(" {program} ({}): these are ended", daemon.as_raw_nonzero()));
        assert!(names.iter().any(|named| ended.err.contains(named)), "{name}: {ended:?}");
        kit.expect_free();
    }
}

#[test]
fn a_daemon_ends_before_the_lock_is_released() {
    let kit = Kit::new();
    let tidy = "trap 'sleep 0.2; echo done > told; exit' TERM; echo $$ > pid; while :; do sleep 0.01; done";
    for (name, way) in WAYS {
        let running = kit.run(&["--grace", "60s"], &command(&kit, way, tidy)).start();
        kit.pid_of("pid");
        eventually("it was told, or the lock is free", || kit.path("told").exists() || !kit.is_locked());
        assert!(kit.path("told").exists(), "{name}: the lock was released first");
        running.end().expect(3);
        kit.expect_free();
    }
}

#[test]
fn a_daemon_that_does_not_listen_is_killed_after_the_grace() {
    let kit = Kit::new();
    let deaf = "trap '' TERM; echo $$ > pid; while :; do sleep 1; done";
    for (name, way) in WAYS {
        kit.run(&["--grace", "200ms"], &command(&kit, way, deaf)).end().expect(3);
        assert!(is_gone(kit.pid_of("pid")), "{name}");
        kit.expect_free();
    }
}

#[test]
fn a_daemon_is_waited_for_if_that_is_wanted() {
    let kit = Kit::new();
    let until_go = "echo $$ > pid; until [ -e go ]; do sleep 0.01; done; echo done > told";
    for (name, way) in WAYS {
        let mut dlock = kit.run(&["--daemons", "wait"], &command(&kit, way, until_go));
        let running = dlock.stderr(fs::File::create(kit.path("err")).unwrap()).start_quietly();
        assert!(kit.line_of("err").contains("the lock is kept until these end"), "{name}");
        assert!(kit.is_locked() && !is_gone(kit.pid_of("pid")), "{name}");
        fs::write(kit.path("go"), "").unwrap();
        running.end().expect(3);
        assert!(kit.path("told").exists(), "{name}");
        kit.expect_free();
    }
    // A signal is for whoever is waited for.
    let running = kit.run(&["--daemons", "wait"], &command(&kit, WAYS[0].1, SLEEPS)).start();
    let daemon = kit.pid_of("pid");
    eventually("the command has ended", || children(running.pid()).contains(&daemon));
    running.signal(Signal::TERM);
    running.end().expect(3);
    assert!(is_gone(daemon));
}

#[test]
fn a_daemon_is_left_if_that_is_wanted() {
    let kit = Kit::new();
    for (name, way) in WAYS {
        let ended =
            kit.run(&["--daemons", "leave"], &format!("exec >&- 2>&-; {}", command(&kit, way, SLEEPS))).end().expect(3);
        let daemon = kit.pid_of("pid");
        assert!(!is_gone(daemon) && ended.err.contains("run on without the lock"), "{name}: {ended:?}");
        kill_process(daemon, Signal::KILL).unwrap();
        kit.expect_free();
    }
    kit.run(&["--daemons", "ask"], "true").end().expect(64).says(["'ask'", "stop, wait, leave"]);
}

/// Also while the command runs, and whoever it has started in another session is its child.
#[test]
fn a_loss_ends_the_daemons_too() {
    let kit = Kit::new();
    for (name, way) in WAYS {
        let waits = command(&kit, way, SLEEPS).replace("exit 3", "echo in > in; sleep 100; exit 3");
        let running = kit.run(&[], &waits).start();
        kit.line_of("in");
        kit.server.run::<()>(&["DEL", KEY]);
        let ended = running.end().expect(66);
        assert!(is_gone(kit.pid_of("pid")), "{name}: {ended:?}");
        fs::remove_file(kit.path("in")).unwrap();
    }
}

/// It may be in the middle of mending what the loss has left.
#[test]
fn the_command_of_a_loss_is_waited_for_within_the_grace() {
    let kit = Kit::new();
    let hook = "echo $$ > hook; until [ -e go ]; do sleep 0.01; done; echo done > told";
    let until_hook = "echo $$ > pid; until [ -s hook ]; do sleep 0.01; done; exit 3";
    let running = kit.run(&["--on-lost", hook, "--grace", "60s"], until_hook).start();
    let command = kit.pid_of("pid");
    kit.server.run::<()>(&["DEL", KEY]);
    kit.line_of("hook");
    eventually("the command has ended", || is_gone(command));
    fs::write(kit.path("go"), "").unwrap();
    running.end().expect(3);
    assert!(kit.path("told").exists());
    // It gets no more than the grace.
    ["hook", "go", "told", "pid"].iter().for_each(|name| drop(fs::remove_file(kit.path(name))));
    let running = kit.run(&["--on-lost", hook, "--grace", "200ms"], until_hook).start();
    kit.pid_of("pid");
    kit.server.run::<()>(&["DEL", KEY]);
    running.end().expect(3);
    assert!(is_gone(kit.pid_of("hook")) && !kit.path("told").exists());
}

/// A shell that becomes `dlock` by `exec` leaves it its own children, such as the `tee` of `exec > >(tee log)`.
#[test]
fn children_from_before_the_run_are_no_daemons_of_the_command() {
    let kit = Kit::new();
    for daemons in ["stop", "wait", "leave"] {
        let _ = fs::remove_file(kit.path("pid"));
        let shell = "sh -c 'echo $$ > pid; exec sleep 100' > /dev/null 2>&1 & exec \"$@\"";
        let run = kit.run(&["--daemons", daemons], "until [ -s pid ]; do sleep 0.01; done; exit 3");
        let mut dlock = Command::new("sh");
        dlock.args(["-c", shell, "sh"]).arg(run.get_program()).args(run.get_args()).current_dir(kit.home.path());
        let ended = dlock.env("DLOCK_URL", kit.server.url()).end().expect(3);
        let earlier = kit.pid_of("pid");
        assert!(!is_gone(earlier) && ended.err.is_empty(), "{daemons}: {ended:?}");
        kill_process(earlier, Signal::KILL).unwrap();
        kit.expect_free();
    }
}

#[test]
fn a_command_of_a_loss_that_was_killed_before_is_not_waited_for() {
    let kit = Kit::new();
    let mut dlock = kit.run(
        &["--lease", "20s", "--on-lost", "echo ran > ran"],
        "echo $$ > pid; until [ -e go ]; do sleep 0.01; done; exit 3",
    );
    let running = dlock.stderr(fs::File::create(kit.path("err")).unwrap()).start_quietly();
    kit.pid_of("pid");
    let launcher = launcher(running.pid());
    kill_process(launcher, Signal::KILL).unwrap();
    eventually("dlock has noticed it", || state(launcher).is_none());
    kit.server.run::<()>(&["DEL", KEY]);
    eventually("the loss is told", || fs::read_to_string(kit.path("err")).unwrap().contains("its process was killed"));
    fs::write(kit.path("go"), "").unwrap();
    running.end().expect(3);
    assert!(!kit.path("ran").exists());
}
