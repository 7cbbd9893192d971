//! Transactions and entries of etcd as JSON.
//!
//! A transaction has comparisons and two lists of operations: one is executed if all comparisons hold, the other if not. Both end with our look,
//! so that a transaction that is refused tells what is there, and no second request asks for it.
//!
//! | check | comparison |
//! |---|---|
//! | this session holds it | its lease is this one |
//! | nobody has written it | it was created at revision 0 |
//! | it has not changed | its last change has this revision |
//! | nobody waits | each entry with the prefix was created at revision 0: there is none |
//!
//! A transaction that only reads is no entry of the log: the server asks a majority whether it still knows all, once for all of its reads.
//!
//! An entry that is put with a lease belongs to it from then on, and to no other one. So passing the lock to a waiter is one put with its lease.

use crate::json::{from_base64, number, to_base64};
use crate::kv::{Check, Committed, Entry, Transaction, Write};
use crate::names::LOCK_ENTRY;
use serde_json::{Value, json};

/// A request for all entries with a prefix.
pub(super) fn range(prefix: &str) -> Value {
    json!({ "key": to_base64(prefix), "range_end": to_base64(end_of(prefix)) })
}

/// A request for some of them, from a path on.
pub(super) fn page(prefix: &str, from: &[u8], most: usize) -> Value {
    json!({ "key": to_base64(from), "range_end": to_base64(end_of(prefix)), "limit": most.to_string() })
}

/// A transaction that only looks, at the first entries with each of these prefixes; of a key from its lock's on, because another program may have
/// written others before that. It has no comparison, so it always succeeds.
pub(super) fn looks(prefixes: &[String]) -> Value {
    let look = |prefix: &String| {
        let from = if prefix.ends_with('/') { format!("{prefix}{LOCK_ENTRY}") } else { prefix.clone() };
        json!({ "request_range": page(prefix, from.as_bytes(), FIRST) })
    };
    json!({ "success": prefixes.iter().map(look).collect::<Vec<_>>() })
}

/// Reads the answer to this many looks.
pub(super) fn looked(answer: &Value, count: usize) -> Option<Vec<Vec<Entry>>> {
    let responses = answer.get("responses")?.as_array().filter(|responses| responses.len() == count)?;
    responses.iter().map(|response| entries(response.get("response_range")?)).collect()
}

/// How many entries of each key such a transaction tells: the lock's, and one of those who wait. The gateway passes on no answer of more than 4 MiB.
/// What another program has written between both hides that somebody waits: then the holder hears it by the message of the first waiter alone.
const FIRST: usize = 2;

/// The first key behind all that have this prefix.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1; // no prefix of ours ends with the greatest byte
    }
    end
}

/// An entry that is not there compares as one that was created at revision 0. With `range_end`, the comparison must hold for each entry of the
/// range; of an empty range it always does.
fn compare(check: &Check) -> Value {
    match check {
        Check::HeldBy { path, session } => {
            json!({ "key": to_base64(path), "target": "LEASE", "result": "EQUAL", "lease": session })
        }
        Check::Free { path } => {
            json!({ "key": to_base64(path), "target": "CREATE", "result": "EQUAL", "create_revision": "0" })
        }
        Check::Unchanged { path, index } => {
            json!({ "key": to_base64(path), "target": "MOD", "result": "EQUAL", "mod_revision": index.to_string() })
        }
        Check::Nothing { prefix } => json!({
            "key": to_base64(prefix), "range_end": to_base64(end_of(prefix)),
            "target": "CREATE", "result": "EQUAL", "create_revision": "0",
        }),
    }
}

/// One operation. A put replaces value and lease of an entry, whoever had it: the checks of the transaction say whether it may.
fn operation(write: &Write) -> Value {
    match write {
        // A message may go with the session of whoever wrote it: the watch has told it then.
        Write::Hold { path, session, value }
        | Write::Pass { path, to: session, value, .. }
        | Write::Say { path, session, value } => {
            json!({ "request_put": { "key": to_base64(path), "value": to_base64(value), "lease": session } })
        }
        Write::Delete { path } => json!({ "request_delete_range": { "key": to_base64(path) } }),
    }
}

