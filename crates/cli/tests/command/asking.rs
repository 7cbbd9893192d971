//! `dlock ls`, `show`, `watch` and `break`, as an operator uses them.

use super::kit::{KEY, Killed, Kit, KitOn, Site, Start, on_each_site, with_default_signals};
use super::places::Watching;
use super::support::crew::eventually;
use redis_dlock::{DLockConfig, DLockGenerator};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::fs;
use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The locker of the lock's holder.
fn locker<S: Site>(kit: &KitOn<S>) -> String {
    kit.inspection().holder.unwrap()
}

on_each_site!(
    locks_are_listed_by_name_for_people_and_for_programs,
    who_holds_and_who_waits_is_shown,
    a_run_that_nobody_waits_for_is_shown_with_its_command,
    a_hold_is_shown_with_the_name_that_the_program_gave_it,
    a_lock_is_broken_if_the_locker_is_the_one_that_was_seen,
    the_list_is_watched_through_an_outage,
    a_server_that_is_not_there_has_a_status_of_its_own,
);

fn locks_are_listed_by_name_for_people_and_for_programs<S: Site>(kit: &mut KitOn<S>) {
    let none = kit.dlock(&["ls"]).end().expect(0);
    assert_eq!(none.out.lines().count(), 1, "{none:?}");
    for target in ["b", "a"] {
        kit.server.hold(&format!("DLOCK_JOB_{target}"), &format!("host-1-ff-{target}"));
    }
    kit.server.hold("DLOCK_OTHER_c", "line\nbreak");
    let all = kit.dlock(&["ls"]).end().expect(0);
    let lines: Vec<_> = all.out.lines().map(|line| line.split_whitespace().take(2).collect::<Vec<_>>()).collect();
    let expected = [
        ["LOCK", "HOLDER"],
        ["DLOCK_JOB_a", "host-1-ff-a"],
        ["DLOCK_JOB_b", "host-1-ff-b"],
        ["DLOCK_OTHER_c", "line\\nbreak"],
    ];
    assert_eq!(lines, expected, "{}", all.out);
    let some = kit.dlock(&["ls", "JOB_?", "--json"]).end().expect(0);
    let documents: Vec<_> = some.out.lines().map(json).collect();
    assert_eq!(documents.len(), 2, "{some:?}");
    assert_eq!((&documents[0]["key"], &documents[0]["locker"]), (&"DLOCK_JOB_a".into(), &"host-1-ff-a".into()));
    let left = documents[0]["remaining_ms"].as_u64();
    let is_told = kit.server.processor().limits().remaining_known;
    assert!(left.is_some() == is_told && left.is_none_or(|left| left > 0 && left <= 600_000), "{some:?}");
    assert_eq!(documents[0]["waiting"], 0, "{some:?}");
    assert_eq!(kit.dlock(&["ls", "NONE*", "--json"]).end().expect(0).out, "");
}

#[test]
fn ten_thousand_locks_are_listed_without_keys() {
    let kit = Kit::new();
    let fill = "for n = 1, 10000 do redis.call('SET', 'DLOCK_MANY_' .. n, 'host-1-ff-' .. n, 'PX', 600000) end";
    kit.server.run::<()>(&["EVAL", fill, "0"]);
    let ended = kit.dlock(&["ls", "MANY_*"]).end().expect(0);
    assert_eq!(ended.out.lines().count(), 10_001);
    let commands: String = kit.server.run(&["INFO", "commandstats"]);
    assert!(!commands.contains("cmdstat_keys:") && commands.contains("cmdstat_scan:"), "{commands}");
}

