//! A store that hangs while `dlock run` waits, or ends.

use super::kit::{Kit, KitOn, Site, Start, lives, on_each_site, state};
use super::support::crew::eventually;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;

on_each_site! {
    at_the_end_of_the_wait_nobody_is_said_to_hold_the_lock,
    a_signal_ends_the_wait,
    a_signal_ends_dlock_after_its_command,
    a_signal_for_the_command_ends_dlock_too,
    a_command_that_ends_by_itself_is_not_kept_by_it,
}

fn at_the_end_of_the_wait_nobody_is_said_to_hold_the_lock<S: Site>(kit: &mut KitOn<S>) {
    let _holder = kit.holder(&[]);
    let waiter = kit.queued(&["--wait", "4s"], "echo ran");
    kit.server.signal(Signal::STOP);
    waiter.end().expect(67).says(["was not acquired in time"]).prints("");
    kit.server.signal(Signal::CONT);
}

fn a_signal_ends_the_wait<S: Site>(kit: &mut KitOn<S>) {
    let _holder = kit.holder(&[]);
    // One request, and what is repeated for as long as the lease, would last for longer than a test may hang.
    let waiter = kit.queued(&[S::PATIENT, &["--lease", "5m"]].concat(), "echo ran");
    kit.server.signal(Signal::STOP);
    waiter.signal(Signal::TERM);
    assert_eq!(waiter.end().expect(143).out, "");
    kit.server.signal(Signal::CONT);
}

fn a_signal_ends_dlock_after_its_command<S: Site>(kit: &mut KitOn<S>) {
    let running = kit.run(&[], "echo $$ > pid; while ! test -e go; do sleep 0.01; done; exit 3").start();
    let group = kit.pid_of("pid");
    kit.server.signal(Signal::STOP);
    fs::write(kit.path("go"), "").unwrap();
    eventually("the command has ended", || !lives(group));
    // The first ones may still be for the command, which is gone.
    eventually("dlock has ended", || {
        let _ = kill_process(running.pid(), Signal::TERM);
        is_dead(running.pid())
    });
    running.end().expect(3).says(["a signal has ended dlock before the store has answered"]);
    kit.server.signal(Signal::CONT);
}

fn a_signal_for_the_command_ends_dlock_too<S: Site>(kit: &mut KitOn<S>) {
    let running = kit.holder(&[]);
    kit.server.signal(Signal::STOP);
    running.signal(Signal::TERM);
    running.end().expect(143).says(["a signal has ended dlock before the store has answered"]);
    kit.server.signal(Signal::CONT);
}

/// The release has the time of one command, and its failure is no failure of the command.
fn a_command_that_ends_by_itself_is_not_kept_by_it<S: Site>(kit: &mut KitOn<S>) {
    let running = kit.run(&["--lease", "5m"], "echo in > in; while ! test -e go; do sleep 0.01; done; exit 3").start();
    kit.line_of("in");
    kit.server.signal(Signal::STOP);
    fs::write(kit.path("go"), "").unwrap();
    let ended = running.end().expect(3);
    let lines: Vec<_> = ended.err.lines().collect();
    let [line] = lines[..] else { panic!("one line: {ended:?}") };
    assert!(line.contains("could not be released: it ends by itself in"), "{line}");
    assert!(line.ends_with(" at most: the store does not answer"), "no try has failed yet: {line}");
    kit.server.signal(Signal::CONT);
}

fn is_dead(pid: Pid) -> bool {
    state(pid).is_none_or(|state| state == 'Z')
}

/// A store that refuses to lock is no lock that is held.
#[test]
fn a_store_that_refuses_is_told_once_and_waited_for() {
    let kit = Kit::new();
    kit.run(&[], "true").end().expect(0);
    kit.server.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let plain = kit.run(&[], "echo ran").stderr(fs::File::create(kit.path("plain")).unwrap()).start_quietly();
    let told = kit.run(&["-v"], "echo ran").stderr(fs::File::create(kit.path("told")).unwrap()).start_quietly();
    assert!(kit.line_of("plain").contains("OOM") && kit.line_of("plain").ends_with(": waiting for the server"));
    let said = || fs::read_to_string(kit.path("told")).unwrap();
    eventually("it is said why it waits", || said().contains(": not acquired yet, and nobody holds it"));
    kit.server.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    for running in [plain, told] {
        assert_eq!(running.end().expect(0).out, "ran\n");
    }
    assert_eq!(fs::read_to_string(kit.path("plain")).unwrap().lines().count(), 1);
    assert!(!said().contains(": held"), "{}", said());
}
