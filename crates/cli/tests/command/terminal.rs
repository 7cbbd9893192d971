//! In a terminal: a shell with job control, keys, and programs that ask for the foreground.

use super::kit::{Kit, lives, state, with_default_signals};
use super::support::crew::{HANG, eventually};
use rexpect::session::{PtySession, spawn_command};
use rustix::process::{Signal, kill_process};
use std::process::Command;

const PROMPT: &str = "prompt>";

/// A server, and an interactive shell in a terminal of its own.
fn terminal() -> (Kit, PtySession) {
    let kit = Kit::new();
    let session = shell(&kit);
    (kit, session)
}

fn shell(kit: &Kit) -> PtySession {
    let mut bash = with_default_signals("bash");
    bash.args(["--norc", "--noprofile", "--noediting", "-i"]);
    bash.env("PS1", PROMPT)
        .env("DLOCK_URL", kit.server.url())
        .env("HOME", kit.home.path())
        .current_dir(kit.home.path());
    bash.env("dlock", env!("CARGO_BIN_EXE_dlock"));
    // What decides about colours.
    for name in ["CI", "CLICOLOR", "CLICOLOR_FORCE", "NO_COLOR"] {
        bash.env_remove(name);
    }
    let mut session = spawn_command(bash, Some(HANG.as_millis().try_into().unwrap())).unwrap();
    session.exp_string(PROMPT).unwrap();
    // At its end it is killed, because an interactive shell ignores SIGTERM. The kernel then hangs up the terminal.
    session.process_mut().set_kill_timeout(Some(1));
    session
}

/// Types a line, and returns what comes until the next prompt.
#[track_caller]
fn type_line(session: &mut PtySession, line: &str) -> String {
    session.send_line(line).unwrap();
    session.exp_string(PROMPT).unwrap()
}

/// Types a line, and waits for a text.
#[track_caller]
fn answers(session: &mut PtySession, line: &str, text: &str) {
    session.send_line(line).unwrap();
    session.exp_string(text).unwrap();
}

/// Presses a key with Control, and returns what comes until the next prompt.
#[track_caller]
fn press(session: &mut PtySession, key: char) -> String {
    session.send_control(key).unwrap();
    session.exp_string(PROMPT).unwrap()
}

/// Has a job of the shell hold the lock.
fn hold(kit: &Kit, session: &mut PtySession) {
    type_line(session, "$dlock run JOB x -- sh -c 'echo in > in; exec sleep 100' 2>/dev/null &");
    kit.line_of("in");
}

#[test]
fn ctrl_c_ends_the_command_and_dlock() {
    let (kit, mut session) = terminal();
    session.send_line("$dlock run JOB x -- sh -c 'echo $$ > pid; exec sleep 100'; echo not reached").unwrap();
    let group = kit.pid_of("pid");
    let said = press(&mut session, 'c');
    assert!(!said.contains("not reached"), "{said}");
    assert!(type_line(&mut session, "echo status $?").contains("status 130"));
    assert!(!lives(group));
    kit.expect_free();
}

#[test]
fn ctrl_c_ends_a_script_that_runs_dlock() {
    let (kit, mut session) = terminal();
    std::fs::write(kit.path("script"), "$dlock run JOB x -- sh -c 'echo $$ > pid; exec sleep 100'\necho not reached\n")
        .unwrap();
    session.send_line("bash script").unwrap();
    kit.pid_of("pid");
    let said = press(&mut session, 'c');
    assert!(!said.contains("not reached"), "{said}");
    kit.expect_free();
}

#[test]
fn ctrl_c_ends_the_wait() {
    let (kit, mut session) = terminal();
    hold(&kit, &mut session);
    session.send_line("$dlock run JOB x -- true").unwrap();
    eventually("it waits", || kit.waiting() == 1);
    press(&mut session, 'c');
    assert!(type_line(&mut session, "echo status $?").contains("status 130"));
    type_line(&mut session, "kill %1; wait %1");
    kit.expect_free();
}

#[test]
fn ctrl_c_ends_a_loop_whose_dlock_waits() {
    let (mut kit, mut session) = terminal();
    hold(&kit, &mut session);
    let rounds = "for i in 1 2 3; do $dlock run JOB x -- true; echo st $?; done; echo not reached";
    for is_away in [false, true] {
        if is_away {
            type_line(&mut session, "kill %1; wait %1");
            kit.server.kill();
        }
        session.send_line(rounds).unwrap();
        if is_away {
            session.exp_string("waiting for the server").unwrap();
        } else {
            eventually("it waits", || kit.waiting() == 1);
        }
        let said = press(&mut session, 'c');
        assert!(!said.contains("st 130") && !said.contains("not reached"), "{said}");
        assert!(type_line(&mut session, "echo status $?").contains("status 130"));
    }
}