fn who_holds_and_who_waits_is_shown<S: Site>(kit: &mut KitOn<S>) {
    let free = kit.dlock(&["show", "JOB", "x"]).end().expect(0);
    assert_eq!(free.out, "DLOCK_JOB_x\n  nobody holds it\n");
    let holder = kit.holder(&["--reason", "nightly export"]);
    let waiter = kit.queued(&["--reason", "the next one"], "true");
    let mut shown = Value::Null;
    eventually("both have answered", || {
        shown = json(&kit.dlock(&["show", "JOB", "x", "--json"]).end().expect(0).out);
        !shown["holder"]["told"].is_null()
            && !shown["waiting"][0]["told"].is_null()
            && !shown["holder"]["client"].is_null()
    });
    assert_eq!((&shown["key"], &shown["holder"]["locker"]), (&"DLOCK_JOB_x".into(), &locker(kit).into()));
    assert_eq!(shown["holder"]["told"]["reason"], "nightly export");
    assert_eq!(shown["holder"]["client"]["pid"], holder.pid().as_raw_nonzero().get());
    assert_eq!((&shown["waiting"][0]["told"]["reason"], &shown["queue_length"]), (&"the next one".into(), &1.into()));
    let words = ["held by ", "reason: nightly export", "has held it for", "1. waits: ", "reason: the next one"];
    let page = kit.dlock(&["show", "JOB", "x"]).end().expect(0).shows(words).out;
    let is_told = kit.server.processor().limits().remaining_known;
    assert_eq!(page.contains("the server keeps it for"), is_told, "{page}");
    drop(waiter);
    drop(holder);
}

fn a_run_that_nobody_waits_for_is_shown_with_its_command<S: Site>(kit: &mut KitOn<S>) {
    let holder = kit.run(&[], "echo $DLOCK_TOKEN > token; sleep 100; exit").start();
    let token = kit.line_of("token");
    let mut shown = Value::Null;
    eventually("it has answered", || {
        shown = json(&kit.dlock(&["show", "JOB", "x", "--json"]).end().expect(0).out);
        !shown["holder"]["told"].is_null()
    });
    let told = &shown["holder"]["told"];
    assert_eq!(told["reason"], "sh -c echo $DLOCK_TOKEN > token; sleep 100; exit");
    assert_eq!((&told["thread"], told["token"].to_string()), (&"main".into(), token.clone()));
    assert!(told["thread_id"].is_u64() && told["held_for_ms"].is_u64(), "{shown:#}");
    let words = ["reason: sh -c echo", "thread main (", ") has held it for ", &format!(", token {token}\n")];
    kit.dlock(&["show", "JOB", "x"]).end().expect(0).shows(words);
    holder.stop();
    kit.expect_free();
}

fn a_hold_is_shown_with_the_name_that_the_program_gave_it<S: Site>(kit: &mut KitOn<S>) {
    let generator = DLockGenerator::new(kit.server.processor()).unwrap();
    let config = DLockConfig::new("JOB", "x").with_reason("a session").with_holder_name("session 17");
    let hold = generator.generate_with(config).unwrap().hold().unwrap();
    let mut page = String::new();
    eventually("it has answered", || {
        page = kit.dlock(&["show", "JOB", "x"]).end().expect(0).out;
        page.contains("has held it")
    });
    assert!(page.contains("    session 17 has held it for "), "{page}");
    hold.release().unwrap();
}

fn a_lock_is_broken_if_the_locker_is_the_one_that_was_seen<S: Site>(kit: &mut KitOn<S>) {
    let holder = kit.holder(&[]);
    let wrong = kit.dlock(&["break", "JOB", "x", "--locker", "somebody-1"]).end().expect(1);
    assert!(wrong.err.contains("somebody-1 does not hold the lock") && wrong.err.contains(&locker(kit)), "{wrong:?}");
    let next = kit.queued(&[], "echo next");
    // As of a variable of a script that is not set.
    assert!(kit.dlock(&["break", "JOB", "x", "--locker", ""]).end().expect(64).err.contains("--locker"));
    let words = ["break", "JOB", "x", "--locker", &locker(kit), "--reason", "hangs since noon"];
    kit.dlock(&words).end().expect(0).shows(["taken from", "has it now; waiting: 0"]);
    holder.end().expect(66).says(["hangs since noon"]);
    assert_eq!(next.end().expect(0).out, "next\n");
    kit.dlock(&words).end().expect(1).says(["nobody does"]);
    // As it is listed, where that is not what it is.
    kit.server.hold(KEY, "line\none");
    let seen = kit.dlock(&["ls"]).end().expect(0).out;
    assert!(seen.contains(" line\\none "), "{seen}");
    kit.dlock(&["break", "JOB", "x", "--locker", "line\\two"]).end().expect(1);
    kit.dlock(&["break", "JOB", "x", "--locker", "line\\none"]).end().expect(0);
    for words in [&["break", "JOB", "x"][..], &["break", "JOB", "x", "--yes"]] {
        let ended = kit.dlock(words).end().expect(64);
        for usage in ["--locker <LOCKER> <TYPE> <TARGET>\n", "--current [--yes] <TYPE> <TARGET>\n"] {
            assert!(ended.err.contains(&format!("dlock break [OPTIONS] {usage}")), "{ended:?}");
        }
    }
}

