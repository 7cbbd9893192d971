//! The four commands of a plain attempt, and what their replies mean.

use crate::error::{BackendFailure, Error};
use crate::store::processor::Claim;
use crate::store::redis::net::classify::classify;
use crate::store::redis::net::resp::Packed;
use crate::store::redis::script::keys::{FENCE, queue_key};
use crate::store::redis::script::reply::HIGHEST_NUMBER;
use crate::store::redis::script::request::millis;
use ::redis::Value;

/// Stands for the holder of a key that was busy at the `SET` and free at the `GET`.
const GONE: &str = "(released meanwhile)";

/// What the four commands found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The locker holds the key, nobody waits, and this is the fence number.
    Taken(u64),
    /// Another locker, this one, holds the key. The caller's locker is not in the store.
    Busy(String),
    /// The server refused to take the key for the locker, which is not in the store.
    Refused,
    /// The locker may hold the key, and must not keep it.
    Doubtful,
}

/// Adds the commands, back to back.
pub(super) fn pack(claim: &Claim<'_>, packed: &mut Packed) {
    let lease = millis(claim.lease);
    packed.words(&["SET", claim.key, claim.locker, "NX", "PX", &lease]);
    packed.words(&["LLEN", &queue_key(claim.key)]);
    packed.words(&["INCR", FENCE]);
    packed.words(&["GET", claim.key]);
    packed.is_confirmed = true;
}

/// Interprets the replies to the four commands.
///
/// # Errors
///
/// [`Error::Backend`] (unknown) when the first reply leaves open whether the command was executed.
pub(super) fn read(replies: &[Value], claim: &Claim<'_>) -> Result<Found, Error> {
    match replies {
        // The key was not taken. The commands after the `SET` have changed nothing but the fence.
        [Value::Nil, _, _, holder] => match holder {
            Value::BulkString(holder) => Ok(Found::Busy(String::from_utf8_lossy(holder).into_owned())),
            // The holder ended between the `SET` and the `GET`.
            Value::Nil => Ok(Found::Busy(GONE.to_owned())),
            // The key has another type: the script reports it.
            _ => Ok(Found::Refused),
        },
        [Value::ServerError(refusal), _, _, _] => match classify(refusal, claim.key) {
            error @ Error::Backend { failure: BackendFailure::Unknown, .. } => Err(error),
            _ => Ok(Found::Refused),
        },
        [Value::Okay, Value::Int(0), Value::Int(number), Value::BulkString(holder)]
            if holder == claim.locker.as_bytes() =>
        {
            match u64::try_from(*number) {
                Ok(number @ 1..=HIGHEST_NUMBER) => Ok(Found::Taken(number)),
                _ => Ok(Found::Doubtful),
            }
        }
        _ => Ok(Found::Doubtful),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const CLAIM: Claim<'_> = Claim::new("k", "l", "l-1", Duration::from_millis(500));

    fn error(line: &str) -> Value {
        ::redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("an error")
    }

    fn holder(locker: &str) -> Value {
        Value::BulkString(locker.into())
    }

    /// Shows: S2, S5.
    #[test]
    fn only_a_key_that_was_ours_all_along_with_nobody_waiting_is_taken() {
        use Value::{Int, Nil, Okay};
        let ours = || holder("l-1");
        assert_eq!(read(&[Okay, Int(0), Int(7), ours()], &CLAIM).ok(), Some(Found::Taken(7)));
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
            assert_eq!(read(&replies, &CLAIM).ok(), Some(Found::Doubtful), "{why}");
        }
        assert_eq!(read(&[Okay, Int(0), Int(7)], &CLAIM).ok(), Some(Found::Doubtful));
    }

    #[test]
    fn a_busy_or_refused_key_holds_nothing_of_the_locker() {
        use Value::{Int, Nil};
        for number in [Int(7), error("READONLY You can't write")] {
            for refusal in [error("READONLY You can't write"), error("OOM command"), error("NOPERM this user")] {
                let replies = [refusal, Int(0), number.clone(), holder("l-2")];
                assert_eq!(read(&replies, &CLAIM).ok(), Some(Found::Refused));
            }
            for (last, found) in [
                (holder("l-2"), Found::Busy("l-2".into())),
                (Nil, Found::Busy(GONE.into())),
                (error("WRONGTYPE Operation against a key"), Found::Refused),
            ] {
                assert_eq!(read(&[Nil, Int(0), number.clone(), last], &CLAIM).ok(), Some(found));
            }
        }
        let unknown = read(&[error("SOMETHING new"), Int(0), Int(7), Nil], &CLAIM);
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
}
