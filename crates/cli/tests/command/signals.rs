//! Signals to `dlock`: forwarded to the command's group, and heard while it waits.

use super::kit::{KEY, Kit, Start, state};
use super::support::crew::eventually;
use rustix::process::{Signal, kill_process};
use std::process::Command;

const FORWARDED: [(Signal, &str); 6] = [
    (Signal::INT, "INT"),
    (Signal::TERM, "TERM"),
    (Signal::HUP, "HUP"),
    (Signal::QUIT, "QUIT"),
    (Signal::USR1, "USR1"),
    (Signal::USR2, "USR2"),
];

#[test]
fn signals_reach_all_of_the_commands_group() {
    let kit = Kit::new();
    for (signal, name) in FORWARDED {
        // A shell starts background jobs with SIGINT and SIGQUIT ignored.
        let child = format!("trap 'echo {name} > child; exit' {name}; echo > ready; while :; do sleep 0.01; done");
        let shell = format!(
            "trap 'wait; echo {name}; exit 7' {name}; rm -f child; env --default-signal=INT,QUIT sh -c \"{child}\" & \
             while :; do sleep 0.01; done"
        );
        let running = kit.run(&[], &shell).start();
        kit.line_of("ready");
        running.signal(signal);
        assert_eq!(running.end().expect(7).out.trim(), name);
        assert_eq!(kit.line_of("child"), name);
        std::fs::remove_file(kit.path("ready")).unwrap();
        kit.expect_free();
    }
}

#[test]
fn a_command_that_handles_no_signal_ends_by_it() {
    let kit = Kit::new();
    for (signal, _) in FORWARDED {
        let running = kit.holder(&[]);
        running.signal(signal);
        running.end().expect(128 + signal.as_raw());
        kit.expect_free();
    }
}

#[test]
fn a_signal_ends_the_wait_for_the_lock_and_leaves_nobody_in_the_queue() {
    let kit = Kit::new();
    let holder = kit.holder(&[]);
    let locker: String = kit.server.run(&["GET", KEY]);
    for (signal, _) in FORWARDED {
        for options in [&[][..], &["--wait", "1h"]] {
            let waiter = kit.queued(options, "echo ran");
            waiter.signal(signal);
            let ended = waiter.end().expect(128 + signal.as_raw());
            assert_eq!((&*ended.out, &*ended.err), ("", ""));
            assert_eq!(kit.waiting(), 0);
        }
    }
    assert_eq!(kit.server.run::<String>(&["GET", KEY]), locker);
    holder.stop();
    kit.expect_free();
}

#[test]
fn a_signal_ends_a_connect_that_hangs() {
    let kit = Kit::new();
    kit.server.signal(Signal::STOP);
    let waiter = kit.run(&[], "echo ran").start();
    let connects = || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", waiter.pid().as_raw_nonzero())).unwrap();
        let mut names = threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("comm")));
        names.any(|name| name.is_ok_and(|name| name == "dlock-dial\n"))
    };
    eventually("it connects", connects);
    waiter.signal(Signal::TERM);
    assert_eq!(waiter.end().expect(143).out, "");
    kit.server.signal(Signal::CONT);
    kit.expect_free();
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let kit = Kit::new();
    let mut command = Command::new("env");
    let shell = "echo in > in; while ! test -e go; do sleep 0.01; done; echo end";
    command.args(["--ignore-signal=HUP", env!("CARGO_BIN_EXE_dlock"), "run", "JOB", "x", "--", "sh", "-c", shell]);
    command.env("DLOCK_URL", kit.server.url()).current_dir(kit.home.path());
    let running = command.start();
    kit.line_of("in");
    running.signal(Signal::HUP);
    std::fs::write(kit.path("go"), "").unwrap();
    assert_eq!(running.end().expect(0).out, "end\n");
}

/// Without a terminal nobody would continue `dlock`, and a `dlock` that stands still renews nothing.
#[test]
fn without_a_terminal_stop_and_continue_reach_the_command_alone() {
    let kit = Kit::new();
    let mut command = Command::new("setsid");
    command.args(["-w", "env", "--default-signal", env!("CARGO_BIN_EXE_dlock"), "run", "JOB", "x", "--", "sh", "-c"]);
    command.arg("echo $PPID > dlock; echo $$ > pid; exec sleep 100");
    command.env("DLOCK_URL", kit.server.url()).current_dir(kit.home.path());
    let running = command.start();
    let (dlock, pid) = (kit.pid_of("dlock"), kit.pid_of("pid"));
    for (stop, signal) in [(dlock, Signal::TSTP), (pid, Signal::STOP)] {
        kill_process(stop, signal).unwrap();
        eventually("the command has stopped", || state(pid) == Some('T'));
        assert_ne!(state(dlock), Some('T'));
        kill_process(dlock, Signal::CONT).unwrap();
        eventually("the command goes on", || state(pid) == Some('S'));
    }
    kill_process(dlock, Signal::TERM).unwrap();
    running.end().expect(143);
    kit.expect_free();
}
