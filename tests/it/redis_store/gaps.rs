//! How a gap for pollers is kept in Redis.

use super::outcomes::{LEASE, setup};
use crate::support::{Asking, LONG, RedisServer, claim};
use redis_dlock::processor::{Claim, Gap, Operations};
use redis_dlock::{AcquireOutcome, Error, Message, PollOutcome, RedisLockProcessor, ReleaseOutcome};
use std::time::Duration;

const KEY: &str = "DLOCK_t_ a {b";
const GAP: Gap = Gap::new(Duration::from_secs(60), Duration::from_secs(600));

fn ends(locker: &str) -> Claim<'_> {
    claim(KEY, locker, LEASE).with_poller_gap(Some(GAP))
}

/// A key's name, by the kind of helper that it is.
fn helper(server: &RedisServer, kind: &str) -> String {
    server.run::<Vec<String>>(&["KEYS", &format!("DLOCK:1:{{*}}:{kind}:{KEY}")]).pop().unwrap()
}

fn waits(store: &RedisLockProcessor, locker: &str) -> Option<String> {
    match store.ask(&claim(KEY, locker, LEASE), true, LONG).unwrap() {
        AcquireOutcome::Busy(busy) => busy.holder,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_gap_is_the_first_entry_of_the_queue_and_a_key_that_keeps_the_time() {
    let (server, store) = setup();
    store.acquire(&claim(KEY, "a-1", LEASE), LONG).unwrap();
    waits(&store, "b-1");
    assert!(matches!(
        store.end_with(&ends("a-1"), Some(&claim(KEY, "a-2", LEASE)), LONG).unwrap(),
        ReleaseOutcome::Queued(_)
    ));
    assert_eq!(server.run::<Option<String>>(&["GET", KEY]), None);
    let (queue, gapped) = (helper(&server, "queue"), helper(&server, "gapped"));
    let entries: Vec<String> = server.run(&["LRANGE", &queue, "0", "-1"]);
    assert_eq!(entries[1..], ["30000 b-1", "30000 a-2"]);
    let words: Vec<&str> = entries[0].split(' ').collect();
    let now: (u64, u64) = server.run(&["TIME"]);
    let left = words[1].parse::<u64>().unwrap() - (now.0 * 1000 + now.1 / 1000);
    assert_eq!([words[0], words[2]], ["gap", "60000"]);
    assert!(left > 50_000 && left <= 60_000, "{left}");
    let life = |key: &str| server.run::<i64>(&["PTTL", key]);
    assert!(life(&gapped) > 590_000 && life(&gapped) <= 600_000);
    assert!(life(&queue) > 50_000 && life(&queue) <= 60_000, "no waiter's life is longer here");
}

#[test]
fn a_gap_without_waiters_ends_with_its_entry() {
    let (server, store) = setup();
    store.acquire(&claim(KEY, "a-1", LEASE), LONG).unwrap();
    store.release(&ends("a-1"), LONG).unwrap();
    let life: i64 = server.run(&["PTTL", &helper(&server, "queue")]);
    assert!(life > 50_000 && life <= 60_000, "{life}");
}

/// Shows: L1.
#[test]
fn a_gap_that_the_clock_left_behind_and_what_is_none_keep_nobody_waiting() {
    let (server, store) = setup();
    store.acquire(&claim(KEY, "a-1", LEASE), LONG).unwrap();
    waits(&store, "b-1");
    let queue = helper(&server, "queue");
    let mut inbox = store.open("b", LONG).unwrap();
    let now: (u64, u64) = server.run(&["TIME"]);
    let ahead = now.0 * 1000 + 500_000;
    let foreign = [
        format!("gap {ahead} 60000"), // the clock was stepped back since
        format!("gap {ahead} 9999999999999999"),
        format!("gap {ahead}"),
        format!("gap {ahead} 600000 "),
        format!("gap -{ahead} 600000"),
        format!("gap {ahead}.5 600000"),
        "gap 99999999999999999999999 60000".to_owned(),
        "gap 1 60000".to_owned(),
        "gap".to_owned(),
        "g-1".to_owned(),
    ];
    for entry in &foreign {
        server.run::<()>(&["LPUSH", &queue, entry]);
    }
    assert_eq!(store.release(&claim(KEY, "a-1", LEASE), LONG).unwrap(), ReleaseOutcome::Released { waiting: 0 });
    assert!(matches!(inbox.next(LONG).unwrap(), Some(Message::Granted { locker, .. }) if locker == "b-1"));
    // Each of them alone, before a poll.
    for (n, entry) in foreign.iter().enumerate() {
        let (holder, waiter) = (format!("a-{}", n + 2), format!("b-{}", n + 2));
        server.run::<()>(&["SET", KEY, &holder]);
        waits(&store, &waiter);
        server.run::<()>(&["LPUSH", &queue, entry]);
        server.run::<()>(&["DEL", KEY]);
        let polled = store.poll(&claim(KEY, &waiter, LEASE), LONG).unwrap();
        assert!(matches!(polled, PollOutcome::Acquired(grant) if grant.waiting == 0), "{entry}: {polled:?}");
        assert_eq!(server.run::<u64>(&["EXISTS", &queue]), 0, "{entry}");
    }
}

#[test]
fn a_gap_issues_no_number_and_needs_no_fence() {
    let (server, store) = setup();
    store.acquire(&claim(KEY, "a-1", LEASE), LONG).unwrap();
    waits(&store, "b-1");
    server.run::<()>(&["SET", "DLOCK:1:fence", "x"]);
    store.end_with(&ends("a-1"), Some(&claim(KEY, "a-2", LEASE)), LONG).unwrap();
    for _ in 0..3 {
        assert!(matches!(store.poll(&claim(KEY, "b-1", LEASE), LONG).unwrap(), PollOutcome::Waiting(_)));
    }
    assert_eq!(waits(&store, "c-1"), None);
    assert_eq!(server.run::<String>(&["GET", "DLOCK:1:fence"]), "x");
}

#[test]
fn a_full_server_lets_a_release_with_a_gap_pass() {
    let (server, store) = setup();
    store.acquire(&claim(KEY, "a-1", LEASE), LONG).unwrap();
    server.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(matches!(
        store.end_with(&ends("a-1"), Some(&claim(KEY, "a-2", LEASE)), LONG).unwrap(),
        ReleaseOutcome::Queued(_)
    ));
    assert_eq!(server.run::<u64>(&["LLEN", &helper(&server, "queue")]), 2);
}

/// Shows: S6.
#[test]
fn a_release_with_a_gap_that_fails_writes_nothing() {
    let (server, store) = setup();
    store.acquire(&claim(KEY, "a-1", LEASE), LONG).unwrap();
    waits(&store, "b-1");
    let before = server.contents();
    for (name, right) in [("no-lpush", "-lpush"), ("no-set", "-set"), ("no-time", "-time")] {
        server.run::<()>(&["ACL", "SETUSER", name, "on", ">s3crt", "~*", "&*", "+@all", right]);
        let url = format!("redis://{name}:s3crt@127.0.0.1:{}", server.port());
        let store = RedisLockProcessor::connect(&url).unwrap();
        let denied = store.end_with(&ends("a-1"), Some(&claim(KEY, "a-2", LEASE)), LONG);
        assert!(matches!(denied, Err(Error::Denied { .. })), "{name}: {denied:?}");
        assert_eq!(server.contents(), before, "{name}");
    }
    let queue = helper(&server, "queue");
    server.run::<()>(&["DEL", &queue]);
    server.run::<()>(&["SET", &queue, "x"]);
    let before = server.contents();
    for next in [None, Some(claim(KEY, "a-2", LEASE))] {
        let conflict = store.end_with(&ends("a-1"), next.as_ref(), LONG);
        assert!(matches!(conflict, Err(Error::Conflict { .. })), "{conflict:?}");
        assert_eq!(server.contents(), before);
    }
}

#[test]
fn a_foreign_value_in_the_place_of_the_time_means_an_ordinary_release() {
    let (server, store) = setup();
    store.acquire(&claim(KEY, "a-1", LEASE), LONG).unwrap();
    waits(&store, "b-1");
    let gapped = helper(&server, "queue").replacen(":queue:", ":gapped:", 1);
    server.run::<()>(&["SADD", &gapped, "x"]);
    let _inbox = store.open("b", LONG).unwrap();
    assert_eq!(store.release(&ends("a-1"), LONG).unwrap(), ReleaseOutcome::Released { waiting: 0 });
    assert_eq!(server.run::<String>(&["GET", KEY]), "b-1");
    assert_eq!(server.run::<u64>(&["SCARD", &gapped]), 1);
    assert!(server.run::<i64>(&["PTTL", KEY]) <= i64::try_from(LEASE.as_millis()).unwrap());
}
