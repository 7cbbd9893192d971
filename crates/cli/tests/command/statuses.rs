//! Each outcome has a status of its own, and no lock is left after any of them.

use super::kit::{Kit, Start, bare};
use super::support::crew::eventually;
use super::support::free_port;
use super::support::sentinels::Service;
use rustix::process::Signal;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;

#[test]
fn the_status_is_that_of_the_command() {
    let kit = Kit::new();
    for code in [0, 1, 3, 64, 255] {
        let ended = kit.run(&[], &format!("exit {code}")).end().expect(code);
        assert_eq!(ended.err, "");
        kit.expect_free();
    }
}

#[test]
fn a_command_that_a_signal_has_ended_gives_128_and_its_number() {
    let kit = Kit::new();
    // 34 and more are real-time signals.
    for signal in [1, 2, 9, 15, 35] {
        kit.run(&[], &format!("kill -{signal} $$; sleep 100")).end().expect(128 + signal);
        kit.expect_free();
    }
}

#[test]
fn what_cannot_be_executed_is_told_as_shells_do() {
    let kit = Kit::new();
    fs::write(kit.path("text"), "no program").unwrap();
    fs::set_permissions(kit.path("text"), fs::Permissions::from_mode(0o644)).unwrap();
    for (command, code, said) in [("./text", 126, "Permission denied"), ("no-such-command", 127, "No such file")] {
        let ended = kit.dlock(&["run", "JOB", "x", "--", command]).end().expect(code);
        assert!(ended.err.starts_with("dlock: cannot execute") && ended.err.contains(command), "{ended:?}");
        assert!(ended.err.contains(said), "{ended:?}");
        kit.expect_free();
    }
}

#[test]
fn wrong_usage_is_64_and_says_what_to_do() {
    let kit = Kit::new();
    let rights = |words: &[&str], said: &str| {
        let ended = kit.dlock(words).end().expect(64);
        assert!(ended.err.starts_with("dlock: ") && ended.err.contains(said) && ended.out.is_empty(), "{ended:?}");
    };
    rights(&[], "requires a subcommand");
    rights(&["run", "JOB", "x"], "<COMMAND>");
    rights(&["run", "JOB", "--", "true"], "<TARGET>");
    rights(&["run", "JOB", "x", "--wait", "soon", "--", "true"], "soon");
    rights(&["run", "JOB", "x", "--wait", "1s", "--no-wait", "--", "true"], "--no-wait");
    rights(&["run", "JOB", "x", "--stop-signal", "TREM", "--", "true"], "TREM");
    rights(&["run", "JOB", "x", "--on-lost", "", "--", "true"], "--on-lost");
    rights(&["run", "JOB", "x", "--lease", "1ms", "--", "true"], "lease");
    rights(&["run", "", "x", "--", "true"], "lock type");
    rights(&["run", "--url", "http://h", "JOB", "x", "--", "true"], "invalid");
    kit.expect_free();
}

#[test]
fn a_lock_that_is_held_for_all_of_the_wait_is_65_and_names_the_holder() {
    let kit = Kit::new();
    let reason = &["--reason", "nightly export"];
    let holder = kit.run(reason, "echo in > in; read -r _").stdin(std::process::Stdio::piped()).start();
    kit.line_of("in");
    // Its process, and what it says, are known a moment later.
    eventually("the message names the holder, its host and the reason", || {
        let ended = kit.run(&["--no-wait"], "echo ran").end().expect(65);
        let who = format!(": dlock (pid {}) on ", holder.pid().as_raw_nonzero());
        ended.err.contains(&who) && ended.err.contains(" (nightly export): not acquired in time")
    });
    let other_status = ["--no-wait", "--not-acquired-status", "0"];
    for (options, status) in
        [(&["--no-wait"][..], 65), (&["--wait", "0s"], 65), (&["--wait", "200ms"], 65), (&other_status, 0)]
    {
        kit.run(options, "echo ran").end().expect(status).says(["is held by \""]).prints("");
    }
    // Nobody of them waits any more.
    assert_eq!(kit.waiting(), 0);
    holder.stop();
    kit.expect_free();
}

