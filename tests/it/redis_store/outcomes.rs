//! What every script does to an empty, busy, queued and foreign key.

use crate::support::{Asking, claim};
use crate::support::{LONG, RedisServer};
use redis_dlock::processor::{Extension, Limit, Operations};
use redis_dlock::{
    AcquireOutcome, Busy, Error, ExtendOutcome, Grant, LockProcessor, Message, NotOurs, Outcome, PollOutcome,
    ProbeOutcome, RedisLockProcessor, ReleaseOutcome, Request,
};
use std::time::Duration;

pub(super) const LEASE: Duration = Duration::from_secs(30);
const KEY: &str = "DLOCK_t_ a {b";

pub(super) fn setup() -> (RedisServer, RedisLockProcessor) {
    let server = RedisServer::start();
    let store = RedisLockProcessor::connect(&server.url()).unwrap();
    (server, store)
}

fn take(store: &RedisLockProcessor, locker: &str) -> Grant {
    match store.acquire(&claim(KEY, locker, LEASE), LONG).unwrap() {
        AcquireOutcome::Acquired(grant) => grant,
        other => panic!("{other:?}"),
    }
}

fn queue_up(store: &RedisLockProcessor, locker: &str, holder: &str) {
    match store.ask(&claim(KEY, locker, LEASE), true, LONG).unwrap() {
        AcquireOutcome::Busy(busy) => check_busy(&busy, holder),
        other => panic!("{other:?}"),
    }
}

fn check_busy(busy: &Busy, holder: &str) {
    assert_eq!(busy.holder.as_deref(), Some(holder));
    let left = busy.remaining.unwrap();
    assert!(left <= LEASE && left > LEASE / 2, "{left:?}");
}

fn holder_and_waiting(store: &RedisLockProcessor) -> (Option<String>, u64) {
    let seen = store.inspect(KEY, LONG).unwrap();
    (seen.holder, seen.waiting)
}

/// Shows: G1, G2, S3.
#[test]
fn a_free_key_is_taken_and_given_back() {
    let (_server, store) = setup();
    let first = take(&store, "a-1");
    assert_eq!(first.waiting, 0);
    let busy = store.acquire(&claim(KEY, "b-1", LEASE), LONG).unwrap();
    assert!(matches!(busy, AcquireOutcome::Busy(b) if b.holder.as_deref() == Some("a-1")));
    assert_eq!(holder_and_waiting(&store), (Some("a-1".into()), 0));
    assert_eq!(store.probe(&claim(KEY, "a-1", LEASE), LONG).unwrap(), ProbeOutcome::Ours);
    let not_ours = NotOurs::new(Some("a-1".into()));
    let probed = store.probe(&claim(KEY, "b-1", LEASE), LONG).unwrap();
    assert_eq!(probed, ProbeOutcome::NotOurs(not_ours.clone()));
    assert_eq!(store.release(&claim(KEY, "b-1", LEASE), LONG).unwrap(), ReleaseOutcome::NotOurs(not_ours));
    assert_eq!(store.release(&claim(KEY, "a-1", LEASE), LONG).unwrap(), ReleaseOutcome::Released { waiting: 0 });
    let gone = ReleaseOutcome::NotOurs(NotOurs::new(None));
    assert_eq!(store.release(&claim(KEY, "a-1", LEASE), LONG).unwrap(), gone);
    assert_eq!(holder_and_waiting(&store), (None, 0));
    assert!(take(&store, "b-2").number > first.number);
}

#[test]
fn a_holder_without_lease_or_dash_is_shown_as_it_is() {
    let (server, store) = setup();
    server.run::<()>(&["SET", KEY, "jvm value"]);
    let outcome = store.ask(&claim(KEY, "a-1", LEASE), true, LONG).unwrap();
    assert_eq!(outcome, AcquireOutcome::Busy(Busy::new("jvm value", None)));
    assert!(matches!(store.poll(&claim(KEY, "a-1", LEASE), LONG).unwrap(), PollOutcome::Waiting(_)));
}

