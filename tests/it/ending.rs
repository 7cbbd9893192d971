//! Programs that end right after a drop: none leaves its lock behind, whatever happened to the server meanwhile.

use crate::support::process::example;
use crate::support::{RedisServer, is_long};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const PLACES: [&str; 4] = ["local", "static", "pool", "tasks"];
const ENDS: [&str; 3] = ["return", "exit", "panic"];

/// The exit code of a program that failed before its drop.
const NOT_BEGUN: i32 = 3;

/// How many programs of each kind are started.
fn runs() -> usize {
    if is_long() { 1000 } else { 4 }
}

/// How many programs that abort are started: they wait for nothing, so each one shows little.
fn aborts() -> usize {
    if is_long() { 1000 } else { 40 }
}

/// Whether a key is there a while after its holder has ended: the server may have to read its last command yet. A lease is much longer.
fn is_left(admin: &mut redis::Connection, key: &str) -> bool {
    let until = Instant::now() + Duration::from_secs(3);
    loop {
        let exists: bool = redis::cmd("EXISTS").arg(key).query(admin).unwrap();
        if !exists || Instant::now() > until {
            return exists;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Starts programs one after another, and returns which kinds left their locks, and how often.
fn left_by(event: &str, places: &[&str], ends: &[&str], runs: usize) -> Vec<String> {
    let (server, program) = (RedisServer::start(), example("ending"));
    let mut admin = server.connection();
    let mut left = Vec::new();
    for place in places {
        for end in ends {
            let mut count = 0;
            for n in 0..runs {
                let target = format!("{place}-{end}-{n}");
                let play = || {
                    let arguments = [&*server.url(), &target, place, end, event];
                    Command::new(&program).args(arguments).env("RUST_BACKTRACE", "0").output().unwrap()
                };
                let mut played = play();
                if played.status.code() == Some(NOT_BEGUN) {
                    // The server was not reached in time: the machine stood still.
                    eprintln!("{place}, {end}, {event}, once more: {}", String::from_utf8_lossy(&played.stderr));
                    played = play();
                }
                let expected = match *end {
                    "panic" => Some(101),
                    "abort" => None,
                    _ => Some(0),
                };
                assert_eq!(played.status.code(), expected, "{place}, {end}, {event}: {played:?}");
                // `CLIENT KILL` ends all other connections.
                admin = if event == "cut" { server.connection() } else { admin };
                count += usize::from(is_left(&mut admin, &format!("DLOCK_END_{target}")));
            }
            eprintln!("{place}, {end}, {event}: {count} of {runs} left their locks");
            if count > 0 {
                left.push(format!("{place}, {end}: {count}"));
            }
        }
    }
    left
}

/// Shows: L2.
#[test]
fn a_program_that_ends_after_a_drop_leaves_no_lock() {
    assert_eq!(left_by("plain", &PLACES, &ENDS, runs()), [""; 0]);
}

/// Shows: L2.
#[test]
fn nor_when_the_server_has_forgotten_the_scripts_since_the_lock() {
    assert_eq!(left_by("flushed", &PLACES, &ENDS, runs()), [""; 0]);
}

/// Shows: L2.
#[test]
fn nor_when_its_connections_were_cut_since_the_lock() {
    assert_eq!(left_by("cut", &PLACES, &ENDS, runs()), [""; 0]);
}

/// A program that aborts waits for nothing: its release is with the system when `drop` returns, however many threads share the connections.
/// Shows: L2.
#[test]
fn a_drop_has_written_its_release_when_it_returns() {
    assert_eq!(left_by("plain", &["local", "crowd"], &["abort"], aborts()), [""; 0]);
}
