//! `--at-least` and `--once-every`: the lock is kept from everybody after the command.

use super::kit::{KEY, Kit, KitOn, Site, Start, on_each_site};
use super::support::crew::eventually;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

/// How long the key stays as it is.
fn left(kit: &Kit) -> Duration {
    Duration::from_millis(kit.server.run::<i64>(&["PTTL", KEY]).try_into().unwrap_or_default())
}

fn value(kit: &Kit) -> String {
    kit.server.run::<Option<String>>(&["GET", KEY]).unwrap_or_default()
}

#[test]
fn a_job_is_done_once_in_a_while() {
    let kit = Kit::new();
    let once = ["--once-every", "20h", "--reason", "nightly export"];
    assert_eq!(kit.run(&once, "echo ran").end().expect(0).out, "ran\n");
    let kept = left(&kit);
    assert!(kept > Duration::from_secs(20 * 3600 - 60) && kept <= Duration::from_secs(20 * 3600), "{kept:?}");
    // Without a limit of the wait, too: nobody waits for the next time.
    for options in [&[][..], &["--no-wait"], &["--wait", "1h"]] {
        let ended = kit.run(&[&once, options].concat(), "echo ran").end().expect(65);
        assert!(ended.err.contains("done at 20") && ended.err.contains("by dlock (pid "), "{ended:?}");
        assert!(ended.err.contains("nightly export") && ended.out.is_empty(), "{ended:?}");
    }
    // Who has no such option waits as for any holder.
    kit.run(&["--no-wait"], "echo ran").end().expect(65).says(["done at 20"]).prints("");
    assert_eq!(kit.waiting(), 0);
}

#[test]
fn a_wait_ends_when_the_job_is_done_meanwhile() {
    let kit = Kit::new();
    let once = ["--once-every", "20h"];
    let holder = kit.run(&once, "echo in > in; while ! test -e go; do sleep 0.01; done").start();
    kit.line_of("in");
    let waiters = [(); 2].map(|()| kit.run(&once, "echo ran").start());
    eventually("they wait", || kit.waiting() == 2);
    fs::write(kit.path("go"), "").unwrap();
    holder.end().expect(0);
    for waiter in waiters {
        waiter.end().expect(65).says(["done at"]).prints("");
    }
    assert_eq!(kit.waiting(), 0);
}

#[test]
fn a_job_that_fails_is_tried_by_the_next() {
    let kit = Kit::new();
    for (shell, status) in [("exit 3", 3), ("kill -9 $$", 137)] {
        kit.run(&["--once-every", "20h"], shell).end().expect(status);
        kit.expect_free();
    }
    let waits =
        kit.run(&["--once-every", "20h"], "echo in > in; while ! test -e go; do sleep 0.01; done; exit 1").start();
    kit.line_of("in");
    let next = kit.queued(&["--once-every", "20h"], "echo ran");
    fs::write(kit.path("go"), "").unwrap();
    waits.end().expect(1);
    assert_eq!(next.end().expect(0).out, "ran\n");
}

on_each_site!(a_lock_is_kept_for_at_least_a_time_whatever_becomes_of_the_command);

fn a_lock_is_kept_for_at_least_a_time_whatever_becomes_of_the_command<S: Site>(kit: &mut KitOn<S>) {
    for (shell, status) in [("sleep 0.3", 0), ("sleep 0.3; exit 3", 3)] {
        kit.run(&["--at-least", "10m"], shell).end().expect(status);
        if kit.server.processor().limits().remaining_known {
            let kept = kit.inspection().remaining.unwrap();
            assert!(
                kept > Duration::from_secs(590) && kept < Duration::from_millis(599_800),
                "since it began: {kept:?}"
            );
        }
        kit.run(&["--no-wait", "--at-least", "10m"], "echo ran").end().expect(65);
        kit.server.delete(KEY);
    }
    // A command that is ended by a signal, too.
    let running = kit.holder(&["--at-least", "10m"]);
    running.stop();
    assert!(kit.inspection().holder.unwrap().starts_with("delayed-release "));
    kit.server.delete(KEY);
    // A time that is over by then keeps nobody out.
    let seconds = S::shortest().as_secs();
    let shortest = ["--at-least", &format!("{seconds}s")];
    kit.run(&shortest, &format!("sleep {seconds}.1")).end().expect(0);
    kit.expect_free();
    // Others wait, and get the lock when the time is over.
    let begun = Instant::now();
    kit.run(&shortest, "true").end().expect(0);
    kit.run(&[], "true").end().expect(0);
    assert!(begun.elapsed() >= S::shortest());
    kit.expect_free();
}

