//! What the command reads, writes and is given; what `dlock` itself writes where nobody can read it.

use super::kit::{KEY, Killed, Kit, Start, with_default_signals};
use super::support::crew::eventually;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

#[test]
fn stdin_goes_to_the_command() {
    let kit = Kit::new();
    let mut running = kit.run(&[], "cat; echo end").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let bytes = vec![b'x'; 200_000];
    let mut stdin = running.stdin.take().unwrap();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent));
    let out = running.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(out.status.success());
    assert_eq!(out.stdout, [&bytes[..], b"end\n"].concat());
}

#[test]
fn arguments_are_untouched() {
    let kit = Kit::new();
    let words: [&[u8]; 6] = [b"--wait", b"", b"a b", b"\xff\xfe", b"--", b"$HOME *"];
    let mut command = kit.dlock(&["run", "JOB", "x", "--", "printf", "[%s]"]);
    command.args(words.map(OsStr::from_bytes));
    let out = command.output().unwrap();
    assert!(out.status.success());
    assert_eq!(out.stdout, b"[--wait][][a b][\xff\xfe][--][$HOME *]");
}

#[test]
fn the_command_knows_the_key_and_the_token() {
    let kit = Kit::new();
    let tokens: Vec<u64> = (0..2)
        .map(|_| {
            let ended = kit.run(&[], "echo $DLOCK_KEY $DLOCK_TOKEN").end().expect(0);
            let words: Vec<_> = ended.out.split_whitespace().map(str::to_owned).collect();
            assert_eq!(words[0], KEY);
            words[1].parse().unwrap()
        })
        .collect();
    assert!(0 < tokens[0] && tokens[0] < tokens[1], "{tokens:?}");
}

/// A program that is told to end by SIGTERM must not have it blocked, nor ignored.
#[test]
fn the_command_has_the_signals_and_descriptors_that_it_has_without_dlock() {
    let kit = Kit::new();
    let look = "grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd | tr '\\n' ' '";
    let without = with_default_signals("sh").args(["-c", look]).stdin(Stdio::null()).end();
    let with = kit.run(&[], look).end().expect(0);
    assert_eq!(with.out, without.out);
}

#[test]
fn the_command_has_a_process_group_of_its_own() {
    let kit = Kit::new();
    let ended = kit.run(&[], "echo $$ $(cut -d' ' -f5 /proc/$$/stat)").end().expect(0);
    let words: Vec<_> = ended.out.split_whitespace().collect();
    assert_eq!(words[0], words[1]);
}

/// What was asked for and cannot be written is a failure. A reader that has gone has read enough.
#[test]
fn help_that_does_not_fit_on_the_disk_is_no_success() {
    let kit = Kit::new();
    for words in [&["--help"][..], &["--version"], &["run", "--help"]] {
        let ends = |stdout: Stdio| {
            kit.dlock(words).stdout(stdout).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap()
        };
        let ended = ends(full().into());
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code() == Some(70) && said.contains("cannot write the output"), "{words:?}: {ended:?}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = ends(writer.into());
        assert!(ended.status.success() && ended.stderr.is_empty(), "{words:?}: {ended:?}");
    }
}

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// Messages that nobody can read change no status.
#[test]
fn messages_that_nobody_can_read_change_no_status() {
    let kit = Kit::new();
    let status = |shell: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", shell]).env("DLOCK", env!("CARGO_BIN_EXE_dlock")).env("DLOCK_URL", kit.server.url());
        command.current_dir(kit.home.path()).end().status.code()
    };
    for to in ["2>&-", "2>/dev/full", ">&- 2>&-", "<&- >&- 2>&-"] {
        assert_eq!(status(&format!("\"$DLOCK\" {to}")), Some(64), "{to}");
        assert_eq!(status(&format!("\"$DLOCK\" run JOB x {to} -- no-such-command")), Some(127), "{to}");
        assert_eq!(status(&format!("\"$DLOCK\" run JOB x {to} -- sh -c 'exit 9'")), Some(9), "{to}");
    }
    kit.expect_free();
    // The command's own trouble is its own.
    let ended = kit.run(&[], "echo much || exit 5").stdout(full()).stderr(Stdio::null()).status().unwrap();
    assert_eq!(ended.code(), Some(5));
}

#[test]
fn what_the_command_leaves_in_a_file_is_all_there() {
    let kit = Kit::new();
    let file = File::create(kit.path("out")).unwrap();
    let status = kit.run(&[], "seq 100000").stdout(file).status().unwrap();
    assert!(status.success());
    assert!(fs::read_to_string(kit.path("out")).unwrap().ends_with("\n100000\n"));
}

/// All that print what they were asked for.
const PRINTING: [&[&str]; 8] = [
    &["ls"],
    &["ls", "--json"],
    &["show", "JOB", "x"],
    &["watch"],
    &["watch", "--json"],
    &["doctor"],
    &["completions", "bash"],
    &["man", "run"],
];

