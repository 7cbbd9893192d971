//! The wire rules of JVM DLock: this test plays the JVM's side with its literal commands.

use crate::support::crew::wait_for;
use crate::support::{Jvm, RedisServer};
use proptest::prelude::*;
use redis_dlock::{DLockConfig, DLockGenerator, Error, LossCause};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(20);

fn config(target: &str) -> DLockConfig {
    DLockConfig::new("CUSTOMER_LOCK", target).with_lease(LEASE)
}

fn setup() -> (RedisServer, Jvm, DLockGenerator) {
    let server = RedisServer::start();
    let (jvm, generator) = (Jvm::new(&server), DLockGenerator::connect(&server.url()).unwrap());
    (server, jvm, generator)
}

/// Shows: G1, S3.
#[test]
fn a_jvm_holder_keeps_us_out_and_hands_over_by_deleting() {
    let (_server, mut jvm, generator) = setup();
    let lock = generator.generate_with(config("1").with_lease(Duration::from_millis(300))).unwrap();
    assert!(jvm.update_for_lock(lock.key(), LEASE));
    assert!(lock.try_lock().unwrap().is_none());
    let holder = lock.holder().unwrap().unwrap();
    assert_eq!(holder.locker, "10.0.0.5-17");
    assert!(!holder.is_local);
    let waiter = wait_for(&lock);
    assert!(jvm.expand_lock_expire(lock.key(), LEASE), "a waiter of ours does not disturb the JVM's lease");
    assert!(jvm.update_for_unlock(lock.key()), "nor its release");
    waiter.join();
    assert!(jvm.is_lock_free(lock.key()));
}

/// Shows: G1.
#[test]
fn our_hold_keeps_the_jvm_out_and_it_cannot_extend_or_delete_ours() {
    let (_server, mut jvm, generator) = setup();
    let lock = generator.generate_with(config("1")).unwrap();
    let guard = lock.lock().unwrap();
    assert!(!jvm.update_for_lock(lock.key(), LEASE));
    let before = jvm.value_and_ttl(lock.key());
    assert!(!jvm.expand_lock_expire(lock.key(), LEASE * 100));
    assert!(!jvm.update_for_unlock(lock.key()));
    let after = jvm.value_and_ttl(lock.key());
    assert_eq!(before.0, after.0);
    assert!(after.1 <= before.1, "the time to live was not extended");
    guard.unlock().unwrap();
    assert!(jvm.is_lock_free(lock.key()));
    assert!(jvm.update_for_lock(lock.key(), LEASE));
}

/// Shows: G6, S3.
#[test]
fn we_cannot_extend_or_delete_what_the_jvm_took_over() {
    let (server, mut jvm, generator) = setup();
    // Long enough that the lease thread does nothing during the test: the release itself meets the JVM's value.
    let lock = generator.generate_with(config("1").with_lease(Duration::from_secs(3600))).unwrap();
    let guard = lock.lock().unwrap();
    server.run::<()>(&["DEL", lock.key()]);
    assert!(jvm.update_for_lock(lock.key(), LEASE));
    let before = jvm.value_and_ttl(lock.key());
    match guard.unlock().unwrap_err() {
        Error::LeaseLost(loss) => assert_eq!(loss.cause, LossCause::TakenOver { by: "10.0.0.5-17".into() }),
        other => panic!("{other}"),
    }
    let after = jvm.value_and_ttl(lock.key());
    assert_eq!(before.0, after.0);
    assert!(after.1 <= before.1 && after.1 > 0);
}