#[test]
fn ctrl_z_stops_both_and_fg_and_bg_continue_them() {
    let (kit, mut session) = terminal();
    // It starts no process: a shell in the middle of a vfork stops late, with and without `dlock`.
    let work = "echo $PPID > dlock; echo $$ > pid; read -r _ < go; read -r line; echo read $line";
    assert!(Command::new("mkfifo").arg(kit.path("go")).status().unwrap().success());
    session.send_line(&format!("$dlock run JOB x -- sh -c '{work}'")).unwrap();
    let (dlock, pid) = (kit.pid_of("dlock"), kit.pid_of("pid"));
    for _ in 0..2 {
        session.send_control('z').unwrap();
        session.exp_string("Stopped").unwrap();
        session.exp_string(PROMPT).unwrap();
        assert_eq!((state(dlock), state(pid)), (Some('T'), Some('T')));
        session.send_line("fg").unwrap();
        eventually("both go on", || state(dlock) == Some('S') && state(pid) == Some('S'));
    }
    press(&mut session, 'z');
    type_line(&mut session, "bg");
    eventually("both go on", || state(dlock) == Some('S') && state(pid) == Some('S'));
    // In the background it must not read.
    std::fs::write(kit.path("go"), "\n").unwrap();
    // `fg` continues nothing that the shell believes to run. It learns of the stop when all threads of `dlock` stand still.
    eventually("it is stopped when it reads", || type_line(&mut session, "jobs").contains("Stopped"));
    assert_eq!((state(dlock), state(pid)), (Some('T'), Some('T')));
    session.send_line("fg").unwrap();
    eventually("it reads", || state(pid) == Some('S'));
    answers(&mut session, "a line", "read a line");
    session.exp_string(PROMPT).unwrap();
    assert!(type_line(&mut session, "echo status $?").contains("status 0"));
    kit.expect_free();
}

/// The shell takes the terminal when `dlock` stops, and whoever continues `dlock` alone gives it nothing.
#[test]
fn a_dlock_that_is_stopped_and_continued_alone_leaves_the_terminal_to_the_shell() {
    let (kit, mut session) = terminal();
    let work = "echo $PPID > dlock; echo $$ > pid; until [ -e go ]; do sleep 0.01; done";
    session.send_line(&format!("$dlock run JOB x -- sh -c '{work}'")).unwrap();
    let dlock = kit.pid_of("dlock");
    kit.pid_of("pid");
    kill_process(dlock, Signal::STOP).unwrap();
    session.exp_string("Stopped").unwrap();
    session.exp_string(PROMPT).unwrap();
    kill_process(dlock, Signal::CONT).unwrap();
    session.send_line("sh -c 'echo $$ > reader; read -r line; echo read $line'").unwrap();
    kit.pid_of("reader");
    std::fs::write(kit.path("go"), "").unwrap();
    eventually("dlock has ended", || matches!(state(dlock), None | Some('Z')));
    answers(&mut session, "a line", "read a line");
    session.exp_string(PROMPT).unwrap();
    kit.expect_free();
}

#[test]
fn an_interactive_program_has_the_terminal() {
    let (kit, mut session) = terminal();
    answers(&mut session, "$dlock run JOB x -- env PS1=inner: bash --norc --noprofile --noediting -i", "inner:");
    // Its own job control works.
    session.send_line("sh -c 'echo > ready; exec sleep 100'").unwrap();
    kit.line_of("ready");
    session.send_control('z').unwrap();
    session.exp_string("Stopped").unwrap();
    session.exp_string("inner:").unwrap();
    session.send_line("echo go on; fg").unwrap();
    session.exp_string("go on").unwrap();
    session.exp_string("exec sleep").unwrap();
    session.send_control('c').unwrap();
    session.exp_string("inner:").unwrap();
    session.send_line("exit 5").unwrap();
    session.exp_string(PROMPT).unwrap();
    assert!(type_line(&mut session, "echo status $?").contains("status 5"));
    kit.expect_free();
}