#[test]
fn the_current_holder_is_broken_without_its_locker() {
    let kit = Kit::new();
    let words = ["break", "JOB", "x", "--current", "--yes"];
    assert!(kit.dlock(&words).end().expect(1).err.contains("nobody holds the lock"));
    let holder = kit.holder(&[]);
    kit.dlock(&words[..4]).end().expect(64).says(["--yes"]);
    kit.dlock(&["break", "JOB", "x", "--current", "--locker", "l"]).end().expect(64);
    kit.dlock(&words).end().expect(0).shows(["it is free"]);
    holder.end().expect(66);
}

#[test]
fn a_lock_is_waited_for_until_nobody_holds_it() {
    let mut kit = Kit::new();
    kit.dlock(&["wait", "JOB", "x"]).end().expect(0);
    let options = ["--reason", "export", "--once-every", "1h"];
    let holder = kit.run(&options, "echo in > in; while ! test -e go; do sleep 0.01; done").start();
    kit.line_of("in");
    eventually("the message names the holder", || {
        let ended = kit.dlock(&["wait", "JOB", "x", "--timeout", "500ms"]).end();
        ended.status.code() == Some(65)
            && ended.err.contains("is still held by \"")
            && ended.err.contains(": dlock (pid ")
            && ended.err.ends_with(" (export)\n")
    });
    eventually("the age is that at the end of the wait", || {
        let shown = json(&kit.dlock(&["show", "JOB", "x", "--json"]).end().expect(0).out);
        let ended = kit.dlock(&["wait", "JOB", "x", "--timeout", "2s"]).end().expect(65);
        let age = ended.err.split(", for ").nth(1).and_then(|words| words.split(" (").next());
        let age = age.and_then(|age| humantime::parse_duration(age).ok());
        let before = shown["holder"]["told"]["held_for_ms"].as_u64().map(Duration::from_millis);
        // Neither is known if the holder was slow to tell.
        age.zip(before)
            .inspect(|(age, before)| assert!(*age >= *before + Duration::from_secs(2), "{ended:?}"))
            .is_some()
    });
    let waits = kit.dlock(&["wait", "JOB", "x"]).start();
    fs::write(kit.path("go"), "").unwrap();
    holder.end().expect(0);
    // The lock is kept, and nobody holds it.
    assert_eq!(waits.end().expect(0).err, "");
    // A dead holder's lock is held until its lease is over.
    kit.server.run::<()>(&["SET", "DLOCK_JOB_y", "host-1-ff-1", "PX", "300"]);
    kit.dlock(&["wait", "JOB", "y", "--timeout", "1m"]).end().expect(0);
    kit.server.kill();
    kit.dlock(&["wait", "JOB", "x", "--timeout", "100ms"]).end().expect(67).says(["waiting for the server"]);
    let waits = kit.dlock(&["wait", "JOB", "x"]).start();
    kit.server.restart();
    waits.end().expect(0);
}

#[test]
fn a_wait_with_a_limit_ends_while_the_server_or_the_holder_hangs() {
    let kit = Kit::new();
    let patient = ["--io-timeout", "1h", "--connect-timeout", "1h"];
    let wait = |limit| [&["wait", "JOB", "x", "--timeout", limit], &patient[..]].concat();
    let holder = kit.holder(&[]);
    // It looks at least once.
    kit.dlock(&wait("0s")).end().expect(65);
    holder.signal(Signal::STOP);
    kit.dlock(&wait("2s")).end().expect(65).says(["is still held by \""]);
    let clients = || {
        let told: String = kit.server.run(&["INFO", "clients"]);
        told.lines().find_map(|line| line.strip_prefix("connected_clients:")?.parse::<u32>().ok()).unwrap()
    };
    let before = clients();
    let waits = kit.dlock(&wait("4s")).start();
    eventually("it looks", || clients() > before);
    kit.server.signal(Signal::STOP);
    kit.dlock(&wait("100ms")).end().expect(67).says(["--timeout"]);
    waits.end().expect(67);
    kit.server.signal(Signal::CONT);
    holder.signal(Signal::KILL);
}