#[test]
fn a_waiting_dlock_gets_the_lock() {
    let kit = Kit::new();
    let holder = kit.run(&[], "echo in > in; while ! test -e go; do sleep 0.01; done").start();
    kit.line_of("in");
    let waiter = kit.run(&["--wait", "60s"], "echo $DLOCK_TOKEN").start();
    fs::write(kit.path("go"), "").unwrap();
    holder.end().expect(0);
    waiter.end().expect(0);
    kit.expect_free();
}

#[test]
fn a_server_that_cannot_be_reached_is_67() {
    let kit = Kit::new();
    let url = format!("redis://:secret@127.0.0.1:{}/", free_port());
    for options in [&["--no-wait"][..], &["--wait", "300ms"]] {
        let ended = kit.run(options, "echo ran").env("DLOCK_URL", &url).end().expect(67);
        assert!(ended.err.starts_with("dlock: ") && !ended.err.contains("secret") && ended.out.is_empty(), "{ended:?}");
    }
    // A server that is there and does not answer.
    kit.server.signal(Signal::STOP);
    for options in [&["--wait", "300ms"][..], &["--no-wait"]] {
        kit.run(options, "echo ran").end().expect(67);
    }
    kit.server.signal(Signal::CONT);
    kit.expect_free();
}

/// A nightly job that starts in an outage is run.
#[test]
fn a_server_that_is_away_is_waited_for_and_that_is_said_once() {
    let mut kit = Kit::new();
    kit.server.kill();
    for options in [&[][..], &["--wait", "1h"]] {
        let command = |words: &[&str], file: &str| {
            kit.dlock(words).stderr(fs::File::create(kit.path(file)).unwrap()).start_quietly()
        };
        let run = [&["run"], options, &["JOB", "x", "--", "true"]].concat();
        let waiting = [command(&run, "run"), command(&["watch", "--count", "1"], "watch")];
        for file in ["run", "watch"] {
            assert!(kit.line_of(file).contains("waiting for the server"));
        }
        // Without a server it goes on until a signal.
        let stopped = command(&run, "stopped");
        kit.line_of("stopped");
        stopped.stop();
        kit.server.restart();
        for (command, file) in waiting.into_iter().zip(["run", "watch"]) {
            command.end().expect(0);
            assert_eq!(fs::read_to_string(kit.path(file)).unwrap().lines().count(), 1, "it is said once");
        }
        kit.server.kill();
    }
}

#[test]
fn behind_sentinels_a_start_in_a_failover_is_run() {
    let mut service = Service::start();
    let home = tempfile::tempdir().unwrap();
    let old = service.named_by(0);
    service.wait_for_replicas(old);
    service.is_down_after(500);
    service.on(old).kill();
    let url = service.url();
    bare(home.path(), &["--url", &url, "run", "--wait", "1h", "JOB", "x", "--", "true"]).end().expect(0);
    assert_ne!(service.wait_for_another_master(old), old);
}

#[test]
fn a_login_or_a_right_that_is_denied_is_68() {
    let kit = Kit::new();
    kit.server
        .run::<String>(&["ACL", "SETUSER", "poor", "on", ">secret", "~*", "&*", "+@all", "-set", "-eval", "-evalsha"]);
    let url = |login: &str| kit.server.url().replace("//", &format!("//{login}@"));
    for login in ["poor:secret", "poor:wrong-secret", "nobody:secret"] {
        let ended = kit.run(&[], "echo ran").env("DLOCK_URL", url(login)).end().expect(68);
        assert!(!ended.err.contains("secret") && ended.out.is_empty(), "{ended:?}");
        // Who is not let in is not helped by rights.
        let (helps, misleads) = if login == "poor:secret" { ("rights", "password") } else { ("password", "rights") };
        assert!(ended.err.contains(helps) && !ended.err.contains(misleads), "{ended:?}");
    }
    kit.expect_free();
}

#[test]
fn a_key_that_is_something_else_is_69() {
    let kit = Kit::new();
    kit.server.run::<i64>(&["LPUSH", super::kit::KEY, "of others"]);
    kit.run(&[], "echo ran").end().expect(69).says([super::kit::KEY]).prints("");
    for whose in [&["--locker", "somebody-1"][..], &["--current", "--yes"]] {
        kit.dlock(&[&["break", "JOB", "x"], whose].concat()).end().expect(69).says([super::kit::KEY]);
    }
    assert_eq!(kit.server.run::<Vec<String>>(&["LRANGE", super::kit::KEY, "0", "-1"]), ["of others"]);
}