#[test]
fn odd_blanks_name_the_same_key_on_both_sides() {
    let (_server, mut jvm, generator) = setup();
    // What `StringUtils.trimToEmpty` of the JVM makes of each target.
    for (target, trimmed) in [
        ("\u{3000}7\u{3000}", "\u{3000}7\u{3000}"),
        ("\u{a0}7\u{a0}", "\u{a0}7\u{a0}"),
        ("\u{1}7\u{1}", "7"),
        ("\t 7\t ", "7"),
        (" \u{0}\u{1f}\u{20}7\r\n", "7"),
        ("7 8", "7 8"),
        ("\u{2003}7", "\u{2003}7"),
        ("  ", ""),
        ("", ""),
    ] {
        let jvm_key = format!("DLOCK_CUSTOMER_LOCK_{trimmed}");
        let lock = generator.generate_with(config(target)).unwrap();
        let guard = lock.lock().unwrap();
        assert!(!jvm.update_for_lock(&jvm_key, LEASE), "{target:?}");
        guard.unlock().unwrap();
        assert!(jvm.update_for_lock(&jvm_key, LEASE), "{target:?}");
        assert!(lock.try_lock().unwrap().is_none(), "{target:?}");
        assert!(jvm.update_for_unlock(&jvm_key));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    /// Java's `String.trim`, written as Java specifies it.
    #[test]
    fn targets_are_trimmed_as_java_trims(target in "[\\x00-\\x21\u{a0}\u{3000}\u{2003}a-c]{0,12}") {
        let chars: Vec<char> = target.chars().collect();
        let from = chars.iter().position(|c| *c as u32 > 0x20).unwrap_or(chars.len());
        let to = chars.iter().rposition(|c| *c as u32 > 0x20).map_or(from, |last| last + 1);
        let trimmed: String = chars[from..to].iter().collect();
        let config = DLockConfig::new("T", &target);
        prop_assert_eq!(config.unique_key(), format!("DLOCK_T_{trimmed}"));
    }
}

#[test]
fn a_key_without_time_to_live_is_waited_for() {
    let server = RedisServer::start();
    let mut admin = server.connection();
    let generator = DLockGenerator::connect(&server.url()).unwrap();
    let lock = generator.generate_with(config("1").with_lease(Duration::from_millis(300))).unwrap();
    redis::cmd("SET").arg(lock.key()).arg("somebody for ever").exec(&mut admin).unwrap();
    assert!(lock.try_lock().unwrap().is_none());
    let holder = lock.holder().unwrap().unwrap();
    assert_eq!((holder.locker.as_str(), holder.remaining), ("somebody for ever", None));
    let waiter = wait_for(&lock);
    redis::cmd("DEL").arg(lock.key()).exec(&mut admin).unwrap();
    waiter.join();
}

/// Shows: S6.
#[test]
fn keys_of_another_type_are_a_named_conflict_and_nothing_is_written() {
    let server = RedisServer::start();
    let mut admin = server.connection();
    let generator = DLockGenerator::connect(&server.url()).unwrap();
    let lock = generator.generate_with(config("1")).unwrap();
    for setup in [["HSET", "f", "v"], ["ZADD", "1", "m"]] {
        redis::cmd("FLUSHALL").exec(&mut admin).unwrap();
        redis::cmd(setup[0]).arg(lock.key()).arg(&setup[1..]).exec(&mut admin).unwrap();
        let dump = |admin: &mut redis::Connection| -> (Vec<u8>, u64) {
            redis::pipe().cmd("DUMP").arg(lock.key()).cmd("DBSIZE").query(admin).unwrap()
        };
        let before = dump(&mut admin);
        for error in [
            lock.try_lock().map(drop).unwrap_err(),
            lock.lock().map(drop).unwrap_err(),
            lock.try_lock_for(Duration::from_secs(5)).map(drop).unwrap_err(),
            lock.holder().map(drop).unwrap_err(),
        ] {
            let text = error.to_string();
            assert!(matches!(&error, Error::Conflict { key, .. } if key == lock.key()), "{text}");
            assert!(text.contains(lock.key()) && text.contains("another type"), "{text}");
        }
        assert_eq!(dump(&mut admin), before, "nothing was written");
    }
}

/// Shows: G6, S3.
#[test]
fn a_held_key_that_becomes_another_type_is_a_lost_lease() {
    let server = RedisServer::start();
    let mut admin = server.connection();
    let generator = DLockGenerator::connect(&server.url()).unwrap();
    let lock = generator.generate_with(config("1")).unwrap();
    let guard = lock.lock().unwrap();
    redis::pipe().del(lock.key()).rpush(lock.key(), "x").exec(&mut admin).unwrap();
    let error = guard.unlock().unwrap_err();
    assert!(matches!(error, Error::LeaseLost(_)), "{error}");
    assert!(error.to_string().contains("another type"), "{error}");
    let kind: String = redis::cmd("TYPE").arg(lock.key()).query(&mut admin).unwrap();
    assert_eq!(kind, "list");
}
