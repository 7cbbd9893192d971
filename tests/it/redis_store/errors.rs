//! Which error each trouble of a real server becomes.

use super::outcomes::{LEASE, setup};
use crate::support::crew::{eventually, spawn_with};
use crate::support::{Asking, claim, journal};
use crate::support::{LONG, RedisServer};
use redis_dlock::processor::Operations;
use redis_dlock::{
    BackendFailure, DLockGenerator, Error, LockProcessor, PollOutcome, ProbeOutcome, RedisLockProcessor, ReleaseOutcome,
};
use std::fmt::Debug;
use std::time::Duration;

fn backend<T: Debug>(result: Result<T, Error>, want: BackendFailure, word: &str) {
    match result {
        Err(Error::Backend { failure, message, .. }) => {
            assert_eq!(failure, want, "{message}");
            assert!(message.contains(word), "{message}");
        }
        other => panic!("{word}: {other:?}"),
    }
}

/// Shows: G3.
#[test]
fn out_of_memory_refuses_acquires_and_lets_renewals_and_releases_pass() {
    let (server, store) = setup();
    store.acquire(&claim("k", "a-1", LEASE), LONG).unwrap();
    server.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    backend(store.ask(&claim("j", "b-1", LEASE), true, LONG), BackendFailure::Refused, "OOM");
    store.extend_fresh(&claim("k", "a-1", LEASE), LONG).unwrap();
    let released = store.release(&claim("k", "a-1", LEASE), LONG).unwrap();
    assert_eq!(released, ReleaseOutcome::Released { waiting: 0 });
}

/// Shows: G5, S4.
#[test]
fn out_of_memory_hides_neither_a_loss_nor_a_place_in_the_queue() {
    let (server, store) = setup();
    store.acquire(&claim("k", "a-1", LEASE), LONG).unwrap();
    store.ask(&claim("k", "b-1", LEASE), true, LONG).unwrap();
    server.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let probe = || store.probe(&claim("k", "a-1", LEASE), LONG).unwrap();
    assert_eq!(probe(), ProbeOutcome::Ours);
    assert!(matches!(store.poll(&claim("k", "b-1", LEASE), LONG).unwrap(), PollOutcome::Waiting(_)));
    server.run::<()>(&["DEL", "k"]);
    assert!(matches!(probe(), ProbeOutcome::NotOurs(_)));
    assert!(matches!(store.poll(&claim("k", "b-1", LEASE), LONG).unwrap(), PollOutcome::Acquired(_)));
}

#[test]
fn a_replica_executes_nothing_and_shows_no_old_data() {
    let (server, store) = setup();
    store.acquire(&claim("k", "a-1", LEASE), LONG).unwrap();
    server.run::<()>(&["CONFIG", "SET", "replica-serve-stale-data", "yes"]);
    server.run::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    backend(store.probe(&claim("k", "a-1", LEASE), LONG), BackendFailure::NotExecuted, "READONLY");
    backend(store.acquire(&claim("k", "b-1", LEASE), LONG), BackendFailure::NotExecuted, "READONLY");
    backend(store.release(&claim("k", "a-1", LEASE), LONG), BackendFailure::NotExecuted, "READONLY");
    backend(store.extend(&claim("k", "a-1", LEASE), LONG), BackendFailure::NotExecuted, "READONLY");
}

/// Shows: G2, S6.
#[test]
fn a_master_without_its_replicas_executes_nothing() {
    let (server, store) = setup();
    store.acquire(&claim("k", "a-1", LEASE), LONG).unwrap();
    store.ask(&claim("k", "b-1", LEASE), true, LONG).unwrap();
    server.run::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let before = server.contents();
    let refused = "NOREPLICAS";
    backend(store.acquire(&claim("j", "c-1", LEASE), LONG), BackendFailure::NotExecuted, refused);
    backend(store.ask(&claim("k", "c-2", LEASE), true, LONG), BackendFailure::NotExecuted, refused);
    backend(store.poll(&claim("k", "b-1", LEASE), LONG), BackendFailure::NotExecuted, refused);
    backend(store.extend(&claim("k", "a-1", LEASE), LONG), BackendFailure::NotExecuted, refused);
    backend(store.release(&claim("k", "a-1", LEASE), LONG), BackendFailure::NotExecuted, refused);
    backend(store.probe(&claim("k", "a-1", LEASE), LONG), BackendFailure::NotExecuted, refused);
    assert_eq!(server.contents(), before);
    // Who only looks is answered.
    assert_eq!(store.inspect("k", LONG).unwrap().holder.as_deref(), Some("a-1"));
    server.run::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    assert!(matches!(store.release(&claim("k", "a-1", LEASE), LONG).unwrap(), ReleaseOutcome::Released { .. }));
}