#[test]
fn a_start_with_sigchld_ignored_is_70() {
    let kit = Kit::new();
    let mut command = std::process::Command::new("env");
    command.args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_dlock"), "run", "JOB", "x", "--", "true"]);
    command.env("DLOCK_URL", kit.server.url()).end().expect(70).says(["--default-signal=CHLD"]);
}

/// In the `/proc` of another PID namespace the numbers are those of strangers, which `dlock` would end with the command. Where the system lets nobody
/// make a namespace, nothing is judged.
#[test]
fn a_proc_that_is_missing_or_anothers_is_70() {
    let kit = Kit::new();
    let inside = ["--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"];
    let in_namespace = |options: &[&str], words: &[&str]| {
        let mut command = std::process::Command::new("unshare");
        command.args(inside).args(options).args(words).env("DLOCK_URL", kit.server.url()).env("HOME", kit.home.path());
        command
    };
    if !in_namespace(&[], &["true"]).status().is_ok_and(|status| status.success()) {
        let _ = writeln!(io::stderr(), "SKIPPED: no namespaces of processes here");
        return;
    }
    let run = [env!("CARGO_BIN_EXE_dlock"), "run", "JOB", "x", "--", "true"];
    let hidden = [&["sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh"][..], &run].concat();
    for (words, said) in [(&run[..], "/proc belongs to another PID namespace"), (&hidden, "mount a /proc")] {
        in_namespace(&[], words).end().expect(70).says([said]);
    }
    in_namespace(&["--mount-proc"], &run).end().expect(0);
}

#[test]
fn the_url_comes_from_the_argument_else_the_variable_else_the_file() {
    let kit = Kit::new();
    let (good, bad) = (kit.server.url(), format!("redis://127.0.0.1:{}/", free_port()));
    let run = ["run", "JOB", "x", "--", "true"];
    let plain = || bare(kit.home.path(), &run);
    plain().end().expect(64).says(["no server", ".config/dlock/config"]);

    fs::create_dir_all(kit.path(".config/dlock")).unwrap();
    fs::write(kit.path(".config/dlock/config"), format!("# ours\nurl = {good}\n")).unwrap();
    plain().end().expect(0);
    let once = || bare(kit.home.path(), &["run", "--no-wait", "JOB", "x", "--", "true"]);
    once().env("DLOCK_URL", &bad).end().expect(67);
    bare(kit.home.path(), &["--url", &good, "run", "JOB", "x", "--", "true"]).env("DLOCK_URL", &bad).end().expect(0);

    fs::create_dir_all(kit.path("xdg/dlock")).unwrap();
    fs::write(kit.path("xdg/dlock/config"), "\nurl : redis://:secret@h\n").unwrap();
    let ended = plain().env("XDG_CONFIG_HOME", kit.path("xdg")).end().expect(64);
    assert!(ended.err.contains("xdg/dlock/config, line 2") && !ended.err.contains("secret"), "{ended:?}");
    // A URL that cannot be used is told to be that of its place.
    fs::write(kit.path("xdg/dlock/config"), "url = nonsense://h\n").unwrap();
    let of_file = format!("dlock: {}: invalid URL ", kit.path("xdg/dlock/config").display());
    for (variable, options, begins) in [
        ("", &[][..], &*of_file),
        ("nonsense://h", &[], "dlock: DLOCK_URL: invalid URL "),
        ("nonsense://h", &["--url", "nonsense://h"], "dlock: invalid URL "),
    ] {
        let mut command = bare(kit.home.path(), &[options, &run].concat());
        let ended = command.env("XDG_CONFIG_HOME", kit.path("xdg")).env("DLOCK_URL", variable).end().expect(64);
        assert!(ended.err.starts_with(begins), "{ended:?}");
    }
    kit.expect_free();
}

#[test]
fn help_names_each_status() {
    let kit = Kit::new();
    let ended = kit.dlock(&["run", "--help"]).end().expect(0);
    for status in 64..=70 {
        assert!(ended.out.contains(&format!("  {status}   ")), "{status}: {}", ended.out);
    }
    assert!(ended.out.contains("126  ") && ended.out.contains("127  "), "{}", ended.out);
    assert!(!ended.out.contains("--launch-command"), "{}", ended.out);
    kit.dlock(&["--version"]).end().expect(0);
}
