//! How the places of waiters that nobody hears are kept in Redis.

use super::outcomes::{LEASE, setup};
use crate::support::{Asking, LONG, RedisServer, claim};
use redis_dlock::processor::Operations;
use redis_dlock::{AcquireOutcome, Error, Message, NotOurs, PollOutcome, RedisLockProcessor, ReleaseOutcome};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

const KEY: &str = "DLOCK_t_ a {b";
const FENCE: &str = "DLOCK:1:fence";

/// How long a place is kept, in milliseconds.
const KEEP: u64 = 1000;

/// The server's clock in milliseconds.
fn now(server: &RedisServer) -> u64 {
    let (seconds, micros): (u64, u64) = server.run(&["TIME"]);
    seconds * 1000 + micros / 1000
}

/// Begins anew: this locker holds the key, and these entries stand in the queue.
fn stage(server: &RedisServer, store: &RedisLockProcessor, holder: &str, entries: &[&str]) {
    server.run::<()>(&["FLUSHALL"]);
    assert!(matches!(store.acquire(&claim(KEY, holder, LEASE), LONG).unwrap(), AcquireOutcome::Acquired(_)));
    wait(store, "z-1");
    let queue = server.queue_of(KEY).unwrap();
    for entry in entries {
        server.run::<()>(&["RPUSH", &queue, entry]);
    }
    server.run::<()>(&["LPOP", &queue]);
}

fn wait(store: &RedisLockProcessor, locker: &str) {
    let outcome = store.ask(&claim(KEY, locker, LEASE), true, LONG).unwrap();
    assert!(matches!(outcome, AcquireOutcome::Busy(_)), "{outcome:?}");
}

fn release(store: &RedisLockProcessor, locker: &str) -> ReleaseOutcome {
    store.release(&claim(KEY, locker, LEASE), LONG).unwrap()
}

/// When the time ends that a marker tells of.
fn end_of(entry: &str) -> u64 {
    mark(entry).0
}

/// When the time ends that a marker tells of, and how many waiters it is for.
fn mark(entry: &str) -> (u64, u64) {
    let words: Vec<_> = entry.split(' ').collect();
    match words[..] {
        ["keep", ends, count] => (ends.parse().unwrap(), count.parse().unwrap()),
        _ => panic!("{entry:?} is no marker"),
    }
}

/// Plays something with a marker whose time begins now; once more if the machine was so slow that it is over.
fn in_time(server: &RedisServer, play: impl Fn(&str)) {
    for _ in 0..50 {
        let ends = now(server) + KEEP;
        let played = catch_unwind(AssertUnwindSafe(|| play(&format!("keep {ends} 1"))));
        match played {
            _ if now(server) >= ends => {}
            Err(panic) => resume_unwind(panic),
            Ok(()) => return,
        }
    }
    panic!("nothing takes so long");
}

