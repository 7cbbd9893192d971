//! Unit tests of `src/store/redis/plain/attempt.rs`.

use super::*;
use crate::store::redis::script::keys::queue_key;
use std::time::Duration;

const CLAIM: Claim<'_> = Claim::new("k", "l", "l-1", Duration::from_millis(500));

fn error(line: &str) -> Value {
    ::redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("an error")
}

fn holder(locker: &str) -> Value {
    Value::BulkString(locker.into())
}

fn read_all(replies: &[Value]) -> Result<Found, Error> {
    read(&replies.iter().collect::<Vec<_>>(), &CLAIM)
}

/// Shows: S2, S5.
#[test]
fn only_a_key_that_was_ours_all_along_with_nobody_waiting_is_taken() {
    use Value::{Int, Nil, Okay};
    let ours = || holder("l-1");
    assert_eq!(read_all(&[Okay, Int(0), Int(7), ours()]).ok(), Some(Found::Taken(7)));
    let none = || error("ERR value is not an integer or out of range");
    for (replies, why) in [
        ([Okay, Int(1), Int(7), ours()], "others wait"),
        ([Okay, none(), Int(7), ours()], "no queue"),
        ([Okay, Int(0), none(), ours()], "no number"),
        ([Okay, Int(0), Int(0), ours()], "no number of a fence"),
        ([Okay, Int(0), Int(-7), ours()], "no number of a fence"),
        ([Okay, Int(0), Int(i64::MAX), ours()], "beyond every clock"),
        ([Okay, Int(0), Int(7), Nil], "lost before the number was looked at"),
        ([Okay, Int(0), Int(7), holder("l-2")], "somebody else's by then"),
        ([Okay, Int(0), Int(7), none()], "unknown whose"),
        ([Int(1), Int(0), Int(7), ours()], "no reply to SET"),
    ] {
        assert_eq!(read_all(&replies).ok(), Some(Found::Doubtful), "{why}");
    }
    assert_eq!(read_all(&[Okay, Int(0), Int(7)]).ok(), Some(Found::Doubtful));
}

#[test]
fn a_busy_or_refused_key_holds_nothing_of_the_locker() {
    use Value::{Int, Nil};
    for number in [Int(7), error("READONLY You can't write")] {
        for refusal in [error("READONLY You can't write"), error("OOM command"), error("NOPERM this user")] {
            let replies = [refusal, Int(0), number.clone(), holder("l-2")];
            assert_eq!(read_all(&replies).ok(), Some(Found::Refused));
        }
        for (last, found) in [
            (holder("l-2"), Found::Busy("l-2".into())),
            (Nil, Found::Busy(GONE.into())),
            (error("WRONGTYPE Operation against a key"), Found::Refused),
        ] {
            assert_eq!(read_all(&[Nil, Int(0), number.clone(), last]).ok(), Some(found));
        }
    }
    let unknown = read_all(&[error("SOMETHING new"), Int(0), Int(7), Nil]);
    assert!(matches!(unknown, Err(Error::Backend { failure: BackendFailure::Unknown, .. })), "{unknown:?}");
}

/// Shows: S2.
#[test]
fn the_commands_are_packed_in_the_order_that_the_proof_needs() {
    let mut packed = Packed::for_one();
    pack(&CLAIM, &mut packed);
    let mut wanted = Vec::new();
    for words in
        [&["SET", "k", "l-1", "NX", "PX", "500"][..], &["LLEN", &queue_key("k")], &["INCR", FENCE], &["GET", "k"]]
    {
        wanted.extend(::redis::cmd(words[0]).arg(&words[1..]).get_packed_command());
    }
    assert_eq!((packed.replies(), packed.bytes), (4, wanted));
}

#[test]
fn a_key_that_was_busy_is_contended_until_some_successes_in_a_row() {
    let (contention, name) = (Contention::new(), "DLOCK_a_b");
    let key = KeyHash::of(name);
    let taken = Outcome::Acquire(AcquireOutcome::Acquired(Grant::new(1, 0)));
    let busy = Outcome::Acquire(AcquireOutcome::Busy(Busy::new("l-2", None)));
    assert!(!contention.is_at(key));
    for _ in 0..3 {
        contention.note(key, &busy);
        assert!(contention.is_at(key));
        (1..SUCCESSES).for_each(|_| contention.note(key, &taken));
        assert!(contention.is_at(key));
    }
    contention.note(key, &taken);
    assert!(!contention.is_at(key));
    contention.note(key, &Outcome::Release(ReleaseOutcome::Released { waiting: 0 }));
    assert!(!contention.is_at(key));
    contention.note(key, &Outcome::Release(ReleaseOutcome::Released { waiting: 1 }));
    assert!(contention.is_at(key));
}
