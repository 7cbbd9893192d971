//! `dlock` itself on the server of another command.

use super::super::kit::{Ended, Start, bare};
use super::super::support::free_port;
use super::Locker;
use std::fs;

/// Runs commands under a lock there, and asks what can be asked.
pub(super) fn runs_here(locker: &Locker, scheme: &str) {
    let (_, address) = locker.variables.last().unwrap();
    let (home, url) = (locker.home.path(), &format!("{scheme}://{}", address.trim_start_matches("http://")));
    let dlock = |words: &[&str]| bare(home, &[words, &["--url", url]].concat());
    let run = |options: &[&str], script: &str| {
        bare(home, &[&["run", "--url", url], options, &["JOB", "x", "--", "sh", "-c", script]].concat())
    };
    let tokens = [(); 2].map(|()| run(&[], "echo $DLOCK_TOKEN").end().expect(0).out.trim().parse::<u64>().unwrap());
    assert!(0 < tokens[0] && tokens[0] < tokens[1], "{tokens:?}");
    let holder = run(&[], "echo $$ > pid; exec sleep 100").start();
    locker.pid_of("pid");
    run(&["--no-wait"], "true").end().expect(65).says(["is held by"]);
    holder.stop();
    run(&["--no-wait"], "exit 3").end().expect(3);
    let once = |script: &str| {
        bare(home, &["run", "--url", url, "--once-every", "1h", "JOB", "once", "--", "sh", "-c", script]).end()
    };
    once("exit 3").expect(3);
    assert_eq!(once("echo ran").expect(0).out, "ran\n");
    let done = once("echo ran").expect(65);
    assert!(done.err.contains("done at 20") && done.err.contains("by dlock (pid ") && done.out.is_empty(), "{done:?}");
    let cannot = |ended: Ended, status: i32, said: &str| {
        ended.expect(status).says([said]).prints("");
    };
    assert!(dlock(&["ls"]).end().expect(0).out.contains("DLOCK_JOB_once"));
    assert!(dlock(&["doctor"]).end().expect(0).out.contains("may read and write dlock/"));
    cannot(run(&["--replica-acks", "1"], "true").end(), 64, "--replica-acks is for Redis");
    cannot(run(&["--io-timeout", "1s"], "true").end(), 64, "--io-timeout is for Redis");
    for option in ["--once-every", "--at-least"] {
        // The store keeps it for longer.
        let said = format!("invalid {option} \"1s\": this store keeps a lock for ");
        cannot(run(&[option, "1s"], "true").end(), 64, &said);
    }
}

/// A server that is away is waited for there, too.
pub(super) fn is_waited_for(locker: &Locker, scheme: &str) {
    let url = format!("{scheme}://127.0.0.1:{}", free_port());
    let run = |options: &[&str]| {
        bare(locker.home.path(), &[&["run", "--url", &url], options, &["JOB", "x", "--", "true"]].concat())
    };
    run(&["--no-wait"]).end().expect(67);
    let waiting = run(&[]).stderr(fs::File::create(locker.path("err")).unwrap()).spawn().unwrap();
    let mut waiting = super::Killed(waiting);
    super::eventually("it says so", || {
        fs::read_to_string(locker.path("err")).is_ok_and(|err| err.contains("waiting for the server"))
    });
    assert!(waiting.0.try_wait().unwrap().is_none());
}
