//! What a lock costs in commands, as the server counts them.

use crate::support::RedisServer;
use redis_dlock::{DLockConfig, DLockGenerator};
use std::collections::HashMap;
use std::time::Duration;

/// Calls by command since the last reset, without those of this test itself; what runs inside scripts is counted too.
fn calls(server: &RedisServer) -> HashMap<String, u64> {
    let stats: String = server.run(&["INFO", "commandstats"]);
    stats
        .lines()
        .filter_map(|line| {
            let (command, figures) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((command.to_owned(), figures.split(',').next()?.parse().unwrap()))
        })
        .filter(|(command, _)| !matches!(command.as_str(), "config|resetstat" | "info" | "hello" | "client|setinfo"))
        .collect()
}

/// Long enough that neither an extension nor a probe falls into the test.
fn lazy(target: &str) -> DLockConfig {
    DLockConfig::new("COUNTS", target).with_lease(Duration::from_secs(3600))
}

#[test]
fn an_uncontended_pair_is_two_script_calls_and_nothing_else() {
    let server = RedisServer::start();
    let generator = DLockGenerator::connect(&server.url()).unwrap();
    let lock = generator.generate_with(lazy("x")).unwrap();
    drop(lock.lock().unwrap()); // the scripts are loaded now, and the fence is there
    server.run::<()>(&["CONFIG", "RESETSTAT"]);
    let pairs = 500;
    for _ in 0..pairs {
        let guard = lock.lock().unwrap();
        let again = lock.lock().unwrap();
        drop(again);
        guard.unlock().unwrap();
    }
    let calls = calls(&server);
    let of = |command: &str| calls.get(command).copied().unwrap_or(0);
    assert_eq!(of("evalsha"), 2 * pairs, "{calls:?}");
    assert_eq!(of("del"), pairs, "{calls:?}");
    for other in ["eval", "script|load", "pexpire", "publish", "rpush", "subscribe"] {
        assert_eq!(of(other), 0, "{calls:?}");
    }
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
fn many_threads_and_keys_share_one_connection() {
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
    assert_eq!(clients.lines().filter(|line| line.contains(" name=redis-dlock ")).count(), 1, "{clients}");
}
