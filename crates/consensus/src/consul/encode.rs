//! Transactions and entries of Consul as JSON.
//!
//! A transaction is a list of verbs, executed in order as one step. If one of them fails, none is executed. The answer says which one failed, but has
//! no entries. The results of the others come without names, one after another, so the reader must know how many each verb has.
//!
//! | write | verbs | results |
//! |---|---|---|
//! | hold | `lock` | 1 |
//! | pass | `unlock`, `lock` | 2 |
//! | say | `lock`, `unlock` | 2 |
//! | delete | `delete` | 0 |
//!
//! A transaction that looks at many prefixes has a verb for each. Consul returns all of their entries in one list. The path of each entry shows its
//! prefix. A transaction with more verbs than the server takes is refused as a whole.
//!
//! `lock` has a session hold an entry that it holds already, or that nobody holds. Otherwise it fails. So passing the lock is `unlock` and `lock` in
//! one transaction, and nobody comes between. An entry that keeps value, flags and session is no change for Consul, and keeps its index.

use crate::json::{from_base64, number, to_base64};
use crate::kv::{Check, Committed, Entry, Transaction, Write};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

/// The flag of a lock, in Go's `api.Lock` and `consul lock`, too: `LockFlagValue`.
pub(super) const LOCK: u64 = 0x2ddc_cbc0_58a5_0c18;

/// The characters that stand in the path of a URL without encoding.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A path of an entry in a URL.
pub(super) fn in_url(path: &str) -> String {
    utf8_percent_encode(path, PLAIN).to_string()
}

/// One verb about one entry.
fn verb(verb: &str, path: &str, fields: &Value) -> Value {
    let mut operation = json!({ "Verb": verb, "Key": path });
    if let (Some(operation), Some(fields)) = (operation.as_object_mut(), fields.as_object()) {
        operation.extend(fields.clone());
    }
    json!({ "KV": operation })
}

/// The verb of a check. It changes nothing, and fails if the check does not hold.
fn check(check: &Check) -> Option<Value> {
    Some(match check {
        Check::HeldBy { path, session } => verb("check-session", path, &json!({ "Session": session })),
        Check::Free { path } => verb("check-not-exists", path, &json!({})),
        Check::Unchanged { path, index } => verb("check-index", path, &json!({ "Index": index })),
        // Consul has no such check. The answer has the entries.
        Check::Nothing { .. } => return None,
    })
}

/// A `lock` or an `unlock`. The flag says to Go's `api.Lock` and to `consul lock` that the entry is a lock of their kind, so that they wait for it and
/// never overwrite it. The value is written by `unlock`, too, which would otherwise empty the entry.
fn hold(word: &str, path: &str, session: &str, value: &[u8]) -> Value {
    verb(word, path, &json!({ "Session": session, "Flags": LOCK, "Value": to_base64(value) }))
}

/// The verbs of one write. A message is a lock and its end in one step, so that its entry stays free for the next message.
fn write(write: &Write) -> Vec<Value> {
    match write {
        Write::Hold { path, session, value } => vec![hold("lock", path, session, value)],
        Write::Pass { path, from, to, value } => {
            vec![hold("unlock", path, from, value), hold("lock", path, to, value)]
        }
        Write::Delete { path } => vec![verb("delete", path, &json!({}))],
        // Consul counts how often an entry was locked. By this count the reader of the inbox sees whether it has missed a message.
        Write::Say { path, session, value } => {
            vec![hold("lock", path, session, value), hold("unlock", path, session, value)]
        }
    }
}

/// A transaction that writes an entry, empty and free, if it is not there.
pub(super) fn create(path: &str) -> Value {
    json!([verb("cas", path, &json!({ "Index": 0, "Flags": LOCK, "Value": "" }))])
}

/// A transaction that deletes entries which may have gone. It is refused if one of them has changed since this index.
pub(super) fn delete(entries: &[(String, u64)]) -> Value {
    entries.iter().map(|(path, index)| verb("delete-cas", path, &json!({ "Index": index }))).collect()
}

/// A transaction in the JSON of `/v1/txn`.
pub(super) fn transaction(transaction: &Transaction) -> Value {
    let checks = transaction.checks.iter().filter_map(check);
    let mut operations: Vec<_> = checks.chain(transaction.writes.iter().flat_map(write)).collect();
    if !transaction.look.is_empty() {
        operations.push(verb("get-tree", &transaction.look, &json!({})));
    }
    operations.into()
}

/// A transaction that only looks, at the entries with each of these prefixes.
pub(super) fn looks(prefixes: &[String]) -> Value {
    prefixes.iter().map(|prefix| verb("get-tree", prefix, &json!({}))).collect()
}

