//! What a lock costs in commands, as the server counts them.

use crate::support::RedisServer;
use crate::support::commands::Commands;
use crate::support::crew::eventually;
use redis_dlock::{DLockConfig, DLockGenerator, ManualClock, RedisLockProcessor};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Long enough that neither an extension nor a probe falls into the test.
fn lazy(target: &str) -> DLockConfig {
    DLockConfig::new("COUNTS", target).with_lease(Duration::from_secs(3600))
}

/// Does something so often. Returns how often that was slow: if nothing is written for 100 ms, the next number comes from a script, and one that is
/// under way is taken back. Of such a pause, one of two neighbours has half.
fn repeat(times: u64, mut work: impl FnMut()) -> u64 {
    let is_slow = |_: &u64| {
        let begin = Instant::now();
        work();
        begin.elapsed() > Duration::from_millis(50)
    };
    (0..times).filter(is_slow).count() as u64
}

/// How often the server has read from a connection.
fn reads(server: &RedisServer) -> u64 {
    server.stat("total_reads_processed")
}

#[test]
fn an_uncontended_pair_is_four_plain_commands_and_a_script_in_two_round_trips() {
    let server = RedisServer::start();
    let generator = DLockGenerator::connect(&server.url()).unwrap();
    let lock = generator.generate_with(lazy("x")).unwrap();
    drop(lock.lock().unwrap()); // the scripts are loaded now, and the fence is there
    // The client record is written in the background, once, and again after half a minute.
    eventually("the record is written", || !server.run::<Vec<String>>(&["KEYS", "DLOCK:1:client:*"]).is_empty());
    // The number that the first lock was given may be too old to be trusted by now.
    drop(lock.lock().unwrap());
    Commands::forget(&server);
    let (pairs, begin, read) = (500, Instant::now(), reads(&server));
    let slow = repeat(pairs, || {
        let guard = lock.lock().unwrap();
        let again = lock.lock().unwrap();
        drop(again);
        guard.unlock().unwrap();
    });
    let read = reads(&server) - read;
    let calls = Commands::of(&server);
    // Once a second a script looks at the number, and what is taken back is taken back by one.
    let scripts = calls.count("evalsha") - pairs;
    assert!(scripts <= begin.elapsed().as_secs() + 1 + 2 * slow, "{slow} slow: {calls:?}");
    // Such a script may move the fence to the clock.
    assert!((pairs..=pairs + scripts).contains(&calls.count("set")), "{calls:?}");
    // Instead of a plain attempt, or after one that has counted: its number had just become too old to be trusted.
    assert!((pairs..=pairs + scripts).contains(&calls.count("incr")), "{calls:?}");
    for (command, count) in [("llen", 2 * pairs), ("get", 2 * pairs - scripts), ("del", pairs)] {
        assert!((count..=count + 2 * slow).contains(&calls.count(command)), "{command}, {slow} slow: {calls:?}");
    }
    for other in ["eval", "script|load", "pexpire", "publish", "rpush", "subscribe", "multi", "exec"] {
        assert_eq!(calls.count(other), 0, "{calls:?}");
    }
    // Those of the test itself: at most four.
    assert!((2 * pairs..=2 * (pairs + slow) + 4).contains(&read), "{read} reads for {pairs} pairs, {slow} slow");
}

#[test]
fn a_server_that_forgets_the_scripts_fails_nobody() {
    let server = RedisServer::start();
    let generator = DLockGenerator::connect(&server.url()).unwrap();
    let lock = generator.generate_with(lazy("x")).unwrap();
    for _ in 0..20 {
        server.run::<()>(&["SCRIPT", "FLUSH"]);
        let guard = lock.try_lock().unwrap().unwrap();
        server.run::<()>(&["SCRIPT", "FLUSH"]);
        guard.unlock().unwrap();
    }
    let left: u64 = server.run(&["EXISTS", lock.key()]);
    assert_eq!(left, 0);
}

