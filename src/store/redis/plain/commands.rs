//! The four commands of a plain attempt, and what their replies mean.

use crate::error::{BackendFailure, Error};
use crate::port::Claim;
use crate::store::redis::net::classify::classify;
use crate::store::redis::net::resp::Packed;
use crate::store::redis::script::keys::{FENCE, queue_key};
use crate::store::redis::script::reply::HIGHEST_NUMBER;
use crate::store::redis::script::scripts::millis;
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
pub(super) fn read(replies: &[&Value], claim: &Claim<'_>) -> Result<Found, Error> {
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
#[path = "../../../../tests/white_box/store/redis/plain/commands.rs"]
mod tests;
