//! Programs that end right after a drop: none leaves its lock behind, whatever happened to the server meanwhile.

use crate::support::RedisServer;
use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PLACES: [&str; 3] = ["local", "static", "pool"];
const ENDS: [&str; 3] = ["return", "exit", "panic"];

/// How many programs of each kind are started.
fn runs() -> usize {
    let is_long = env::var_os("DLOCK_TEST_LONG").is_some_and(|value| value == "1");
    if is_long { 1000 } else { 4 }
}

/// The program, which `cargo test` builds beside the tests; built here when only some targets were.
fn program() -> PathBuf {
    let built = env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("examples/ending");
    if !built.exists() {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        assert!(Command::new(cargo).args(["build", "--example", "ending"]).status().unwrap().success());
    }
    built
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
fn left_by(event: &str) -> Vec<String> {
    let (server, program) = (RedisServer::start(), program());
    let mut admin = server.connection();
    let mut left = Vec::new();
    for place in PLACES {
        for end in ENDS {
            let mut count = 0;
            for n in 0..runs() {
                let target = format!("{place}-{end}-{n}");
                let status = Command::new(&program)
                    .args([&server.url(), &target, place, end, event])
                    .env("RUST_BACKTRACE", "0")
                    .stderr(Stdio::null())
                    .status()
                    .unwrap();
                assert_eq!(status.code(), Some(if end == "panic" { 101 } else { 0 }), "{place}, {end}, {event}");
                // `CLIENT KILL` ends all other connections.
                admin = if event == "cut" { server.connection() } else { admin };
                count += usize::from(is_left(&mut admin, &format!("DLOCK_END_{target}")));
            }
            eprintln!("{place}, {end}, {event}: {count} of {} left their locks", runs());
            if count > 0 {
                left.push(format!("{place}, {end}: {count}"));
            }
        }
    }
    left
}

#[test]
fn a_program_that_ends_after_a_drop_leaves_no_lock() {
    assert_eq!(left_by("plain"), [""; 0]);
}

#[test]
fn nor_when_the_server_has_forgotten_the_scripts_since_the_lock() {
    assert_eq!(left_by("flushed"), [""; 0]);
}

#[test]
fn nor_when_its_connections_were_cut_since_the_lock() {
    assert_eq!(left_by("cut"), [""; 0]);
}