/// The kernel keeps signals from the first process of a container unless it asks for them. Where the system lets nobody make such a process,
/// nothing is judged.
#[test]
fn the_first_process_of_a_container_ends_at_signals() {
    let kit = Kit::new();
    kit.server.hold(KEY, "host-1-ff-1");
    let inside = ["--user", "--map-root-user", "--pid", "--fork", "--kill-child"];
    if !Command::new("unshare").args(inside).arg("true").status().is_ok_and(|status| status.success()) {
        let _ = writeln!(io::stderr(), "SKIPPED: no namespaces of processes here");
        return;
    }
    for (words, signal) in [
        (&["wait", "JOB", "x"][..], Signal::TERM),
        (&["watch", "--json"], Signal::INT),
        (&["exporter", "--listen", "127.0.0.1:0"], Signal::TERM),
        (&["watch"], Signal::HUP),
    ] {
        let mut command = with_default_signals("unshare");
        command.args(inside).arg(env!("CARGO_BIN_EXE_dlock")).args(words).env("DLOCK_URL", kit.server.url());
        let running = command.stdin(Stdio::null()).start();
        let of_unshare = format!("/proc/{0}/task/{0}/children", running.pid().as_raw_nonzero());
        let first = || {
            let pid = fs::read_to_string(&of_unshare).ok()?.trim().parse().ok().and_then(Pid::from_raw)?;
            // It waits for signals on a thread of its own.
            let hears = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).ok()?.count() > 1;
            hears.then_some(pid)
        };
        let mut found = None;
        eventually("it runs", || {
            found = first();
            found.is_some()
        });
        rustix::process::kill_process(found.unwrap(), signal).unwrap();
        running.end().expect(128 + signal.as_raw());
    }
}

#[test]
fn a_quiet_question_is_answered_by_the_status() {
    let kit = Kit::new();
    for (value, status) in [(None, 1), (Some("host-1-ff-1"), 0)] {
        if let Some(value) = value {
            kit.server.run::<()>(&["SET", KEY, value, "PX", "60000"]);
        }
        for option in ["--quiet", "-q"] {
            let ended = kit.dlock(&["show", "JOB", "x", option]).end().expect(status);
            assert!(ended.out.is_empty() && ended.err.is_empty(), "{ended:?}");
        }
    }
    kit.server.run::<()>(&["DEL", KEY]);
    kit.dlock(&["run", "--at-least", "1h", "JOB", "x", "--", "true"]).end().expect(0);
    kit.dlock(&["show", "-q", "JOB", "x"]).end().expect(1);
    kit.dlock(&["show", "-q", "--json", "JOB", "x"]).end().expect(64);
}

#[test]
fn a_long_list_has_ages_and_reasons() {
    let kit = Kit::new();
    let _holder = kit.holder(&["--reason", "nightly export"]);
    for target in 1..40 {
        kit.server.run::<()>(&["SET", &format!("DLOCK_DEAD_{target}"), "host-1-ff-1", "PX", "60000"]);
    }
    let mut listed = Vec::new();
    eventually("the holder has answered", || {
        let ended = kit.dlock(&["ls", "--long", "--json", "*"]).end().expect(0);
        listed = ended.out.lines().map(json).collect::<Vec<_>>();
        listed.last().is_some_and(|lock| lock["reason"] == "nightly export")
    });
    assert_eq!(listed.len(), 40);
    assert!(listed[39]["held_for_ms"].as_u64().is_some_and(|age| age > 0 && age < 60_000), "{listed:?}");
    assert!(listed[0]["held_for_ms"].is_null() && listed[0]["reason"].is_null(), "{listed:?}");
    let page = kit.dlock(&["ls", "--long", "JOB_*"]).end().expect(0).out;
    let [head, lock] = page.lines().collect::<Vec<_>>()[..] else { panic!("{page}") };
    assert!(head.starts_with("LOCK ") && head.ends_with(" AGE  REASON"), "{page}");
    assert!(lock.ends_with("  nightly export"), "{page}");
    let none = kit.dlock(&["ls", "--long", "NONE_*"]).end().expect(0).out;
    assert_eq!(none.split_whitespace().last(), Some("REASON"));
}