/// Reads the answer to such looks. Consul tells all entries in one list.
pub(super) fn looked(answer: &Value, prefixes: &[String]) -> Option<Vec<Vec<Entry>>> {
    let results = answer.get("Results")?.as_array().map(Vec::as_slice).unwrap_or_default();
    let entries: Option<Vec<_>> = results.iter().map(|result| entry(result.get("KV")?)).collect();
    let mut entries = entries?;
    let mut of = |prefix: &String| entries.extract_if(.., |entry| entry.path.starts_with(prefix)).collect();
    Some(prefixes.iter().map(&mut of).collect())
}

/// How many results a transaction has before those of its look. Deletions have none, and neither have checks that an entry is missing.
fn before_look(transaction: &Transaction) -> usize {
    let of_checks = transaction.checks.iter().map(|check| match check {
        Check::HeldBy { .. } | Check::Unchanged { .. } => 1,
        Check::Free { .. } | Check::Nothing { .. } => 0,
    });
    let of_writes = transaction.writes.iter().map(|write| match write {
        Write::Hold { .. } => 1,
        Write::Pass { .. } | Write::Say { .. } => 2,
        Write::Delete { .. } => 0,
    });
    of_checks.chain(of_writes).sum()
}

/// Reads the answer to a transaction that was executed.
pub(super) fn done(answer: &Value, transaction: &Transaction) -> Option<Committed> {
    let results = answer.get("Results")?.as_array().map(Vec::as_slice).unwrap_or_default();
    let kvs: Option<Vec<_>> = results.iter().map(|result| entry(result.get("KV")?)).collect();
    let kvs = kvs?;
    let index = kvs.iter().map(|entry| entry.changed).max().unwrap_or_default();
    let entries = kvs.get(before_look(transaction)..)?.to_vec();
    Some(Committed::Done { index, entries })
}

/// Returns how often an entry was locked since it was created.
pub(super) fn times_locked(kv: &Value) -> Option<u64> {
    number(kv.get("LockIndex")?)
}

/// Reads a list of entries.
pub(super) fn entries(list: &Value) -> Option<Vec<Entry>> {
    list.as_array()?.iter().map(entry).collect()
}

/// Reads an entry. An entry without a session is free: its holder has released it, or its session kept the entry when it ended.
pub(super) fn entry(kv: &Value) -> Option<Entry> {
    let session = kv.get("Session").and_then(Value::as_str).filter(|session| !session.is_empty());
    let value = match kv.get("Value") {
        Some(Value::String(text)) => from_base64(text)?,
        _ => Vec::new(),
    };
    Some(Entry {
        path: kv.get("Key")?.as_str()?.to_owned(),
        value,
        session: session.map(str::to_owned),
        is_held: session.is_some(),
        is_ours: kv.get("Flags").and_then(number) == Some(LOCK),
        created: number(kv.get("CreateIndex")?)?,
        changed: number(kv.get("ModifyIndex")?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_kept_whole_in_urls() {
        assert_eq!(in_url("dlock/a%2Fb c?/.lock"), "dlock/a%252Fb%20c%3F/.lock");
    }

    #[test]
    fn what_was_looked_at_counts_and_what_was_written_before_does_not() {
        let kv = |path: &str, value: Value, session: &str, index: u64| json!({ "KV": { "Key": path, "Value": value, "Session": session, "Flags": LOCK, "CreateIndex": 1, "ModifyIndex": index } });
        let results = [
            kv("k/.wait/a", Value::Null, "s", 4),
            kv("k/.lock", Value::Null, "s", 9),
            kv("k/.lock", "Yg==".into(), "s", 9),
            kv("k/.wait/b", "Yw==".into(), "t", 5),
        ];
        let (waiter, path, session) = (String::from("k/.wait/a"), String::from("k/.lock"), String::from("s"));
        let transaction = Transaction {
            checks: vec![
                Check::Free { path: path.clone() },
                Check::HeldBy { path: waiter.clone(), session: session.clone() },
            ],
            writes: vec![Write::Hold { path, session, value: Vec::new() }, Write::Delete { path: waiter }],
            look: "k/".into(),
        };
        let Some(Committed::Done { index, entries }) = done(&json!({ "Results": results }), &transaction) else {
            panic!()
        };
        let seen: Vec<_> = entries.iter().map(|entry| (entry.path.as_str(), entry.value.as_slice())).collect();
        assert_eq!((index, seen), (9, vec![("k/.lock", &b"b"[..]), ("k/.wait/b", &b"c"[..])]));
        assert_eq!(done(&json!({ "Results": results[..1] }), &transaction), None);
    }
}