#[test]
fn a_full_disk_is_told_with_a_status_of_its_own() {
    let kit = Kit::new();
    let said = |words: &[&str]| {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut dlock = kit.dlock(words);
        dlock.stdout(full).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap()
    };
    kit.server.run::<()>(&["SET", KEY, "host-1-ff-1"]);
    for words in PRINTING {
        let ended = said(words);
        assert_eq!(ended.status.code(), Some(70), "{words:?}: {ended:?}");
        let text = String::from_utf8_lossy(&ended.stderr);
        assert!(text.starts_with("dlock: cannot write the output: No space left"), "{words:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{words:?}: {text}");
        let help = kit.dlock(&[words[0], "--help"]).end().expect(0).out;
        assert!(help.contains("  70   "), "{words:?}: {help}");
    }
    // The break itself has happened.
    let ended = said(&["break", "JOB", "x", "--locker", "host-1-ff-1"]);
    assert!(ended.status.code() == Some(70) && !kit.is_locked(), "{ended:?}");
}

/// `dlock watch | head -1`: without a reader there is nothing to go on for.
#[test]
fn a_reader_that_has_gone_ends_it_without_a_word() {
    let kit = Kit::new();
    for words in PRINTING {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let err = File::create(kit.path("err")).unwrap();
        let mut running = Killed(kit.dlock(words).stdout(writer).stderr(err).spawn().unwrap());
        let mut status = None;
        eventually(&format!("the end of {words:?}"), || {
            status = running.0.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success(), "{words:?}: {status:?}");
        assert_eq!(fs::read_to_string(kit.path("err")).unwrap(), "", "{words:?}");
    }
}

#[test]
fn a_verbose_run_says_what_goes_on() {
    let kit = Kit::new();
    let holder = kit.run(&["-v"], "echo in > in; while ! test -e go; do sleep 0.01; done").start();
    kit.line_of("in");
    let waiter = kit
        .run(&["--verbose", "--at-least", "1s"], "exit 3")
        .stderr(File::create(kit.path("said")).unwrap())
        .start_quietly();
    eventually("it says for whom it waits", || {
        fs::read_to_string(kit.path("said")).unwrap().starts_with("dlock: waiting for \"DLOCK_JOB_x\" for 1s")
    });
    fs::write(kit.path("go"), "").unwrap();
    let said = holder.end().expect(0).err;
    let begins =
        ["\"DLOCK_JOB_x\" is acquired after ", "the command has ended after ", "\"DLOCK_JOB_x\" is released\n"];
    let lines: Vec<_> = said.split_inclusive('\n').collect();
    assert_eq!(lines.len(), begins.len(), "{said}");
    for (line, begin) in lines.iter().zip(begins) {
        assert!(line.starts_with(&format!("dlock: {begin}")), "{said}");
    }
    assert!(lines[1].ends_with(": status 0\n") && lines[0].contains(", with token "), "{said}");
    waiter.end().expect(3);
    let said = fs::read_to_string(kit.path("said")).unwrap();
    assert!(said.lines().next().unwrap().contains(": held by \""), "{said}");
    assert!(said.contains(": status 3\n") && said.contains("is released, and kept from everybody until 1s"), "{said}");
}

#[test]
fn messages_are_json_documents_if_that_is_wanted() {
    let kit = Kit::new();
    kit.server.run::<()>(&["ACL", "SETUSER", "default", "-scan"]);
    for (words, status, level) in [
        (&["--log-format", "json", "run", "-v", "JOB", "x", "--", "true"][..], 0, "info"),
        (&["run", "JOB", "x", "--log-format=json", "--", "/not/there"], 127, "error"),
        (&["run", "JOB", "x", "--grace", "1h", "--log-format=json", "--", "true"], 0, "warn"),
        (&["--log-format", "json", "break", "JOB", "x", "--locker", "l"], 1, "error"),
        (&["--log-format", "json", "fly"], 64, "error"),
        (&["--log-format", "json", "ls"], 68, "error"),
    ] {
        let ended = kit.dlock(words).end().expect(status);
        assert!(!ended.err.is_empty(), "{words:?}");
        for line in ended.err.lines() {
            let line: serde_json::Value =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
            let mut fields: Vec<_> = line.as_object().unwrap().keys().map(String::as_str).collect();
            fields.retain(|field| *field != "lock");
            assert_eq!(fields, ["level", "message", "pid", "program", "time"], "{line}");
            assert_eq!(line["level"], level, "{line}");
            assert_eq!(line["lock"].as_str(), words.contains(&"x").then_some(KEY), "{line}");
            assert!(line["pid"].is_u64() && line["time"].as_str().unwrap().ends_with('Z'), "{line}");
        }
    }
    // Who has the lock is in fields of its own.
    let _holder = kit.holder(&["--reason", "nightly"]);
    let mut line = serde_json::Value::Null;
    eventually("the holder has its record, and answers", || {
        let ended = kit.run(&["--log-format", "json", "--no-wait"], "true").end().expect(65);
        line = serde_json::from_str(&ended.err).unwrap();
        line["reason"] == "nightly" && line["host"].is_string()
    });
    assert_eq!(line["holder"].as_str(), kit.inspection().holder.as_deref(), "{line}");
    // Those of the command are its own.
    let ended =
        kit.dlock(&["run", "JOB", "y", "--log-format=json", "--", "sh", "-c", "echo plain >&2"]).end().expect(0);
    assert_eq!(ended.err, "plain\n");
    kit.dlock(&["--log-format", "xml", "ls"]).end().expect(64);
}
