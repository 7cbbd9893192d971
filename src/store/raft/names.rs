//! Where things are in the store, and what the entries contain.
//!
//! | path | entry |
//! |---|---|
//! | `{root}{key}/.lock` | the lock: held by the tenure's session; who holds it |
//! | `{root}{key}/.wait/{locker}` | a waiter: held by the session of the tenure that waits |
//! | `{root}.inbox/{client}` | the last message to a client |
//!
//! `consul lock {root}{key}` and `LockKey("{root}{key}/.lock")` of Go's `api` mean the same lock. The root is `dlock/` unless the program
//! names another. A key with a slash or a percent sign, and one that begins with a dot, is encoded as in a URL, so that no key is a part of another's path.

use crate::store::processor::Claim;
use serde_json::{Value, json};

/// The names of one store.
#[derive(Clone, Debug)]
pub(super) struct Names {
    root: String,
}

impl Names {
    pub(super) fn new(root: &str) -> Self {
        Self { root: root.to_owned() }
    }

    /// The prefix of all entries of a key.
    pub(super) fn of(&self, key: &str) -> String {
        format!("{}{}/", self.root, encoded(key))
    }

    pub(super) fn lock(&self, key: &str) -> String {
        self.of(key) + ".lock"
    }

    /// The prefix of the waiters of a key.
    pub(super) fn waiters(&self, key: &str) -> String {
        self.of(key) + ".wait/"
    }

    pub(super) fn waiter(&self, key: &str, locker: &str) -> String {
        self.waiters(key) + &encoded(locker)
    }

    pub(super) fn inbox(&self, client: &str) -> String {
        format!("{}.inbox/{}", self.root, encoded(client))
    }
}

fn encoded(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for (at, c) in name.char_indices() {
        match c {
            '/' => text.push_str("%2F"),
            '%' => text.push_str("%25"),
            '.' if at == 0 => text.push_str("%2E"),
            _ => text.push(c),
        }
    }
    text
}

/// Returns what an entry says of the tenure that it is for. People read it in the store's own tools.
pub(super) fn party(claim: &Claim<'_>) -> Vec<u8> {
    let mut party = json!({ "who": claim.locker, "process": claim.client });
    let notes = [("why", claim.note.why), ("thread", claim.note.thread), ("host", claim.note.host)];
    for (name, note) in notes {
        if let Some(note) = note {
            party[name] = note.into();
        }
    }
    party.to_string().into_bytes()
}

/// Who an entry is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Party {
    /// The locker, or, in an entry that no lock of ours wrote, the whole text.
    pub(super) locker: String,
    /// The client, whose inbox is told; `None` in an entry that no lock of ours wrote.
    pub(super) client: Option<String>,
}

impl Party {
    pub(super) fn read(value: &[u8]) -> Self {
        let parsed: Option<Value> = serde_json::from_slice(value).ok();
        let text = |name: &str| parsed.as_ref().and_then(|party| party.get(name)?.as_str().map(str::to_owned));
        match text("who") {
            Some(locker) => Self { locker, client: text("process") },
            None => Self { locker: String::from_utf8_lossy(value).into_owned(), client: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn no_key_is_in_the_path_of_another() {
        let names = Names::new("dlock/");
        assert_eq!(names.lock("DLOCK_a_b"), "dlock/DLOCK_a_b/.lock");
        assert_eq!(names.lock("a/.wait/b"), "dlock/a%2F.wait%2Fb/.lock");
        assert_eq!(names.lock(".inbox"), "dlock/%2Einbox/.lock");
        assert_ne!(names.of("a%2Fb"), names.of("a/b"));
    }

    #[test]
    fn an_entry_says_who_and_why() {
        let claim = Claim::new("k", "host-1-c0ffee", "host-1-c0ffee-7", Duration::from_secs(1));
        let party = Party::read(&party(&claim));
        assert_eq!(party, Party { locker: "host-1-c0ffee-7".into(), client: Some("host-1-c0ffee".into()) });
        for text in ["", "somebody", "7", "{\"who\":7}", "\u{fffd}"] {
            assert_eq!(Party::read(text.as_bytes()), Party { locker: text.into(), client: None });
        }
    }
}