#[test]
fn the_other_programs_of_a_pipeline_keep_the_terminal() {
    let (kit, mut session) = terminal();
    // The second program reads from the terminal, as a pager does.
    session
        .send_line("$dlock run JOB x -- echo word | sh -c 'read -r a; read -r b < /dev/tty; echo both $a $b'")
        .unwrap();
    eventually("the command has ended", || {
        kit.server.run::<i64>(&["EXISTS", "DLOCK:1:fence"]) == 1 && !kit.is_locked()
    });
    answers(&mut session, "key", "both word key");
    session.exp_string(PROMPT).unwrap();
    // The first one asks for the terminal, and gets it.
    session.send_line("$dlock run JOB x -- sh -c 'read -r a < /dev/tty; echo got $a' | cat").unwrap();
    answers(&mut session, "more", "got more");
    session.exp_string(PROMPT).unwrap();
}

#[test]
fn the_end_of_the_terminal_ends_the_command() {
    let (kit, mut session) = terminal();
    session.send_line("$dlock run JOB x -- sh -c 'echo $$ > pid; while :; do sleep 0.01; done'").unwrap();
    let group = kit.pid_of("pid");
    drop(session);
    eventually("the command is gone", || !lives(group));
    eventually("the lock is free", || !kit.is_locked());
}

#[test]
fn colours_are_for_terminals_and_not_with_no_color() {
    let (_kit, mut session) = terminal();
    let plain = |shown: &str| shown.contains("fine    connection");
    let coloured = type_line(&mut session, "TERM=xterm $dlock doctor");
    assert!(coloured.contains("\u{1b}[") && !plain(&coloured), "{coloured}");
    assert!(plain(&type_line(&mut session, "TERM=xterm NO_COLOR=1 $dlock doctor")));
    assert!(plain(&type_line(&mut session, "TERM=dumb $dlock doctor")));
}

#[test]
fn a_list_is_watched_in_place() {
    let (_kit, mut session) = terminal();
    let shown = type_line(&mut session, "TERM=xterm $dlock watch --count 2 --interval 1ms");
    assert_eq!(shown.matches("\u{1b}[H").count(), 2, "{shown:?}");
    assert!(shown.contains("LOCK") && shown.contains("0 locks"), "{shown:?}");
}

/// What was shown: the session takes each byte for a character.
fn utf8(shown: &str) -> String {
    String::from_utf8(shown.chars().map(|byte| u8::try_from(byte).unwrap()).collect()).unwrap()
}

#[test]
fn help_is_as_wide_as_the_terminal() {
    let (_kit, mut session) = terminal();
    for columns in [70, 80] {
        type_line(&mut session, &format!("stty rows 40 cols {columns}"));
        for of in ["", "run", "ls", "doctor", "break"] {
            let shown = utf8(&type_line(&mut session, &format!("$dlock {of} --help")));
            let longest = shown.lines().skip(1).map(|line| line.trim_end().chars().count()).max().unwrap();
            assert!((30..=columns).contains(&longest), "{columns}, {of:?}: {longest}: {shown}");
        }
    }
}

#[test]
fn a_narrow_watch_keeps_the_lease_and_the_waiters() {
    let kit = Kit::new();
    let key = "DLOCK_EXPORT_of_all_the_invoices_of_a_customer_with_a_long_name";
    kit.server.run::<()>(&["SET", key, "build-host-17.example.org-4711-0123456789abcdef01234567-42", "PX", "600000"]);
    let mut session = shell(&kit);
    type_line(&mut session, "stty rows 40 cols 80");
    let shown = utf8(&type_line(&mut session, "TERM=xterm $dlock watch --count 1"));
    let line =
        |word: &str| shown.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("{word}: {shown:?}"));
    assert!(line("LOCK").contains("LEASE LEFT  WAITING"), "{shown:?}");
    let (row, _) = line("DLOCK_EXPORT").split_once('\u{1b}').unwrap();
    assert!(row.chars().count() <= 80 && row.ends_with(" 0") && row.contains("9m 5"), "{row:?}");
    assert!(row.contains("long_name  ") && row.contains("-42  "), "both ends: {row:?}");
}

#[test]
fn a_break_of_the_current_holder_asks() {
    let (kit, mut session) = terminal();
    hold(&kit, &mut session);
    for (answer, status) in [("", 1), ("n", 1), ("yes", 0)] {
        session.send_line("$dlock break JOB x --current 2>said; echo status $?").unwrap();
        let page = session.exp_string("[y/N] ").unwrap();
        assert!(page.contains("  held by ") && page.contains("Take it from "), "{page}");
        let said = type_line(&mut session, answer);
        assert!(said.contains(&format!("status {status}")), "{answer}: {said}");
    }
    eventually("it is free", || !kit.is_locked());
}