/// A transaction, as the gateway wants it.
pub(super) fn transaction(transaction: &Transaction) -> Value {
    let mut success: Vec<_> = transaction.writes.iter().map(operation).collect();
    let mut failure = Vec::new();
    if !transaction.look.is_empty() {
        let look = json!({ "request_range": range(&transaction.look) });
        success.push(look.clone());
        failure.push(look);
    }
    let compares: Vec<_> = transaction.checks.iter().map(compare).collect();
    json!({ "compare": compares, "success": success, "failure": failure })
}

/// Reads the answer to a transaction.
pub(super) fn committed(answer: &Value) -> Option<Committed> {
    let index = revision(answer)?;
    let responses = answer.get("responses").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let range = responses.iter().find_map(|response| response.get("response_range"));
    let entries = range.map_or(Some(Vec::new()), entries)?;
    match answer.get("succeeded").and_then(Value::as_bool) {
        Some(true) => Some(Committed::Done { index, entries }),
        // What is false is left out.
        _ => Some(Committed::Refused(range.map(|_| entries))),
    }
}

/// Returns the term of whoever answered; the highest one of a stream of answers.
pub(super) fn term(answer: &Value) -> Option<u64> {
    if let Some(answers) = answer.as_array() {
        return answers.iter().filter_map(term).max();
    }
    let header = |value: &Value| number(value.get("header")?.get("raft_term")?);
    header(answer).or_else(|| header(answer.get("result")?))
}

/// Returns the revision up to which an answer is.
pub(super) fn revision(answer: &Value) -> Option<u64> {
    number(answer.get("header")?.get("revision")?)
}

/// Reads the entries of a range.
pub(super) fn entries(range: &Value) -> Option<Vec<Entry>> {
    let kvs = range.get("kvs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    kvs.iter().map(entry).collect()
}

/// Reads the entries of a page, and the path of its last one if there are more. What cannot be read is left out: whoever may write here has put
/// it there. So that path is perhaps no text.
pub(super) fn some_entries(range: &Value) -> Option<(Vec<Entry>, Option<Vec<u8>>)> {
    revision(range)?;
    let kvs = range.get("kvs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let has_more = range.get("more").and_then(Value::as_bool) == Some(true);
    let last = if has_more { Some(from_base64(kvs.last()?.get("key")?.as_str()?)?) } else { None };
    Some((kvs.iter().filter_map(entry).collect(), last))
}

/// Reads an entry. One without a lease is held, too, and for ever: somebody has put it there by hand.
pub(super) fn entry(kv: &Value) -> Option<Entry> {
    let bytes = |name: &str| kv.get(name).and_then(Value::as_str).map_or(Some(Vec::new()), from_base64);
    let lease = kv.get("lease").and_then(number).filter(|lease| *lease != 0);
    Some(Entry {
        path: String::from_utf8(bytes("key")?).ok()?,
        value: bytes("value")?,
        session: lease.map(|lease| lease.to_string()),
        is_held: true,
        is_ours: true,
        created: number(kv.get("create_revision")?)?,
        changed: number(kv.get("mod_revision")?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_one() {
        assert_eq!(end_of("a/"), b"a0");
    }

    #[test]
    fn answers_are_read() {
        let kv = json!({ "key": "YQ==", "create_revision": "2", "mod_revision": "3", "value": "Yg==", "lease": "7" });
        let entry = Entry {
            path: "a".into(),
            value: b"b".into(),
            session: Some("7".into()),
            is_held: true,
            is_ours: true,
            created: 2,
            changed: 3,
        };
        let header = json!({ "revision": "9" });
        let responses = json!([{ "response_put": {} }, { "response_range": { "kvs": [kv] } }]);
        let done = json!({ "header": header, "succeeded": true, "responses": responses });
        assert_eq!(committed(&done), Some(Committed::Done { index: 9, entries: vec![entry.clone()] }));
        let refused = json!({ "header": header, "responses": responses });
        assert_eq!(committed(&refused), Some(Committed::Refused(Some(vec![entry]))));
        assert_eq!(committed(&json!({ "header": header })), Some(Committed::Refused(None)));
        assert_eq!(committed(&json!({})), None);
    }
}
