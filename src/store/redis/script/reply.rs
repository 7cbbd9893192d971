//! The scripts' replies as outcomes. A success is a plain integer, which costs the server least; everything else is an array. Any shape
//! that the scripts do not document is an error.

use super::keys::{FENCE, queue_name, slot_fence_key, tag_for};
use super::scripts::Form;
use crate::error::{BackendFailure, Error};
use crate::one_line::OneLine;
use crate::port::{
    AcquireOutcome, Break, BreakOutcome, Broken, Busy, DelayReleaseOutcome, ExtendOutcome, Extension, Grant,
    Inspection, NotOurs, Outcome, Parties, PollOutcome, ProbeOutcome, ReleaseOutcome, Request,
};
use crate::store::redis::net::classify::classify;
use crate::store::redis::net::resp::shape;
use ::redis::Value;
use std::time::Duration;

/// The highest fence number that a script issues: beyond it Lua's numbers are not exact, and tokens do not fit a signed column.
pub(crate) const HIGHEST_NUMBER: u64 = 9_007_199_254_740_991;

/// What the scripts report as the holder of a key that is kept free for pollers.
const POLLERS: &str = "(free for pollers)";

/// How many characters of what the key says are read: other programs may write it, too.
const MOST_READ: usize = 4096;

/// A reply has a shape that the scripts do not document.
#[derive(Debug, PartialEq)]
struct Unexpected;

type Read<T> = Result<T, Unexpected>;

/// Reads the reply to a request. Fails with the error that the server's error reply stands for, and with [`Error::Backend`] (unknown) for an
/// unexpected shape.
pub(crate) fn outcome(request: &Request<'_>, reply: &Value) -> Result<Outcome, Error> {
    if let Value::ServerError(e) = reply {
        return Err(classify(e, request.key()));
    }
    let found = match request {
        Request::Acquire(_) | Request::Join(_) => acquire(reply).map(Outcome::Acquire),
        Request::Poll(_) => poll(reply).map(Outcome::Poll),
        Request::Extend(_) | Request::ExtendWithNumbers(_) => extend(reply).map(Outcome::Extend),
        Request::Release(_) | Request::HandOver(..) => released(reply).map(Outcome::Release),
        Request::DelayRelease(..) => delayed(reply).map(Outcome::DelayRelease),
        Request::Probe(_) => probe(reply).map(Outcome::Probe),
        Request::Inspect { .. } => inspection(reply).map(Outcome::Inspect),
        Request::Break(_) => break_outcome(reply).map(Outcome::Break),
        Request::Broken { .. } => broken(reply).map(Outcome::Broken),
        // The store refuses it.
        Request::Settle(_) => Err(Unexpected),
    };
    found.map_err(|Unexpected| unexpected(reply))
}

/// Reads the reply to a posted release, as [`outcome`] does.
pub(crate) fn release(key: &str, reply: &Value) -> Result<ReleaseOutcome, Error> {
    read(reply, key, released)
}

/// Reads a reply about a key, as [`outcome`] does.
fn read<T>(reply: &Value, key: &str, found: impl FnOnce(&Value) -> Read<T>) -> Result<T, Error> {
    match reply {
        Value::ServerError(e) => Err(classify(e, key)),
        reply => found(reply).map_err(|Unexpected| unexpected(reply)),
    }
}

fn unexpected(reply: &Value) -> Error {
    let message = format!("the server's reply has an unexpected shape, {}: is a proxy in between?", shape(reply));
    Error::backend(BackendFailure::Unknown, message)
}

/// Returns the error with the name of the helper key that is in use. A script says only which one it is: `queue: the value is of another type`.
pub(crate) fn with_name(error: Error, form: Form) -> Error {
    let Error::Conflict { key, message } = error else { return error };
    let message = match (message.split_once(": "), form) {
        (Some(("queue", what)), _) => {
            format!("queue {:?}: {what}", queue_name(&tag_for(&key).to_string(), &key).concat())
        }
        (Some(("fence", what)), Form::Server) => format!("fence {FENCE:?}: {what}"),
        (Some(("fence", what)), Form::Cluster) => format!("fence {:?}: {what}", slot_fence_key(&key)),
        _ => message,
    };
    Error::Conflict { key, message }
}

/// The error for an outcome of another kind than its request. It is never seen, because [`outcome`] pairs the two.
pub(crate) fn mismatch() -> Error {
    Error::backend(BackendFailure::Unknown, "a reply was read as another request's: bug in redis-dlock, please report")
}