fn the_list_is_watched_through_an_outage<S: Site>(kit: &mut KitOn<S>) {
    kit.server.hold("DLOCK_JOB_a", "host-1-ff-1");
    let watching = Watching::start(&mut kit.dlock(&["watch", "JOB_*", "--json", "--interval", "20ms"]));
    watching.wait_for("the lock", |line| line["locks"][0]["key"] == "DLOCK_JOB_a");
    kit.server.kill();
    let fails = |line: &Value| line["error"].as_str().is_some_and(|error| error.contains("lock store failed"));
    watching.wait_for("an outage", fails);
    kit.server.restart();
    watching
        .wait_for("its end", |line| line["locks"].as_array().is_some_and(|locks| locks.is_empty() != S::KEEPS_LOCKS));
    kit.server.kill();
    let away = kit.dlock(&["watch", "--json", "--count", "2", "--interval", "1ms"]).end().expect(0);
    let errors = away.out.lines().map(json).filter(|line| line["error"].is_string()).count();
    assert_eq!((errors, &*away.err), (2, ""), "{away:?}");
    kit.server.restart();
    let twice = kit.dlock(&["watch", "--count", "2", "--interval", "1ms"]).end().expect(0);
    let count = if S::KEEPS_LOCKS { "1 lock\n" } else { "0 locks\n" };
    assert_eq!(twice.out.matches(count).count(), 2, "{twice:?}");
    assert!(!twice.out.contains('\u{1b}'), "{twice:?}");
    kit.dlock(&["watch", "--count", "0"]).end().expect(64);
}

#[test]
fn questions_have_the_statuses_of_their_failures() {
    let kit = Kit::new();
    kit.server.run::<()>(&["RPUSH", "DLOCK_JOB_x", "no lock"]);
    kit.dlock(&["show", "JOB", "x"]).end().expect(69);
    kit.server.run::<()>(&["ACL", "SETUSER", "poor", "on", "nopass", "~*", "&*", "+@all", "-scan"]);
    let url = kit.server.url().replace("//", "//poor:x@");
    for words in [&["ls"][..], &["watch"], &["watch", "--json"]] {
        kit.dlock(&[words, &["--url", &url]].concat()).end().expect(68).says(["scan"]).prints("");
    }
}

fn a_server_that_is_not_there_has_a_status_of_its_own<S: Site>(kit: &mut KitOn<S>) {
    kit.dlock(&["show", "", "x"]).end().expect(64);
    kit.server.kill();
    for words in [&["ls"][..], &["show", "JOB", "x"], &["break", "JOB", "x", "--locker", "l"]] {
        let gone = kit.dlock(words).end().expect(67);
        assert!(gone.err.contains("cannot connect") || gone.err.contains("no answer from"), "{words:?}: {gone:?}");
        assert_eq!(gone.out, "");
    }
}

/// `dlock ls | head -1` asks a server with many keys for a few of them.
#[test]
fn the_first_locks_are_shown_before_the_last_ones_are_found() {
    let kit = Kit::new();
    let fill = "for n = 1, 20000 do redis.call('SET', 'DLOCK_MANY_' .. n, 'host-1-ff-' .. n, 'PX', 600000) end";
    kit.server.run::<()>(&["EVAL", fill, "0"]);
    for words in [&["ls"][..], &["ls", "--json"]] {
        kit.server.run::<()>(&["CONFIG", "RESETSTAT"]);
        let (mut reader, writer) = io::pipe().unwrap();
        let mut running = Killed(kit.dlock(words).stdout(writer).spawn().unwrap());
        // There is room for 64 KiB in the pipe: it waits there with some hundred locks, and most of the server's keys before it.
        let mut begun = [0; 100];
        io::Read::read_exact(&mut reader, &mut begun).unwrap();
        drop(reader);
        eventually("it has ended", || running.0.try_wait().unwrap().is_some());
        let stats: String = kit.server.run(&["INFO", "commandstats"]);
        let scans = stats.split("cmdstat_scan:calls=").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
        assert!(scans.parse::<usize>().unwrap() < 15, "{words:?}: {stats}");
    }
}