/// Shows: L3.
#[test]
fn who_waits_for_a_master_without_its_replicas_is_told_of_the_setting_once() {
    journal::keep();
    let server = RedisServer::start();
    let generator = DLockGenerator::connect(&server.url()).unwrap();
    let lock = generator.generate("NOREPLICAS", "x").unwrap();
    lock.lock().unwrap().unlock().unwrap();
    server.run::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let once = lock.try_lock().map(drop);
    backend(once, BackendFailure::NotExecuted, "min-replicas-to-write");
    let refused = || {
        let errors: String = server.run(&["INFO", "errorstats"]);
        let line = errors.lines().find_map(|line| line.strip_prefix("errorstat_NOREPLICAS:count="));
        line.map_or(0, |count| count.trim().parse().unwrap())
    };
    let before: u64 = refused();
    let waits = spawn_with(&lock, |waiting| waiting.lock().unwrap().unlock().unwrap());
    eventually("it asks again and again", || refused() > before + 3);
    server.run::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    waits.join();
    let warnings = journal::warnings(lock.key());
    let named: Vec<_> = warnings.iter().filter(|line| line.contains("min-replicas-to-write")).collect();
    assert_eq!((named.len(), warnings.len()), (1, 1), "{warnings:?}");
}

#[test]
fn a_busy_server_executes_nothing() {
    let (server, store) = setup();
    store.acquire(&claim("k", "a-1", LEASE), LONG).unwrap();
    server.run::<()>(&["CONFIG", "SET", "busy-reply-threshold", "1"]);
    let url = server.url();
    let looping = std::thread::spawn(move || {
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let script = "while true do end";
        redis::cmd("EVAL").arg(script).arg(0).query::<()>(&mut connection).unwrap_err();
    });
    let end = std::time::Instant::now() + LONG;
    let refused = loop {
        match store.extend(&claim("k", "a-1", LEASE), LONG) {
            Ok(_) => assert!(std::time::Instant::now() < end),
            refused => break refused,
        }
    };
    backend(refused, BackendFailure::NotExecuted, "BUSY");
    server.run::<()>(&["SCRIPT", "KILL"]);
    looping.join().unwrap();
    store.extend(&claim("k", "a-1", LEASE), LONG).unwrap();
}

/// Shows: G10, S6.
#[test]
fn missing_rights_are_denied_with_nothing_written() {
    let (server, _) = setup();
    let user = |name: &str, rules: &[&str]| {
        let mut words = vec!["ACL", "SETUSER", name, "on", ">s3crt"];
        words.extend(rules);
        server.run::<()>(&words);
        RedisLockProcessor::connect(&format!("redis://{name}:s3crt@127.0.0.1:{}", server.port()))
    };
    for (name, rules) in [
        ("no-scripts", &["~*", "&*", "+@all", "-@scripting"] as &[_]),
        ("no-keys", &["~other", "&*", "+@all"]),
        ("no-time", &["~*", "&*", "+@all", "-time"]),
        ("no-incr", &["~*", "&*", "+@all", "-incr"]),
        ("no-set", &["~*", "&*", "+@all", "-set"]),
        ("no-fence", &["~k", "~*queue*", "&*", "+@all"]),
    ] {
        let store = user(name, rules).unwrap();
        match store.ask(&claim("k", "a-1", LEASE), true, LONG) {
            Err(error @ Error::Denied { .. }) => assert!(!format!("{error}{store:?}").contains("s3crt")),
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(server.contents(), [], "{name}");
    }
    // A message that may not be sent loses nobody: the waiter gets the key and hears of it by its poll.
    let store = user("no-channels", &["~*", "resetchannels", "+@all"]).unwrap();
    store.ask(&claim("k", "a-1", LEASE), true, LONG).unwrap();
    store.ask(&claim("k", "b-1", LEASE), true, LONG).unwrap();
    let listener = RedisLockProcessor::connect(&server.url()).unwrap();
    let _inbox = listener.open("b", LONG).unwrap();
    assert_eq!(store.release(&claim("k", "a-1", LEASE), LONG).unwrap(), ReleaseOutcome::Released { waiting: 0 });
    let polled = store.poll(&claim("k", "b-1", LEASE), LONG).unwrap();
    assert!(matches!(polled, PollOutcome::Acquired(_)), "{polled:?}");
    assert!(matches!(store.open("b", LONG).err(), Some(Error::Denied { .. })));
}

#[test]
fn a_full_server_and_no_server_executed_nothing() {
    let server = RedisServer::start_with(&["--maxclients", "1"]);
    let _only = server.connection();
    backend(RedisLockProcessor::connect(&server.url()), BackendFailure::NotExecuted, "");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let lazy = RedisLockProcessor::builder(&format!("redis://:s3crt@localhost:{port}")).unwrap().build().unwrap();
    assert!(!lazy.has_answered());
    let result = lazy.acquire(&claim("k", "a-1", LEASE), LONG);
    assert!(!format!("{result:?}").contains("s3crt"));
    backend(result, BackendFailure::NotExecuted, &format!("localhost:{port}"));
}

#[test]
fn a_server_that_cannot_save_refuses() {
    let (server, store) = setup();
    server.run::<()>(&["CONFIG", "SET", "save", "3600 1000000"]);
    server.run::<()>(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "yes"]);
    server.run::<()>(&["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    let dir: (String, String) = server.run(&["CONFIG", "GET", "dir"]);
    // A directory in the place of the dump file makes every save fail.
    std::fs::create_dir(std::path::Path::new(&dir.1).join("dump.rdb")).unwrap();
    server.run::<String>(&["BGSAVE"]);
    let end = std::time::Instant::now() + LONG;
    while server.run::<String>(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:ok") {
        assert!(std::time::Instant::now() < end);
        std::thread::sleep(Duration::from_millis(20));
    }
    backend(store.acquire(&claim("k", "a-1", LEASE), LONG), BackendFailure::Refused, "MISCONF");
}