fn inspection(reply: &Value) -> Read<Inspection> {
    match items(reply)? {
        [Value::Nil, _, waiting] => Ok(Inspection::free().with_waiting(natural(waiting)?)),
        [holder, pttl, waiting] => {
            Ok(Inspection::held_by(text(holder)?, remaining(pttl)?).with_waiting(natural(waiting)?))
        }
        _ => Err(Unexpected),
    }
}

fn acquire(reply: &Value) -> Read<AcquireOutcome> {
    if let Value::Int(_) = reply {
        return Ok(AcquireOutcome::Acquired(Grant::new(number(reply)?, 0)));
    }
    match items(reply)? {
        [Value::Int(1), number, waiting] => Ok(AcquireOutcome::Acquired(grant(number, waiting)?)),
        [Value::Int(0), holder, pttl] => Ok(AcquireOutcome::Busy(busy(holder, pttl)?)),
        _ => Err(Unexpected),
    }
}

fn poll(reply: &Value) -> Read<PollOutcome> {
    match items(reply)? {
        [Value::Int(1), number, waiting] => Ok(PollOutcome::Acquired(grant(number, waiting)?)),
        [Value::Int(2), holder, pttl] => Ok(PollOutcome::Waiting(busy(holder, pttl)?)),
        [Value::Int(3)] => Ok(PollOutcome::Gone),
        _ => Err(Unexpected),
    }
}

fn extend(reply: &Value) -> Read<ExtendOutcome> {
    if let Value::Int(_) = reply {
        return Ok(ExtendOutcome::Extended(Extension::while_waiting(natural(reply)?)));
    }
    match items(reply)? {
        [Value::Int(1), waiting, low, high] => {
            let (low, high) = (number(low)?, number(high)?);
            let extension = Extension::while_waiting(natural(waiting)?).with_numbers(Some(low..=high));
            if low <= high { Ok(ExtendOutcome::Extended(extension)) } else { Err(Unexpected) }
        }
        [Value::Int(0), holder] => Ok(ExtendOutcome::NotOurs(not_ours(holder)?)),
        _ => Err(Unexpected),
    }
}

fn released(reply: &Value) -> Read<ReleaseOutcome> {
    if let Value::Int(_) = reply {
        return Ok(ReleaseOutcome::Released { waiting: natural(reply)? });
    }
    match items(reply)? {
        [Value::Int(2), number, waiting] => Ok(ReleaseOutcome::Passed(grant(number, waiting)?)),
        [Value::Int(3), holder, pttl] => Ok(ReleaseOutcome::Queued(busy(holder, pttl)?)),
        [Value::Int(0), holder] => Ok(ReleaseOutcome::NotOurs(not_ours(holder)?)),
        _ => Err(Unexpected),
    }
}

fn delayed(reply: &Value) -> Read<DelayReleaseOutcome> {
    one_or_not_ours(reply, DelayReleaseOutcome::Delayed, DelayReleaseOutcome::NotOurs)
}

fn probe(reply: &Value) -> Read<ProbeOutcome> {
    one_or_not_ours(reply, ProbeOutcome::Ours, ProbeOutcome::NotOurs)
}

/// Reads `1`, or what the key contains.
fn one_or_not_ours<T>(reply: &Value, one: T, other: fn(NotOurs) -> T) -> Read<T> {
    match reply {
        Value::Int(1) => Ok(one),
        reply => match items(reply)? {
            [Value::Int(0), holder] => not_ours(holder).map(other),
            _ => Err(Unexpected),
        },
    }
}

/// A fence number.
fn number(value: &Value) -> Read<u64> {
    let number = natural(value)?;
    if number <= HIGHEST_NUMBER { Ok(number) } else { Err(Unexpected) }
}

fn grant(fence: &Value, waiting: &Value) -> Read<Grant> {
    Ok(Grant::new(number(fence)?, natural(waiting)?))
}

fn busy(holder: &Value, pttl: &Value) -> Read<Busy> {
    let (holder, remaining) = (text(holder)?, remaining(pttl)?);
    Ok(if holder == POLLERS { Busy::free(remaining) } else { Busy::new(holder, remaining) })
}

/// The time that `PTTL` tells. It is `None` for a key without a lease.
fn remaining(pttl: &Value) -> Read<Option<Duration>> {
    match pttl {
        Value::Int(-1) => Ok(None),
        Value::Int(ms) => Ok(Some(Duration::from_millis(u64::try_from(*ms).unwrap_or(0)))),
        _ => Err(Unexpected),
    }
}