#[test]
fn many_threads_and_keys_share_four_connections() {
    let server = RedisServer::start();
    let generator = DLockGenerator::connect(&server.url()).unwrap();
    std::thread::scope(|scope| {
        for n in 0..16 {
            let lock = generator.generate_with(lazy(&n.to_string())).unwrap();
            scope.spawn(move || {
                for _ in 0..50 {
                    drop(lock.lock().unwrap());
                }
            });
        }
    });
    let clients: String = server.run(&["CLIENT", "LIST"]);
    let ours = |line: &&str| line.contains(" name=redis-dlock ") && !line.contains(" cmd=subscribe ");
    let connections = clients.lines().filter(ours).count();
    assert!((1..=4).contains(&connections), "{clients}");
}

#[test]
fn a_single_thread_needs_one_connection() {
    let server = RedisServer::start();
    // The lease thread writes the record, on a connection of its own if the first is in use.
    let store = RedisLockProcessor::connect(&server.url()).unwrap();
    let generator = DLockGenerator::builder().client_record(false).build(store).unwrap();
    for n in 0..16 {
        drop(generator.generate_with(lazy(&n.to_string())).unwrap().lock().unwrap());
    }
    let clients: String = server.run(&["CLIENT", "LIST"]);
    assert_eq!(clients.lines().filter(|line| line.contains(" name=redis-dlock ")).count(), 1, "{clients}");
}

/// The manual's page "Sizing" says so: twenty questions in ninety seconds for a lock with a lease of 30 s, four of which extend it.
#[test]
fn a_lock_that_is_held_asks_twenty_times_in_three_leases() {
    let server = RedisServer::start();
    let clock = Arc::new(ManualClock::new());
    let store = RedisLockProcessor::connect(&server.url()).unwrap();
    let generator = DLockGenerator::builder().client_record(false).clock(clock.clone()).build(store).unwrap();
    let locks = 50;
    let take = |n: u64| generator.generate("HELD", n.to_string()).unwrap().lock_owned().unwrap();
    let guards: Vec<_> = (0..locks).map(take).collect();
    Commands::forget(&server);
    clock.pass(Duration::from_secs(90));
    let calls = Commands::of(&server);
    let [asked, extended] = ["evalsha", "pexpire"].map(|command| calls.count(command));
    // The first of them carries the script's text.
    assert!(asked.abs_diff(20 * locks) <= 2 && extended.abs_diff(4 * locks) <= 2, "{calls:?}");
    let clients: String = server.run(&["CLIENT", "LIST"]);
    assert_eq!(clients.lines().filter(|line| line.contains(" name=redis-dlock ")).count(), 2, "{clients}");
    assert!(guards.iter().all(|guard| guard.is_valid()));
}

/// The releases of several locks are one write, whether their replies are waited for or not.
#[test]
fn several_locks_go_back_in_one_round_trip() {
    const LOCKS: u64 = 4;
    let server = RedisServer::start();
    let generator = DLockGenerator::connect(&server.url()).unwrap();
    let take = || generator.try_lock_all(["a", "b", "c", "d"].map(lazy)).unwrap().expect("nobody else is there");
    drop(take()); // the scripts are loaded now, and the fence is there
    eventually("the record is written", || !server.run::<Vec<String>>(&["KEYS", "DLOCK:1:client:*"]).is_empty());
    take().unlock().unwrap();
    for is_awaited in [true, false] {
        Commands::forget(&server);
        let (rounds, begin, read) = (100, Instant::now(), reads(&server));
        let slow = repeat(rounds, || {
            let guards = take();
            if is_awaited { guards.unlock().unwrap() } else { drop(guards) }
        });
        let read = reads(&server) - read;
        let calls = Commands::of(&server);
        let deleted = LOCKS * rounds..=LOCKS * (rounds + slow);
        assert!(deleted.contains(&calls.count("del")), "{slow} slow: {calls:?}");
        // One for each lock that is taken, and one for all that go back; the server may read what nobody waits for together with the next question.
        // Once a second, a script looks at the number after a plain attempt. The test itself reads at most four times.
        let (least, most) =
            (LOCKS * rounds, (LOCKS + 1) * rounds + begin.elapsed().as_secs() + 1 + 4 + 2 * LOCKS * slow);
        assert!((least..=most).contains(&read), "{read} reads for {rounds} rounds");
    }
}