/// Nobody has said that such a command has succeeded.
#[test]
fn what_is_kept_for_at_least_a_time_is_not_told_as_done() {
    let kit = Kit::new();
    kit.run(&["--at-least", "10m"], "exit 3").end().expect(3);
    for options in [&["--no-wait"][..], &["--wait", "2s", "--once-every", "1h"], &["-v", "--wait", "4s"]] {
        let ended = kit.run(options, "echo ran").end().expect(65);
        assert!(ended.err.contains(" is kept for 9m") && !ended.err.contains("done"), "{ended:?}");
        assert!(ended.err.contains(": held last at 20") && ended.err.contains(", --at-least 10m, in "), "{ended:?}");
        // Who says for whom it waits says no text of the store's.
        assert!(!ended.err.contains("delayed-release") && ended.err.matches("kept for 9m").count() <= 2, "{ended:?}");
        let says = ended.err.contains("waiting for \"DLOCK_JOB_x\" for ");
        assert_eq!(says, options[0] == "-v", "{ended:?}");
    }
    kit.server.run::<()>(&["DEL", KEY]);
    // The failed job is done by the next one.
    kit.run(&["--at-least", "2s"], "exit 3").end().expect(3);
    assert_eq!(kit.run(&["--once-every", "1h"], "echo ran").end().expect(0).out, "ran\n");
}

/// A time that nobody can have meant.
#[test]
fn an_absurd_mark_is_told_without_a_moment() {
    let kit = Kit::new();
    let mark = "delayed-release locker=h-1-ff-1 delay=1800000000000000";
    kit.server.run::<()>(&["SET", KEY, mark, "PX", "600000"]);
    for options in [&["--no-wait"][..], &["-v", "--wait", "2s"]] {
        let ended = kit.run(options, "echo ran").end().expect(65).says([": done, by "]);
        assert_eq!(ended.err.matches("kept for 9m").count(), options.len().min(2), "{ended:?}");
    }
}

#[test]
fn who_cannot_keep_the_lock_says_that_the_job_may_be_done_again() {
    let kit = Kit::new();
    let running = kit.run(&["--once-every", "1h"], "echo in > in; while ! test -e go; do sleep 0.01; done").start();
    kit.line_of("in");
    kit.server.signal(Signal::STOP);
    fs::write(kit.path("go"), "").unwrap();
    let ended = running.end().expect(0);
    assert!(ended.err.contains("has not confirmed that it keeps the lock: others may get it"), "{ended:?}");
    assert!(!ended.err.contains("could not be released"), "{ended:?}");
    kit.server.signal(Signal::CONT);
}

#[test]
fn a_lost_lock_keeps_nobody_out() {
    let kit = Kit::new();
    let running = kit.holder(&["--at-least", "10m", "--lease", "1s"]);
    kit.server.run::<()>(&["DEL", KEY]);
    running.end().expect(66);
    kit.expect_free();
}

#[test]
fn people_see_it_as_what_it_is_and_end_it() {
    let kit = Kit::new();
    kit.run(&["--at-least", "10m", "--reason", "x';id;'nightly export"], "true").end().expect(0);
    let words =
        ["nobody holds it: it is kept free of holders for 9m", "held last by ", "nightly export", "dlock (pid "];
    let page = kit.dlock(&["show", "JOB", "x"]).end().expect(0).shows(words).out;
    // Nothing of a reason is where somebody would take it for a part of a command.
    let hint = page.lines().find(|line| line.contains("dlock break")).unwrap();
    assert_eq!(hint.trim(), "dlock break with --current ends it");
    let list = kit.dlock(&["ls"]).end().expect(0).out;
    assert!(list.contains("(kept after ") && list.contains("9m"), "{list}");
    let shown: Value = serde_json::from_str(&kit.dlock(&["show", "JOB", "x", "--json"]).end().expect(0).out).unwrap();
    let ended = &shown["delayed_release"];
    assert_eq!((&ended["reason"], &ended["program"]), (&"x';id;'nightly export".into(), &"dlock".into()));
    let known = ["held_for_ms", "delay_ms", "ended_ms_ago", "pid"];
    assert!(known.iter().all(|name| ended[name].is_u64()) && ended["host"].is_string(), "{ended}");
    assert!(ended["delay_ms"].as_u64().unwrap() <= 600_000);
    let mark = shown["holder"]["locker"].as_str().unwrap();
    assert_eq!(mark, value(&kit));
    let words = ["break", "JOB", "x", "--locker", ended["locker"].as_str().unwrap()];
    kit.dlock(&words).end().expect(1);
    kit.dlock(&["break", "JOB", "x", "--locker", mark]).end().expect(0).shows(["it is free"]);
    assert_eq!(kit.run(&["--once-every", "1h"], "echo ran").end().expect(0).out, "ran\n");
}

#[test]
fn what_cannot_be_kept_is_refused_before_the_command_runs() {
    let kit = Kit::new();
    for (options, said) in [
        (&["--at-least", "10m", "--once-every", "20h"][..], "--once-every"),
        (&["--once-every", "400d"], "time for which a lock is kept"),
        (&["--at-least", "soon"], "soon"),
    ] {
        kit.run(options, "echo ran").end().expect(64).says([said]).prints("");
    }
    kit.expect_free();
}
