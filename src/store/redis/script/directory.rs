//! What is asked for people: who holds and waits, what clients say of themselves, and which keys there are.

use super::reply::{remaining, unexpected};
use super::scripts::{Call, Form, LOCKERS, RECORD};
use super::values::{items, natural, text};
use crate::error::Error;
use crate::port::Parties;
use crate::store::redis::net::classify::classify;
use ::redis::Value;

/// How many waiting lockers are named.
pub(crate) const MOST_NAMED: &str = "100";

/// The two scripts here have the same text in both forms.
const FORM: Form = Form::Server;

/// The call that names the lockers of a key.
pub(crate) fn lockers<'a>(key: &'a str, queue: &'a str) -> Call<'a> {
    Call::new(&LOCKERS, FORM, &[key, queue], &[MOST_NAMED])
}

/// Reads the reply.
///
/// # Errors
///
/// The error that the server's error reply stands for; [`Error::Backend`] (unknown) for an unexpected shape.
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

/// The call that keeps, deletes or reads a client record.
pub(crate) fn record<'a>(key: &'a str, args: &[&'a str]) -> Call<'a> {
    Call::new(&RECORD, FORM, &[key], args)
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
