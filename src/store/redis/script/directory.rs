//! What is asked for people: who holds and waits, and which keys there are.

use super::reply::{items, natural, remaining, text, unexpected};
use crate::error::Error;
use crate::port::Parties;
use crate::store::redis::net::classify::classify;
use ::redis::Value;

/// Reads who holds a key and who waits for it. Fails with the error that the server's error reply stands for, and with [`Error::Backend`]
/// (unknown) for an unexpected shape.
pub(crate) fn parties(key: &str, reply: &Value) -> Result<Parties, Error> {
    if let Value::ServerError(e) = reply {
        return Err(classify(e, key));
    }
    let read = || match items(reply)? {
        [holder, pttl, waiting, lockers] => {
            let holder = if matches!(holder, Value::Nil) { None } else { Some(text(holder)?) };
            let left = if holder.is_some() { remaining(pttl)? } else { None };
            let lockers = items(lockers)?.iter().map(text).collect::<Option<_>>()?;
            Some(Parties::new(holder, left).with_waiting(lockers, natural(waiting)?))
        }
        _ => None,
    };
    read().ok_or_else(|| unexpected(reply))
}

/// The words that ask for some of the keys.
pub(crate) fn scan(cursor: &str) -> [&str; 6] {
    ["SCAN", cursor, "MATCH", "DLOCK[_:]*", "COUNT", "1000"]
}

/// Reads the reply: the next cursor, and the names that are text.
pub(crate) fn scanned(reply: &Value) -> Result<(String, Vec<String>), Error> {
    if let Value::ServerError(e) = reply {
        return Err(classify(e, ""));
    }
    let name = |value: &Value| match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    };
    let read = || match items(reply)? {
        [cursor, names] => Some((name(cursor)?, items(names)?.iter().filter_map(name).collect())),
        _ => None,
    };
    read().ok_or_else(|| unexpected(reply))
}
