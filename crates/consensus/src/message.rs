//! The messages between clients, as the store keeps them.
//!
//! A message is the value of the receiver's inbox. etcd tells every change of it. Consul shows only the last value, so a message may replace one that
//! nobody has seen. Each message locks and unlocks the entry, and Consul counts the locks (`LockIndex`). By the count a reader sees that it has
//! missed a message, and tells [`Message::Changed`]: the client asks about all that it waits for. Two kinds of messages are not found by such a
//! question: words of other clients, and the order that broke a hold. On Consul they have entries of their own below the inbox.
//!
//! A message is a hint. The lock's entry contains a grant, and the queue contains the waiters, so a poll tells both without the message. A holder
//! that is told who waits gives the key to that waiter by a transaction. The transaction finds the waiter's entry in the queue of the key, or does
//! nothing.

use super::kv::Change;
use super::names::{Names, Party};
use super::snapshot::{Offer, WaitingEntry};
use redis_dlock::port::{Grant, Message};
use serde_json::{Value, json};

/// Tells a waiter that it has the key, with this entry. The fencing number is the index of the message, unless the waiter has to confirm.
pub(super) fn granted(key: &str, locker: &str, waiting: u64, entry: &[u8]) -> Vec<u8> {
    let mut message = json!({ "granted": key, "who": locker, "waiting": waiting });
    if Party::read(entry, None).is_offered {
        message["entry"] = String::from_utf8_lossy(entry).into();
    }
    message.to_string().into_bytes()
}

/// The longest entry that a message to a holder contains: each request to Consul has the message twice, and Consul refuses long requests.
const LONGEST_ENTRY: usize = 4096;

/// Tells a holder that somebody waits, with the entry that it needs to give that waiter the key without a look.
pub(super) fn contended(key: &str, locker: &str, first: &WaitingEntry) -> Vec<u8> {
    let mut message = json!({ "contended": key, "who": locker, "by": first.party.locker });
    if let Some(entry) = str::from_utf8(&first.value).ok().filter(|entry| entry.len() <= LONGEST_ENTRY) {
        (message["entry"], message["session"]) = (entry.into(), first.session.as_str().into());
    }
    message.to_string().into_bytes()
}

/// Returns the waiter that a message to a holder names, if the message has all that the holder needs, and the entry in it is that waiter's.
pub(super) fn first_waiter(change: &Change, names: &Names) -> Option<WaitingEntry> {
    let text: Value = serde_json::from_slice(&change.value).ok()?;
    let word = |name: &str| text.get(name)?.as_str().map(str::to_owned);
    let (value, session) = (word("entry")?.into_bytes(), word("session")?);
    let (party, by) = (Party::read(&value, Some(&session)), word("by")?);
    let path = names.waiter(&word("contended")?, &by);
    (party.locker == by).then_some(WaitingEntry { party, path, session, value })
}

/// Tells a holder that its hold was broken. An inbox of etcd keeps one message of a transaction, so this one may stand for others, too.
pub(super) fn broken(key: &str, locker: &str, is_merged: bool) -> Vec<u8> {
    json!({ "broken": key, "who": locker, "merged": is_merged }).to_string().into_bytes()
}

/// Tells the words of another client.
pub(super) fn said(text: &str) -> Vec<u8> {
    json!({ "said": text }).to_string().into_bytes()
}

/// Returns the offer that a change of an inbox tells. For a client that knows no offers, the message says that the key has changed.
pub(super) fn offer(change: &Change) -> Option<Offer> {
    let text: Value = serde_json::from_slice(&change.value).ok()?;
    let word = |name: &str| text.get(name)?.as_str().map(str::to_owned);
    let (key, locker, entry) = (word("granted")?, word("who")?, word("entry")?.into_bytes());
    Some(Offer { key, locker, entry, index: change.index, waiting: text.get("waiting")?.as_u64()? })
}

/// Returns the messages of a change of an inbox. A message that cannot be read, or that may have replaced others, says that something has changed.
pub(super) fn read(change: &Change) -> Vec<Message> {
    let all = Message::Changed { key: None };
    let Some((message, stands_for_others)) = parsed(change) else { return vec![all] };
    if change.is_merged || stands_for_others { vec![message, all] } else { vec![message] }
}

/// Reads a message of this crate, and whether it stands for others, too. `None` for any other text: anybody with the right to write may have written
/// it.
fn parsed(change: &Change) -> Option<(Message, bool)> {
    let text: Value = serde_json::from_slice(&change.value).ok()?;
    let word = |name: &str| text.get(name).and_then(Value::as_str).map(str::to_owned);
    if let Some(text) = word("said") {
        return Some((Message::Said { text }, false));
    }
    let locker = word("who")?;
    if let Some(key) = word("granted") {
        if text.get("entry").is_some() {
            return Some((Message::Changed { key: Some(key) }, false));
        }
        let grant = Grant::new(change.index, text.get("waiting")?.as_u64()?);
        return Some((Message::Granted { key, locker, grant }, false));
    }
    if let Some(key) = word("broken") {
        return Some((Message::Broken { key, locker }, text.get("merged").and_then(Value::as_bool) == Some(true)));
    }
    Some((Message::Contended { key: word("contended")?, locker }, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(value: Vec<u8>) -> Change {
        Change { value, index: 7, is_merged: false }
    }

    #[test]
    fn what_is_said_is_heard() {
        let (key, locker) = (String::from("k \"/"), String::from("h-1"));
        let grant = Grant::new(7, 3);
        let message = Message::Granted { key: key.clone(), locker: locker.clone(), grant };
        assert_eq!(read(&change(granted(&key, &locker, 3, b"{}"))), [message]);
        let entry = br#"{"offered":true,"who":"h-1"}"#.to_vec();
        let offered = change(granted(&key, &locker, 3, &entry));
        assert_eq!(read(&offered), [Message::Changed { key: Some(key.clone()) }]);
        assert_eq!(
            offer(&offered),
            Some(Offer { key: key.clone(), locker: locker.clone(), entry, index: 7, waiting: 3 })
        );
        let text = String::from("describe 1 a k \"é");
        assert_eq!(read(&change(said(&text))), [Message::Said { text }]);
        let message = Message::Broken { key: key.clone(), locker: locker.clone() };
        assert_eq!(read(&change(broken(&key, &locker, false))), std::slice::from_ref(&message));
        assert_eq!(read(&change(broken(&key, &locker, true))), [message, Message::Changed { key: None }]);
        for (reason, is_whole) in [(1, true), (LONGEST_ENTRY, false)] {
            let value = format!(r#"{{"process":"h","who":"h-2","why":"{}"}}"#, "x".repeat(reason)).into_bytes();
            let (party, session, names) = (Party::read(&value, None), String::from("s"), Names::new("dlock/"));
            let first = WaitingEntry { party, path: names.waiter(&key, "h-2"), session, value };
            let change = change(contended(&key, &locker, &first));
            assert_eq!(read(&change), [Message::Contended { key: key.clone(), locker: locker.clone() }]);
            assert_eq!(first_waiter(&change, &names), is_whole.then_some(first));
        }
    }

    #[test]
    fn what_cannot_be_understood_is_a_change() {
        let all = Message::Changed { key: None };
        for text in ["", "granted", "{}", "{\"granted\":\"k\"}", "{\"granted\":\"k\",\"who\":\"h-1\"}"] {
            assert_eq!(read(&change(text.into())), std::slice::from_ref(&all), "{text}");
        }
        let merged = Change { is_merged: true, ..change(broken("k", "h-1", false)) };
        assert_eq!(read(&merged).last(), Some(&all));
    }
}
