//! What scripts do to keys, queues and fences that only Redis has so. What they do as every store does is in `conformance`.

use crate::support::{Asking, claim};
use crate::support::{LONG, RedisServer};
use crossbeam_channel::bounded;
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

/// An entry of the queue is a locker with its lease.
/// Shows: G2.
#[test]
fn a_poll_with_another_lease_is_of_a_stranger_and_changes_nothing() {
    let (server, store) = setup();
    take(&store, "a-1");
    queue_up(&store, "b-1", "a-1");
    let before = server.contents();
    for claim in [claim(KEY, "c-1", LEASE), claim(KEY, "b-1", LEASE * 2)] {
        assert_eq!(store.poll(&claim, LONG).unwrap(), PollOutcome::Gone);
    }
    assert_eq!(server.contents(), before);
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

/// Shows: S2.
#[test]
fn the_first_numbers_of_a_connection_do_not_rely_on_an_old_fence() {
    let (server, store) = setup();
    take(&store, "a-1");
    let fresh = |store: &RedisLockProcessor| match store.extend_fresh(&claim(KEY, "a-1", LEASE), LONG).unwrap() {
        ExtendOutcome::Extended(extension) => extension.numbers,
        other => panic!("{other:?}"),
    };
    let range = fresh(&store).unwrap();
    // The clock alone.
    let alone = fresh(&RedisLockProcessor::connect(&server.url()).unwrap()).unwrap();
    assert!(alone.start() == alone.end() && alone.start() > range.end(), "{alone:?} after {range:?}");
    server.run::<()>(&["SET", "DLOCK:1:fence", "8999999999999999"]);
    assert_eq!(fresh(&store), None);
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
            Err(error @ Error::Conflict { .. }) => {
                let told = error.to_string();
                assert!(
                    told.starts_with(&format!("lock {KEY:?} needs")) && told.contains(&format!(" else: {word}")),
                    "{told}"
                );
                // Another lock would need the same fence.
                assert_eq!(
                    told.contains("or choose another lock type or target"),
                    !word.starts_with("fence"),
                    "{told}"
                );
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
    let posted = |locker| {
        let (say, answer) = bounded(1);
        let done = Box::new(move |outcome: Result<ReleaseOutcome, Error>| say.send(outcome).unwrap());
        assert!(store.posting().unwrap().post_release(&claim(KEY, locker, LEASE), LONG, done));
        while answer.is_empty() {
            store.posting().unwrap().collect();
        }
        answer.recv().unwrap().map(Outcome::Release)
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
    let named = format!("fence {fence:?}: ");
    for foreign in [
        ["SET", fence, "x"],
        ["SADD", fence, "x"],
        ["SET", fence, "9223372036854775807"],
        ["SET", fence, "9100000000000000"],
    ] {
        server.run::<()>(&["FLUSHALL"]);
        server.run::<()>(&foreign);
        conflict(plain_acquire("d-1"), &named, &server.contents());
        // With a holder and a queue: hand-over, next locker, poll.
        server.run::<()>(&["SET", KEY, "a-1", "PX", "30000"]);
        conflict(polled("a-1"), &named, &server.contents());
        conflict(released("a-1", Some("a-2")), &named, &server.contents());
        server.run::<()>(&["RPUSH", &queue, "30000 b-1"]);
        conflict(released("a-1", None), &named, &server.contents());
        conflict(posted("a-1"), &named, &server.contents());
        server.run::<()>(&["DEL", KEY]);
        conflict(waiting_acquire("d-2"), &named, &server.contents());
        conflict(plain_acquire("d-3"), &named, &server.contents());
        conflict(polled("b-1"), &named, &server.contents());
    }

    // The queue.
    server.run::<()>(&["FLUSHALL"]);
    server.run::<()>(&["SET", &queue, "x"]);
    let (before, named) = (server.contents(), format!("queue {queue:?}: "));
    conflict(waiting_acquire("e-1"), &named, &before);
    conflict(polled("e-1"), &named, &before);
    conflict(released("e-1", None), &named, &before);
    server.run::<()>(&["SET", KEY, "a-1", "PX", "30000"]);
    let before = server.contents();
    conflict(released("a-1", None), &named, &before);
    conflict(posted("a-1"), &named, &before);
    conflict(released("a-1", Some("a-2")), &named, &before);
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
