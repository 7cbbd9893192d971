//! Several processes, real faults: a holder that is killed, a holder that is stopped past its lease, and the proof
//! that nothing is lost between many.

use crate::support::RedisServer;
use crate::support::holder::Holder;
use crate::support::lab::{connect, is_listener_on};
use crate::support::process::example;
use crate::support::stalls::on_a_running_machine;
use redis_dlock::DLockConfig;
use rustix::process::Signal;
use std::process::Command;
use std::time::{Duration, Instant};

fn config(lease: Duration) -> DLockConfig {
    DLockConfig::new("PROCESSES", "one").with_lease(lease)
}

/// The value of the lock's key and its time to live in milliseconds.
fn key(server: &RedisServer) -> (Option<String>, u64) {
    let key = config(Duration::from_secs(1)).unique_key().to_owned();
    let (value, ttl): (_, i64) = redis::pipe().get(&key).pttl(&key).query(&mut server.connection()).unwrap();
    (value, u64::try_from(ttl).unwrap_or(0))
}

/// Shows: G4.
#[test]
fn a_killed_holders_lease_ends_and_a_waiter_gets_the_lock_right_then() {
    // A machine that stands still tells nobody anything right then.
    on_a_running_machine(Duration::from_millis(100), || {
        let server = RedisServer::start();
        let lease = Duration::from_secs(6);
        let mut holder = Holder::holding(&server, &config(lease));
        let generator = connect(&server.url());
        let lock = generator.generate_with(config(lease)).unwrap();
        assert!(lock.try_lock().unwrap().is_none());
        holder.kill();
        let begin = Instant::now();
        let left = Duration::from_millis(key(&server).1);
        assert!(!left.is_zero(), "the key outlives its holder");
        let guard = lock.lock().unwrap();
        let waited = begin.elapsed();
        // The retry thread asks every second (lease/6); knowing when the lease ends it has no need to wait for that.
        assert!(waited + Duration::from_millis(5) >= left, "not before the end: {waited:?} of {left:?}");
        assert!(waited < left + lease / 12, "right then: {waited:?} of {left:?}");
        assert!(guard.is_valid());
        guard.unlock().unwrap();
        assert_eq!(key(&server), (None, 0));
    });
}

/// Shows: G2, G5, G6, S3.
#[test]
fn a_holder_stopped_past_its_lease_finds_itself_lost_on_its_first_call() {
    let server = RedisServer::start();
    let generator = connect(&server.url());
    let long = generator.generate_with(config(Duration::from_secs(600))).unwrap();
    for (first_call, expected) in [
        ("is_valid", "false"),
        ("remaining", "0"),
        ("ensure_valid", "lost: it was not extended before its deadline"),
        ("unlock", "lost: it was not extended before its deadline"),
    ] {
        let mut holder = Holder::holding(&server, &config(Duration::from_millis(300)));
        assert_eq!(holder.obey("is_valid"), "true");
        holder.signal(Signal::STOP);
        let guard = long.lock().unwrap();
        let before = key(&server);
        holder.signal(Signal::CONT);
        assert_eq!(holder.obey(first_call), expected, "{first_call}");
        if first_call != "unlock" {
            assert!(holder.obey("unlock").starts_with("lost: "));
        }
        let after = key(&server);
        assert_eq!(after.0, before.0, "our key is as it was");
        assert!(after.1 <= before.1, "nobody extended it");
        assert!(guard.is_valid());
        guard.unlock().unwrap();
    }
}

/// Runs the proof: 4 processes of 8 threads, one counter in Redis that each reads, leaves alone, and writes.
fn prove(server: &RedisServer, further: &[&str]) -> (bool, String) {
    let output = Command::new(example("contend"))
        .args(["--redis", &server.url(), "--processes", "4", "--threads", "8", "--rounds", "12", "--lease", "1000"])
        .args(further)
        .args((!is_listener_on()).then_some("--polling"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

/// Shows: G1, G7.
#[test]
fn between_four_processes_of_eight_threads_nothing_is_lost() {
    let server = RedisServer::start();
    let (sound, text) = prove(&server, &[]);
    assert!(sound, "{text}");
    for finding in [
        "ok      384 holds wanted, 384 had",
        "ok      the counter stands at 384 of 384: 0 writes lost",
        "ok      0 holds began before the one before had ended",
        "ok      0 fencing tokens not greater than the one before",
    ] {
        assert!(text.contains(finding), "{finding}: {text}");
    }
}

#[test]
fn without_the_lock_the_same_proof_finds_lost_updates() {
    let server = RedisServer::start();
    let (sound, text) = prove(&server, &["--no-lock"]);
    assert!(!sound, "{text}");
    assert!(text.contains("FAILED  the counter stands at"), "{text}");
    assert!(!text.contains("384 of 384"), "{text}");
    assert!(text.contains("FAILED") && text.contains("holds began before"), "{text}");
}
