//! Fencing tokens: strictly rising over everything that forgets, equal on reentry, and cheap to keep.

use crate::support::RedisServer;
use crate::support::lab::connect;
use redis_dlock::{DLockConfig, DLockGenerator};
use std::time::Duration;

fn next_token(generator: &DLockGenerator, target: &str) -> u64 {
    let lock = generator.generate_with(DLockConfig::new("T", target).with_lease(Duration::from_secs(20))).unwrap();
    let guard = lock.lock().unwrap();
    let token = guard.fencing_token();
    assert_eq!(lock.lock().unwrap().fencing_token(), token, "the same on reentry");
    assert!(i64::try_from(token).is_ok_and(|signed| signed > 0));
    token
}

/// Shows: G7, S2.
#[test]
fn tokens_rise_whatever_the_server_forgets() {
    let mut server = RedisServer::start();
    let generator = connect(&server.url());
    let mut last = 0;
    let mut rises = |generator: &DLockGenerator, after: &str| {
        for _ in 0..3 {
            let token = next_token(generator, "x");
            assert!(token > last, "after {after}: {token} is not above {last}");
            last = token;
        }
    };
    rises(&generator, "the start");
    redis::cmd("DEL").arg("DLOCK:1:fence").exec(&mut server.connection()).unwrap();
    rises(&generator, "deleting the fence");
    redis::cmd("SET").arg("DLOCK:1:fence").arg(1).exec(&mut server.connection()).unwrap();
    rises(&generator, "setting the fence back");
    redis::cmd("FLUSHALL").exec(&mut server.connection()).unwrap();
    rises(&generator, "FLUSHALL");
    let second = connect(&server.url());
    rises(&second, "a second client");
    rises(&generator, "going back to the first client");
    server.restart();
    rises(&generator, "a restart without persistence");
    rises(&second, "a restart seen by the second client");
}

/// Shows: G7.
#[test]
fn tokens_rise_over_threads_that_take_turns() {
    let server = RedisServer::start();
    let generator = connect(&server.url());
    let lock = generator.generate("T", "x").unwrap();
    let tokens = parking_lot::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let guard = lock.lock().unwrap();
                    tokens.lock().push(guard.fencing_token());
                }
            });
        }
    });
    let tokens = tokens.into_inner();
    assert_eq!(tokens.len(), 400);
    assert!(tokens.is_sorted_by(|a, b| a < b), "in the order of the holds: {tokens:?}");
}

/// Shows: L2.
#[test]
fn a_hundred_thousand_names_leave_one_fence_and_nothing_else() {
    let server = RedisServer::start();
    let generator = connect(&server.url());
    let names = 100_000;
    std::thread::scope(|scope| {
        for part in 0..8 {
            let generator = &generator;
            scope.spawn(move || {
                for n in (part..names).step_by(8) {
                    let lock = generator.generate("MANY", n.to_string()).unwrap();
                    drop(lock.lock().unwrap());
                }
            });
        }
    });
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut server.connection()).unwrap();
    // The client says what it is, once for all its locks.
    let keys: Vec<_> = keys.into_iter().filter(|key| !key.starts_with("DLOCK:1:client:")).collect();
    assert_eq!(keys, ["DLOCK:1:fence"]);
    let ttl: i64 = redis::cmd("TTL").arg("DLOCK:1:fence").query(&mut server.connection()).unwrap();
    assert_eq!(ttl, -1, "the fence stays");
}