fn not_ours(holder: &Value) -> Read<NotOurs> {
    holder_of(holder).map(NotOurs::new)
}

/// Who holds a key. It is `None` if nobody does.
fn holder_of(value: &Value) -> Read<Option<String>> {
    match value {
        Value::Nil => Ok(None),
        holder => text(holder).map(Some),
    }
}

/// Reads the reply to a break.
fn break_outcome(reply: &Value) -> Read<BreakOutcome> {
    match items(reply)? {
        [Value::Int(1), next, waiting] => {
            Ok(BreakOutcome::Broken { next: holder_of(next)?, waiting: natural(waiting)? })
        }
        [Value::Int(0), other] => Ok(BreakOutcome::NotHeldBy { holder: holder_of(other)? }),
        _ => Err(Unexpected),
    }
}

/// Returns the bytes of a holder that was not broken, if it is shown as the order names it, and not as it is.
pub(crate) fn holder_without_name<'v>(order: &Break<'_>, reply: &'v Value) -> Option<&'v [u8]> {
    match items(reply).ok()? {
        [Value::Int(0), holder @ Value::BulkString(bytes)] => {
            (*bytes != *order.locker.as_bytes() && text(holder).ok()? == order.locker).then_some(bytes)
        }
        _ => None,
    }
}

/// Reads what the key says by whom a hold was broken. It is `None` if there is no such key.
fn broken(reply: &Value) -> Read<Option<Broken>> {
    match reply {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => Ok(Some(read_words(bytes))),
        _ => Err(Unexpected),
    }
}

/// Reads the text of the key. The result is on one line, even if another program wrote the key.
pub(super) fn read_words(bytes: &[u8]) -> Broken {
    let text: String = String::from_utf8_lossy(bytes).chars().take(MOST_READ).collect();
    let text = OneLine(text).to_string();
    let (by, reason) = text.split_once(' ').unwrap_or((&text, ""));
    Broken::new(by, reason)
}

// What is asked for people.

/// Reads who holds a key and who waits for it. Fails with the error that the server's error reply stands for, and with [`Error::Backend`]
/// (unknown) for an unexpected shape.
pub(crate) fn parties(key: &str, reply: &Value) -> Result<Parties, Error> {
    read(reply, key, |reply| match items(reply)? {
        [holder, pttl, waiting, lockers] => {
            let holder = holder_of(holder)?;
            let left = if holder.is_some() { remaining(pttl)? } else { None };
            let lockers = items(lockers)?.iter().map(text).collect::<Result<_, _>>()?;
            Ok(Parties::new(holder, left).with_waiting(lockers, natural(waiting)?))
        }
        _ => Err(Unexpected),
    })
}

/// The words that ask for some of the keys of a server.
pub(crate) fn scan(cursor: &str) -> [&str; 6] {
    ["SCAN", cursor, "MATCH", "DLOCK[_:]*", "COUNT", "1000"]
}

/// Reads the reply to [`scan`]: the next cursor, and the names that are text.
pub(crate) fn scanned(reply: &Value) -> Result<(String, Vec<String>), Error> {
    let name = |value: &Value| match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    };
    read(reply, "", |reply| match items(reply)? {
        [cursor, names] => Ok((name(cursor).ok_or(Unexpected)?, items(names)?.iter().filter_map(name).collect())),
        _ => Err(Unexpected),
    })
}

// The elements of replies.

fn items(reply: &Value) -> Read<&[Value]> {
    match reply {
        Value::Array(items) => Ok(items),
        _ => Err(Unexpected),
    }
}

fn natural(value: &Value) -> Read<u64> {
    match value {
        Value::Int(n) => u64::try_from(*n).map_err(|_| Unexpected),
        _ => Err(Unexpected),
    }
}

fn text(value: &Value) -> Read<String> {
    match value {
        Value::BulkString(bytes) => Ok(holder_text(bytes)),
        _ => Err(Unexpected),
    }
}

/// Shows a holder, which may be any bytes, because another program may have written the key. Bytes that are no text are escaped. So are the
/// backslashes of a text that looks escaped: two different holders must not look alike to an operator who breaks one of them.
pub(crate) fn holder_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.contains("\\x") => text.replace('\\', "\\\\"),
        Ok(text) => text.to_owned(),
        Err(_) => bytes.escape_ascii().to_string(),
    }
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/script/reply.rs"]
mod tests;