/// Shows: G2.
#[test]
fn polls_tell_ours_waiting_and_gone_and_change_nothing_for_the_last() {
    let (server, store) = setup();
    let first = take(&store, "a-1");
    match store.poll(&claim(KEY, "a-1", LEASE), LONG).unwrap() {
        PollOutcome::Acquired(again) => assert!(again.number > first.number),
        other => panic!("{other:?}"),
    }
    queue_up(&store, "b-1", "a-1");
    assert!(
        matches!(store.poll(&claim(KEY, "b-1", LEASE), LONG).unwrap(), PollOutcome::Waiting(b) if b.holder.as_deref() == Some("a-1"))
    );
    let before = server.contents();
    assert_eq!(store.poll(&claim(KEY, "c-1", LEASE), LONG).unwrap(), PollOutcome::Gone);
    assert_eq!(store.poll(&claim(KEY, "b-1", LEASE * 2), LONG).unwrap(), PollOutcome::Gone);
    assert_eq!(server.contents(), before);
    // The waiter's release takes it out of the queue.
    let not_ours = store.release(&claim(KEY, "b-1", LEASE), LONG).unwrap();
    assert_eq!(not_ours, ReleaseOutcome::NotOurs(NotOurs::new(Some("a-1".into()))));
    assert_eq!(store.poll(&claim(KEY, "b-1", LEASE), LONG).unwrap(), PollOutcome::Gone);
}

