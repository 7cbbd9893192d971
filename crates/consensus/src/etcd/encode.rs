//! Transactions and entries of etcd as JSON.
//!
//! A transaction has comparisons and two lists of operations. etcd executes the first list if all comparisons hold, and the second one otherwise.
//! Both end with our look. So a refused transaction shows the entries, without a second request.
//!
//! | check | comparison |
//! |---|---|
//! | this session holds it | its lease is this one |
//! | nobody has written it | it was created at revision 0 |
//! | it has not changed | its last change has this revision |
//! | nobody waits | each entry with the prefix has no lease: there is none, or only those of other programs |
//!
//! A transaction that only reads is no entry of the log. The server asks a majority once, for all of its reads, whether it is up to date.
//!
//! An entry that is put with a lease belongs to that lease alone from then on. So passing the lock to a waiter is one put with the waiter's lease.

use crate::json::{from_base64, number, to_base64};
use crate::kv::{Check, Committed, Entry, Transaction, Write};
use crate::names::LOCK_ENTRY;
use serde_json::{Value, json};

/// A request for all entries with a prefix.
pub(super) fn range(prefix: &str) -> Value {
    json!({ "key": to_base64(prefix), "range_end": to_base64(end_of(prefix)) })
}

/// A request for some of the entries with a prefix, from a path on.
pub(super) fn page(prefix: &str, from: &[u8], most: usize) -> Value {
    json!({ "key": to_base64(from), "range_end": to_base64(end_of(prefix)), "limit": most.to_string() })
}

/// A transaction that only looks at the first entries with each of these prefixes. The look at a key begins with its lock's entry, because another
/// program may have written entries before it. The transaction has no comparison, so it always succeeds.
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

/// How many entries of each key such a transaction returns: the lock's, and one waiter's. The gateway passes on no answer of more than 4 MiB. An
/// entry that another program has written between both hides the waiter. The holder then hears of it only by the message of the first waiter.
const FIRST: usize = 2;

/// The first key behind all that have this prefix.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1; // no prefix of ours ends with the greatest byte
    }
    end
}

/// An entry that is not there compares as one that was created at revision 0 and has no lease. With `range_end`, the comparison must hold for each
/// entry of the range. An empty range compares as one entry that is not there.
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
            "target": "LEASE", "result": "EQUAL", "lease": "0",
        }),
    }
}

/// One operation. A put replaces the value and the lease of any entry. The checks of the transaction decide whether it may.
fn operation(write: &Write) -> Value {
    match write {
        // A message may disappear with the session of its writer: the watch has told it by then.
        Write::Hold { path, session, value }
        | Write::Pass { path, to: session, value, .. }
        | Write::Say { path, session, value } => {
            json!({ "request_put": { "key": to_base64(path), "value": to_base64(value), "lease": session } })
        }
        Write::Delete { path } => json!({ "request_delete_range": { "key": to_base64(path) } }),
    }
}

/// A transaction in the gateway's JSON.
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
        // etcd leaves out a field that is false.
        _ => Some(Committed::Refused(range.map(|_| entries))),
    }
}

/// Returns the term of the server that answered. Of a stream of answers it is the highest term.
pub(super) fn term(answer: &Value) -> Option<u64> {
    if let Some(answers) = answer.as_array() {
        return answers.iter().filter_map(term).max();
    }
    number(header(answer)?.get("raft_term")?)
}

/// Returns the name of the cluster that answered. An error has none.
pub(super) fn cluster(answer: &Value) -> Option<u64> {
    number(header(answer.get(0).unwrap_or(answer))?.get("cluster_id")?)
}

/// Returns the header of an answer, or of one document of a stream.
fn header(answer: &Value) -> Option<&Value> {
    answer.get("header").or_else(|| answer.get("result")?.get("header"))
}

/// Returns the revision of the store at which it answered.
pub(super) fn revision(answer: &Value) -> Option<u64> {
    number(answer.get("header")?.get("revision")?)
}

/// Reads the entries of a range. An entry whose path is no text is left out: another program has written it.
pub(super) fn entries(range: &Value) -> Option<Vec<Entry>> {
    let kvs = range.get("kvs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_text = |kv: &&Value| {
        let path = kv.get("key").and_then(Value::as_str).and_then(from_base64);
        path.is_none_or(|path| std::str::from_utf8(&path).is_ok())
    };
    kvs.iter().filter(is_text).map(entry).collect()
}

/// Reads the entries of a page, and the path of its last entry if there are more. An entry that cannot be read is left out: another program has
/// written it. So that path may be no text.
pub(super) fn some_entries(range: &Value) -> Option<(Vec<Entry>, Option<Vec<u8>>)> {
    revision(range)?;
    let kvs = range.get("kvs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let has_more = range.get("more").and_then(Value::as_bool) == Some(true);
    let last = if has_more { Some(from_base64(kvs.last()?.get("key")?.as_str()?)?) } else { None };
    Some((kvs.iter().filter_map(entry).collect(), last))
}

/// Reads an entry. An entry without a lease is held, too, and for ever: somebody has put it there by hand.
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