/// Shows: S4.
#[test]
fn a_waiter_that_is_passed_over_stays_behind_a_marker_with_the_end_of_its_time() {
    let (server, store) = setup();
    let mut inbox = store.open("c", LONG).unwrap();
    stage(&server, &store, "a-1", &["30000 b-1", "30000 c-1", "30000 d-1"]);
    let queue = server.queue_of(KEY).unwrap();
    let life: i64 = server.run(&["PTTL", &queue]);
    let before = now(&server);
    assert_eq!(release(&store, "a-1"), ReleaseOutcome::Released { waiting: 2 });
    let after = now(&server);
    let entries = server.entries_of(KEY);
    assert_eq!(entries[1..], ["30000 b-1", "30000 d-1"]);
    assert_eq!(mark(&entries[0]).1, 1);
    assert!((before + KEEP..=after + KEEP).contains(&end_of(&entries[0])), "{entries:?} from {before} to {after}");
    assert!((1..=life).contains(&server.run::<i64>(&["PTTL", &queue])), "the marker prolongs nothing");
    match inbox.next(LONG).unwrap() {
        Some(Message::Granted { locker, grant, .. }) => assert_eq!((locker.as_str(), grant.waiting), ("c-1", 2)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_hand_over_in_the_time_leaves_the_marker_and_the_unheard() {
    let (server, store) = setup();
    let _inbox = store.open("c", LONG).unwrap();
    in_time(&server, |marker| {
        stage(&server, &store, "a-1", &[marker, "30000 b-1", "30000 c-1"]);
        let last = claim(KEY, "a-2", LEASE);
        let outcome = store.end_with(&claim(KEY, "a-1", LEASE), Some(&last), LONG).unwrap();
        assert!(matches!(outcome, ReleaseOutcome::Queued(busy) if busy.holder.as_deref() == Some("c-1")));
        assert_eq!(server.entries_of(KEY), [marker, "30000 b-1", "30000 a-2"]);
        // Nobody is heard now. Whoever asks is given the key past the others.
        assert_eq!(release(&store, "c-1"), ReleaseOutcome::Released { waiting: 2 });
        let polled = store.poll(&claim(KEY, "a-2", LEASE), LONG).unwrap();
        assert!(matches!(polled, PollOutcome::Acquired(grant) if grant.waiting == 1), "{polled:?}");
        assert_eq!(server.entries_of(KEY), [marker, "30000 b-1"]);
    });
}

/// Shows: L2.
#[test]
fn a_marker_that_is_over_or_of_a_clock_that_was_stepped_back_goes_with_the_unheard() {
    let (server, store) = setup();
    let _inbox = store.open("c", LONG).unwrap();
    let ahead = now(&server) + 500_000;
    for marker in ["keep 0 2", "keep 1 3", &format!("keep {ahead} 2"), "keep 99999999999999999999999 99999999999999999"]
    {
        stage(&server, &store, "a-1", &[marker, "30000 b-1", "30000 b-2", "30000 c-1", "30000 d-1"]);
        assert_eq!(release(&store, "a-1"), ReleaseOutcome::Released { waiting: 1 }, "{marker}");
        assert_eq!(server.run::<String>(&["GET", KEY]), "c-1", "{marker}");
        assert_eq!(server.entries_of(KEY), ["30000 d-1"], "{marker}");
        // Nobody is left.
        stage(&server, &store, "a-1", &[marker, "30000 b-1", "30000 b-2"]);
        assert_eq!(release(&store, "a-1"), ReleaseOutcome::Released { waiting: 0 }, "{marker}");
        assert_eq!(server.entries_of(KEY), [""; 0], "{marker}");
    }
}

/// Shows: S4, L2.
#[test]
fn only_those_whom_the_marker_counts_go_with_it_and_another_one_begins_the_time_of_the_others() {
    let (server, store) = setup();
    let _inbox = store.open("c", LONG).unwrap();
    let gone = ["30000 b-1", "30000 b-2"];
    let kept = ["30000 b-3", "30000 b-4"];
    let staged = |marker| [&[marker][..], &gone, &kept, &["30000 c-1", "30000 d-1"]].concat();
    let ahead = format!("keep {} 2", now(&server) + 500_000);
    let with_foreign =
        ["gap 1 1", "keep 1 2", "x", gone[0], "x", gone[1], "x", kept[0], "x", kept[1], "30000 c-1", "30000 d-1"];
    for entries in [staged("keep 1 2"), staged(&ahead), with_foreign.to_vec()] {
        stage(&server, &store, "a-1", &entries);
        let after = now(&server) + KEEP;
        let last = claim(KEY, "a-2", LEASE);
        let outcome = store.end_with(&claim(KEY, "a-1", LEASE), Some(&last), LONG).unwrap();
        assert!(matches!(outcome, ReleaseOutcome::Queued(busy) if busy.holder.as_deref() == Some("c-1")));
        let left = server.entries_of(KEY);
        let (ends, count) = mark(&left[0]);
        assert!(ends >= after && count == 2, "{left:?}");
        assert_eq!(left[1..], [&kept[..], &["30000 d-1", "30000 a-2"]].concat());
        assert_eq!(store.inspect(KEY, LONG).unwrap().waiting, 4);
    }
    // Nobody is heard.
    stage(&server, &store, "a-1", &["keep 1 1", "30000 b-1", "30000 b-2"]);
    assert_eq!(release(&store, "a-1"), ReleaseOutcome::Released { waiting: 1 });
    assert_eq!(server.entries_of(KEY)[1..], ["30000 b-2"]);
}

/// Shows: S4.
#[test]
fn the_marker_goes_when_the_first_waiter_is_heard_again_and_polls() {
    let (server, store) = setup();
    let _inbox = store.open("c", LONG).unwrap();
    let poll =
        |locker| assert!(matches!(store.poll(&claim(KEY, locker, LEASE), LONG).unwrap(), PollOutcome::Waiting(_)));
    for before in [&["keep 1 2"][..], &["gap 1 1", "keep 1 2"]] {
        let behind = ["30000 b-1", "30000 c-2"];
        stage(&server, &store, "a-1", &[before, &["30000 c-1"], &behind].concat());
        // Not the first one; then one that is not heard; then both.
        poll("c-2");
        assert_eq!(server.entries_of(KEY), [before, &["30000 c-1"], &behind].concat());
        release(&store, "c-1");
        poll("b-1");
        assert_eq!(server.entries_of(KEY), [before, &behind].concat());
        release(&store, "b-1");
        poll("c-2");
        assert_eq!(server.entries_of(KEY), [&before[..before.len() - 1], &["30000 c-2"]].concat());
    }
}

#[test]
fn the_marker_goes_when_nobody_before_the_winner_is_unheard() {
    let (server, store) = setup();
    let _inbox = store.open("c", LONG).unwrap();
    in_time(&server, |marker| {
        stage(&server, &store, "a-1", &[marker, "30000 c-1", "30000 b-1"]);
        assert_eq!(release(&store, "a-1"), ReleaseOutcome::Released { waiting: 1 });
        assert_eq!(server.entries_of(KEY), ["30000 b-1"]);
    });
}

/// Shows: L2.
#[test]
fn the_marker_goes_with_the_last_waiter_that_gives_up() {
    let (server, store) = setup();
    let gap = format!("gap {} 60000", now(&server) + 50_000);
    for before in [&[][..], &[gap.as_str()]] {
        stage(&server, &store, "a-1", &[before, &["keep 1 1", "30000 b-1", "30000 c-1"]].concat());
        let not_ours = ReleaseOutcome::NotOurs(NotOurs::new(Some("a-1".to_owned())));
        assert_eq!(release(&store, "b-1"), not_ours);
        assert_eq!(server.entries_of(KEY), [before, &["keep 1 1", "30000 c-1"]].concat());
        assert_eq!(release(&store, "b-1"), not_ours);
        assert_eq!(release(&store, "c-1"), not_ours);
        assert_eq!(server.entries_of(KEY), before);
    }
}

#[test]
fn a_marker_counts_behind_a_gap_that_is_over_and_no_second_one_does() {
    let (server, store) = setup();
    let _inbox = store.open("c", LONG).unwrap();
    for (foreign, after) in [("gap 1 60000", false), ("keep 1 1", true), ("keep x 1", true), ("keep", true)] {
        in_time(&server, |marker| {
            let mut entries = vec![marker, "30000 b-1", "30000 c-1", "30000 b-2"];
            entries.insert(usize::from(after), foreign);
            stage(&server, &store, "a-1", &entries);
            assert_eq!(release(&store, "a-1"), ReleaseOutcome::Released { waiting: 2 }, "{foreign}");
            assert_eq!(server.entries_of(KEY), [marker, "30000 b-1", "30000 b-2"], "{foreign}");
        });
    }
}

#[test]
fn what_is_no_marker_gives_nobody_less_time() {
    let (server, store) = setup();
    let _inbox = store.open("c", LONG).unwrap();
    for foreign in [
        "keep",
        "keep 1",
        "keep x 1",
        "keep 1 x",
        "keep 1 1 1",
        "keep -1 1",
        "keep 1.5 1",
        "keep  1 1",
        " keep 1 1",
        "keep 1 1 ",
        "k-1",
    ] {
        stage(&server, &store, "a-1", &[foreign, "30000 b-1", "30000 c-1"]);
        assert_eq!(release(&store, "a-1"), ReleaseOutcome::Released { waiting: 1 }, "{foreign}");
        let entries = server.entries_of(KEY);
        assert!(end_of(&entries[0]) > KEEP, "{foreign}");
        assert_eq!(entries[1..], ["30000 b-1"], "{foreign}");
    }
}

#[test]
fn a_full_server_passes_over_and_drops() {
    let (server, store) = setup();
    let _inbox = store.open("c", LONG).unwrap();
    stage(&server, &store, "a-1", &["30000 b-1", "30000 c-1", "30000 c-2"]);
    server.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(release(&store, "a-1"), ReleaseOutcome::Released { waiting: 2 });
    server.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    server.outlast_the_unheard();
    server.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(release(&store, "c-1"), ReleaseOutcome::Released { waiting: 0 });
    assert_eq!(server.run::<String>(&["GET", KEY]), "c-2");
}

/// The fence is ahead of the clock, so that the only `SET` is the one that gives the key away.
/// Shows: S4, S6.
#[test]
fn a_winner_that_cannot_be_given_the_key_comes_before_those_that_were_passed_over() {
    let (server, store) = setup();
    let mut inbox = store.open("c", LONG).unwrap();
    server.run::<()>(&["ACL", "SETUSER", "no-set", "on", ">s3crt", "~*", "&*", "+@all", "-set"]);
    let denied = RedisLockProcessor::connect(&format!("redis://no-set:s3crt@127.0.0.1:{}", server.port())).unwrap();
    let lock = |entries: &[&str]| {
        stage(&server, &store, "a-1", entries);
        server.run::<()>(&["SET", FENCE, &format!("{}", (now(&server) + 1_000_000) * 1000)]);
        let outcome = denied.end_with(&claim(KEY, "a-1", LEASE), Some(&claim(KEY, "a-2", LEASE)), LONG);
        assert!(matches!(outcome, Err(Error::Denied { .. })), "{outcome:?}");
        assert_eq!(server.run::<String>(&["GET", KEY]), "a-1");
        assert!(server.run::<i64>(&["PTTL", &server.queue_of(KEY).unwrap()]) > 0, "the queue ends");
        server.entries_of(KEY)
    };
    let entries = lock(&["30000 b-1", "30000 c-1", "30000 d-1"]);
    assert!(end_of(&entries[0]) > KEEP);
    assert_eq!(entries[1..], ["30000 c-1", "30000 b-1", "30000 d-1"], "with one marker, and without the next locker");
    // Dropped with those whose time is over; the last one of its queue.
    assert_eq!(lock(&["keep 1 1", "30000 b-1", "30000 c-1", "30000 d-1"]), ["30000 c-1", "30000 d-1"]);
    assert_eq!(lock(&["30000 c-1"]), ["30000 c-1"]);
    assert_eq!(inbox.next(Duration::ZERO).unwrap(), None, "nobody was told");
    assert_eq!(release(&store, "a-1"), ReleaseOutcome::Released { waiting: 0 });
    assert!(matches!(inbox.next(LONG).unwrap(), Some(Message::Granted { locker, .. }) if locker == "c-1"));
}