/// Shows: G8, G10, L1.
#[test]
fn a_release_hands_over_to_the_first_live_waiter_and_tells_it() {
    let (_server, store) = setup();
    let mut inbox = store.open("b", LONG).unwrap();
    let mut holders_inbox = store.open("a", LONG).unwrap();
    let first = take(&store, "a-1");
    queue_up(&store, "b-1", "a-1");
    let contended = Message::Contended { key: KEY.into(), locker: "a-1".into() };
    assert_eq!(holders_inbox.next(LONG).unwrap(), Some(contended.clone()));
    queue_up(&store, "c-1", "a-1"); // nobody's head, and nobody listens: dead
    store.poll(&claim(KEY, "c-1", LEASE), LONG).unwrap();
    store.poll(&claim(KEY, "b-1", LEASE), LONG).unwrap(); // the head repeats it, c-1 did not
    assert_eq!(holders_inbox.next(LONG).unwrap(), Some(contended));
    assert_eq!(holders_inbox.next(Duration::ZERO).unwrap(), None);

    assert_eq!(store.release(&claim(KEY, "a-1", LEASE), LONG).unwrap(), ReleaseOutcome::Released { waiting: 1 });
    match inbox.next(LONG).unwrap() {
        Some(Message::Granted { key, locker, grant }) => {
            assert_eq!((key.as_str(), locker.as_str(), grant.waiting), (KEY, "b-1", 1));
            assert!(grant.number > first.number);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(holder_and_waiting(&store), (Some("b-1".into()), 1));
    // c-1 is dead: the key is free after b-1.
    assert_eq!(store.release(&claim(KEY, "b-1", LEASE), LONG).unwrap(), ReleaseOutcome::Released { waiting: 1 });
    assert_eq!(holder_and_waiting(&store), (None, 1));
}

/// Shows: L1.
#[test]
fn a_hundred_dead_waiters_in_a_row_are_skipped() {
    let (server, store) = setup();
    take(&store, "a-1");
    for n in 0..100 {
        queue_up(&store, &format!("dead-{n}"), "a-1");
    }
    let mut inbox = store.open("b", LONG).unwrap();
    queue_up(&store, "b-1", "a-1");
    assert_eq!(store.release(&claim(KEY, "a-1", LEASE), LONG).unwrap(), ReleaseOutcome::Released { waiting: 100 });
    assert!(matches!(inbox.next(LONG).unwrap(), Some(Message::Granted { locker, .. }) if locker == "b-1"));
    drop(inbox);
    // Its socket is closed: now it is dead itself. Wait for the server to notice.
    queue_up(&store, "b-2", "b-1");
    let deadline = std::time::Instant::now() + LONG;
    loop {
        let numsub: (String, u64) = server.run(&["PUBSUB", "NUMSUB", "DLOCK:1:inbox:b"]);
        if numsub.1 == 0 {
            break;
        }
        assert!(std::time::Instant::now() < deadline);
    }
    server.outlast_the_unheard();
    // The hundred are dropped. The time of the last one begins.
    assert_eq!(store.release(&claim(KEY, "b-1", LEASE), LONG).unwrap(), ReleaseOutcome::Released { waiting: 1 });
    server.outlast_the_unheard();
    take(&store, "c-1");
    assert_eq!(holder_and_waiting(&store), (Some("c-1".into()), 0));
}

/// Shows: G2, G8, L1.
#[test]
fn the_next_locker_gets_the_key_or_the_queues_end_and_repeats_do_no_harm() {
    let (_server, store) = setup();
    let first = take(&store, "a-1");
    let second = match store.end_with(&claim(KEY, "a-1", LEASE), Some(&claim(KEY, "a-2", LEASE)), LONG).unwrap() {
        ReleaseOutcome::Passed(grant) => grant,
        other => panic!("{other:?}"),
    };
    assert!(second.number > first.number && second.waiting == 0);
    let not_ours = ReleaseOutcome::NotOurs(NotOurs::new(Some("a-2".into())));
    assert_eq!(store.end_with(&claim(KEY, "a-1", LEASE), Some(&claim(KEY, "a-2", LEASE)), LONG).unwrap(), not_ours);
    assert!(matches!(store.poll(&claim(KEY, "a-2", LEASE), LONG).unwrap(), PollOutcome::Acquired(_)));

    let mut inbox = store.open("b", LONG).unwrap();
    queue_up(&store, "b-1", "a-2");
    match store.end_with(&claim(KEY, "a-2", LEASE), Some(&claim(KEY, "a-3", LEASE)), LONG).unwrap() {
        ReleaseOutcome::Queued(busy) => check_busy(&busy, "b-1"),
        other => panic!("{other:?}"),
    }
    let granted = inbox.next(LONG).unwrap();
    assert!(matches!(granted, Some(Message::Granted { grant: Grant { waiting: 1, .. }, .. })), "{granted:?}");
    assert!(matches!(store.poll(&claim(KEY, "a-3", LEASE), LONG).unwrap(), PollOutcome::Waiting(_)));
    // All waiters dead: the next locker gets it.
    match store.end_with(&claim(KEY, "b-1", LEASE), Some(&claim(KEY, "b-2", LEASE)), LONG).unwrap() {
        ReleaseOutcome::Passed(grant) => assert_eq!(grant.waiting, 1),
        other => panic!("{other:?}"),
    }
    assert_eq!(holder_and_waiting(&store), (Some("b-2".into()), 1));
}

/// Shows: G8, S5, L1.
#[test]
fn a_free_key_with_a_queue_goes_to_the_first_live_waiter() {
    let (server, store) = setup();
    let mut inbox = store.open("b", LONG).unwrap();
    let free = || {
        server.run::<()>(&["DEL", KEY]);
    };
    take(&store, "a-1");
    queue_up(&store, "dead-1", "a-1");
    queue_up(&store, "b-1", "a-1");
    free();
    queue_up(&store, "c-1", "b-1");
    let granted = inbox.next(LONG).unwrap();
    assert!(matches!(granted, Some(Message::Granted { grant: Grant { waiting: 2, .. }, .. })), "{granted:?}");
    server.outlast_the_unheard();
    free();
    // The caller is live without an inbox, and its grant is its reply.
    match store.poll(&claim(KEY, "c-1", LEASE), LONG).unwrap() {
        PollOutcome::Acquired(grant) => assert_eq!(grant.waiting, 0),
        other => panic!("{other:?}"),
    }
    queue_up(&store, "dead-2", "c-1");
    queue_up(&store, "b-2", "c-1");
    queue_up(&store, "d-1", "c-1");
    free();
    // A poll may give the key to somebody before the caller.
    assert!(
        matches!(store.poll(&claim(KEY, "d-1", LEASE), LONG).unwrap(), PollOutcome::Waiting(b) if b.holder.as_deref() == Some("b-2"))
    );
    assert!(matches!(inbox.next(LONG).unwrap(), Some(Message::Granted { locker, .. }) if locker == "b-2"));
    server.outlast_the_unheard();
    free();
    // Only dead ones are left: the asker gets it. One of them is passed over for the first time.
    assert!(matches!(store.ask(&claim(KEY, "e-1", LEASE), true, LONG).unwrap(), AcquireOutcome::Acquired(_)));
    assert_eq!(holder_and_waiting(&store), (Some("e-1".into()), 1));
}

/// Shows: S4.
#[test]
fn the_queue_lives_twice_its_longest_lease() {
    let (server, store) = setup();
    take(&store, "a-1");
    let queue = || server.run::<Vec<String>>(&["KEYS", "DLOCK:1:{*}:queue:*"]).pop().unwrap();
    store.ask(&claim(KEY, "b-1", LEASE * 10), true, LONG).unwrap();
    queue_up(&store, "c-1", "a-1");
    store.poll(&claim(KEY, "c-1", LEASE), LONG).unwrap();
    let life: i64 = server.run(&["PTTL", &queue()]);
    assert!(life > 590_000 && life <= 600_000, "{life}");
    assert_eq!(server.run::<i64>(&["LLEN", &queue()]), 2);
}

/// Shows: G3, S2, S3.
#[test]
fn extend_renews_and_hands_out_unissued_numbers() {
    let (server, store) = setup();
    let first = take(&store, "a-1");
    server.run::<()>(&["PEXPIRE", KEY, "5000"]);
    let extended = store.extend(&claim(KEY, "a-1", LEASE), LONG).unwrap();
    assert_eq!(extended, ExtendOutcome::Extended(Extension::while_waiting(0)));
    assert!(server.run::<i64>(&["PTTL", KEY]) > 25_000);
    queue_up(&store, "b-1", "a-1");
    let fresh = |store: &RedisLockProcessor| match store.extend_fresh(&claim(KEY, "a-1", LEASE), LONG).unwrap() {
        ExtendOutcome::Extended(Extension { waiting: 1, numbers: Some(range), .. }) => range,
        other => panic!("{other:?}"),
    };
    let range = fresh(&store);
    assert!(*range.start() > first.number && range.end() - range.start() < 10_000, "{range:?}");
    let later = fresh(&store);
    assert!(later.start() > range.end(), "{later:?} {range:?}");
    // The first number of a connection may not rely on an old fence: the clock alone.
    let other = RedisLockProcessor::connect(&server.url()).unwrap();
    let alone = fresh(&other);
    assert_eq!(alone.start(), alone.end());
    server.run::<()>(&["SET", "DLOCK:1:fence", "8999999999999999"]);
    let none = store.extend_fresh(&claim(KEY, "a-1", LEASE), LONG).unwrap();
    assert_eq!(none, ExtendOutcome::Extended(Extension::while_waiting(1)));
    let not_ours = ExtendOutcome::NotOurs(NotOurs::new(Some("a-1".into())));
    assert_eq!(store.extend_fresh(&claim(KEY, "z-1", LEASE), LONG).unwrap(), not_ours);
}

/// Shows: G7, S2.
#[test]
fn numbers_rise_over_a_lost_fence() {
    let (server, store) = setup();
    let mut last = 0;
    for n in 0..50 {
        if n % 5 == 0 {
            server.run::<()>(&["FLUSHALL"]);
        }
        let locker = format!("a-{n}");
        let number = take(&store, &locker).number;
        assert!(number > last, "{number} after {last}");
        last = number;
        store.release(&claim(KEY, &locker, LEASE), LONG).unwrap();
    }
}

/// Shows: S6.
#[test]
fn foreign_types_are_named_and_nothing_is_written() {
    let (server, store) = setup();
    let queue = {
        take(&store, "a-1");
        queue_up(&store, "b-1", "a-1");
        server.run::<Vec<String>>(&["KEYS", "DLOCK:1:{*}:queue:*"]).pop().unwrap()
    };
    let conflict = |result: Result<Outcome, Error>, word: &str, before: &[(Vec<u8>, Vec<u8>)]| {
        match result {
            Err(Error::Conflict { key, message, .. }) => {
                assert_eq!(key, KEY);
                assert!(message.starts_with(word), "{message}");
            }
            other => panic!("{word}: {other:?}"),
        }
        assert_eq!(server.contents(), before, "{word}");
    };
    let waiting_acquire = |locker| store.ask(&claim(KEY, locker, LEASE), true, LONG).map(Outcome::Acquire);
    let plain_acquire = |locker| store.acquire(&claim(KEY, locker, LEASE), LONG).map(Outcome::Acquire);
    let polled = |locker| store.poll(&claim(KEY, locker, LEASE), LONG).map(Outcome::Poll);
    let released = |locker, next| {
        let next: Option<&str> = next;
        let next = next.map(|next| claim(KEY, next, LEASE));
        store.end_with(&claim(KEY, locker, LEASE), next.as_ref(), LONG).map(Outcome::Release)
    };

    // The lock key.
    for queued in [true, false] {
        server.run::<()>(&["DEL", KEY]);
        server.run::<()>(&["SADD", KEY, "x"]);
        if !queued {
            server.run::<()>(&["DEL", &queue]);
        }
        let before = server.contents();
        conflict(waiting_acquire("c-1"), "lock key", &before);
        conflict(plain_acquire("c-2"), "lock key", &before);
        conflict(polled("b-1"), "lock key", &before);
        let note = NotOurs::new(Some("(a value of another type)".into()));
        let extended = store.extend_fresh(&claim(KEY, "a-1", LEASE), LONG).unwrap();
        assert_eq!(extended, ExtendOutcome::NotOurs(note.clone()));
        let probed = store.probe(&claim(KEY, "a-1", LEASE), LONG).unwrap();
        assert_eq!(probed, ProbeOutcome::NotOurs(note.clone()));
        assert!(matches!(store.inspect(KEY, LONG), Err(Error::Conflict { .. })));
        assert_eq!(server.contents(), before);
        assert_eq!(released("a-1", Some("a-9")).unwrap(), Outcome::Release(ReleaseOutcome::NotOurs(note)));
    }

    // The fence: a text, another type, the greatest integer, one beyond every clock.
    server.run::<()>(&["FLUSHALL"]);
    let fence = "DLOCK:1:fence";
    for foreign in [
        ["SET", fence, "x"],
        ["SADD", fence, "x"],
        ["SET", fence, "9223372036854775807"],
        ["SET", fence, "9100000000000000"],
    ] {
        server.run::<()>(&["FLUSHALL"]);
        server.run::<()>(&foreign);
        conflict(plain_acquire("d-1"), "fence", &server.contents());
        // With a holder and a queue: hand-over, next locker, poll.
        server.run::<()>(&["SET", KEY, "a-1", "PX", "30000"]);
        conflict(polled("a-1"), "fence", &server.contents());
        conflict(released("a-1", Some("a-2")), "fence", &server.contents());
        server.run::<()>(&["RPUSH", &queue, "30000 b-1"]);
        conflict(released("a-1", None), "fence", &server.contents());
        server.run::<()>(&["DEL", KEY]);
        conflict(waiting_acquire("d-2"), "fence", &server.contents());
        conflict(plain_acquire("d-3"), "fence", &server.contents());
        conflict(polled("b-1"), "fence", &server.contents());
    }

    // The queue.
    server.run::<()>(&["FLUSHALL"]);
    server.run::<()>(&["SET", &queue, "x"]);
    let before = server.contents();
    conflict(waiting_acquire("e-1"), "queue", &before);
    conflict(polled("e-1"), "queue", &before);
    conflict(released("e-1", None), "queue", &before);
    server.run::<()>(&["SET", KEY, "a-1", "PX", "30000"]);
    let before = server.contents();
    conflict(released("a-1", None), "queue", &before);
    conflict(released("a-1", Some("a-2")), "queue", &before);
    // A lease is kept all the same.
    let extended = store.extend(&claim(KEY, "a-1", LEASE), LONG).unwrap();
    assert_eq!(extended, ExtendOutcome::Extended(Extension::while_waiting(0)));
}

/// Shows: L1.
#[test]
fn entries_that_no_lock_wrote_are_dropped() {
    let (server, store) = setup();
    take(&store, "a-1");
    queue_up(&store, "b-1", "a-1");
    let queue = server.run::<Vec<String>>(&["KEYS", "DLOCK:1:{*}:queue:*"]).pop().unwrap();
    let mut inbox = store.open("b", LONG).unwrap();
    for foreign in ["", "x", "0 b-1", "-5 b-1", "1.5 b-1", "99999999999999999999 b-1", "30000 b", "30000b-1"] {
        server.run::<()>(&["LPUSH", &queue, foreign]);
    }
    assert_eq!(store.release(&claim(KEY, "a-1", LEASE), LONG).unwrap(), ReleaseOutcome::Released { waiting: 0 });
    assert!(matches!(inbox.next(LONG).unwrap(), Some(Message::Granted { locker, .. }) if locker == "b-1"));
}

/// Shows: S15.
#[test]
fn a_batch_answers_each_request_even_when_the_scripts_were_flushed() {
    let (server, store) = setup();
    for round in 0..3 {
        server.run::<()>(&["SCRIPT", "FLUSH"]);
        let lockers: Vec<(String, String)> = (0..40).map(|n| (format!("k{n}"), format!("a{round}-{n}"))).collect();
        let requests: Vec<Request<'_>> = lockers
            .iter()
            .flat_map(|(k, l)| [Request::Acquire(claim(k, l, LEASE)), Request::Probe(claim(k, l, LEASE))])
            .collect();
        for (i, outcome) in store.run(&requests, Limit::Attempt(LONG)).into_iter().enumerate() {
            match outcome.unwrap() {
                Outcome::Acquire(AcquireOutcome::Acquired(_)) => assert_eq!(i % 2, 0),
                Outcome::Probe(ProbeOutcome::Ours) => assert_eq!(i % 2, 1),
                other => panic!("{i}: {other:?}"),
            }
        }
        let requests: Vec<_> = lockers.iter().map(|(k, l)| Request::Release(claim(k, l, LEASE))).collect();
        for outcome in store.run(&requests, Limit::Attempt(LONG)) {
            assert_eq!(outcome.unwrap(), Outcome::Release(ReleaseOutcome::Released { waiting: 0 }));
        }
    }
    assert!(store.run(&[], Limit::Attempt(LONG)).is_empty());
}
