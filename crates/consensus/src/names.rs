//! The paths of the entries in the store, and their contents.
//!
//! | path | entry |
//! |---|---|
//! | `{root}{key}/.lock` | the lock: held by the tenure's session; who holds it |
//! | `{root}{key}/.wait/{locker}` | a waiter: held by the session of the tenure that waits |
//! | `{root}.inbox/{client}` | the last message to a client |
//! | `{root}.inbox/{client}/{message}` | in Consul, words of another client, or that a hold was broken: held by a session of the writer's process, or of the order |
//! | `{root}.session/{session}` | the mark of a session that serves several tenures: the locker that took it up last; held by that session |
//! | `{root}.client/{client}` | what a client says of itself, for people: held by a session of that client |
//! | `{root}.broken/{key}/{locker}/{session}` | by whom and why a hold was broken: held by a session that nobody renews |
//!
//! `consul lock {root}{key}` and `LockKey("{root}{key}/.lock")` of Go's `api` mean the same lock. The root is `dlock/` unless the program
//! names another. Slashes, percent signs, a dot at the beginning, and all that is not printable are encoded as in a URL: no key is a part of
//! another's path, and Consul refuses paths that cannot be printed.

use percent_encoding::percent_decode_str;
use redis_dlock::port::Claim;
use serde_json::{Map, Value, json};
use std::time::{Duration, SystemTime};

/// The names of one store.
#[derive(Clone, Debug)]
pub(super) struct Names {
    root: String,
}

impl Names {
    /// Names below a root, which is empty or ends with a slash: the names of two roots never meet.
    pub(super) fn new(root: &str) -> Self {
        Self { root: root.to_owned() }
    }

    /// The prefix of all entries of a key.
    pub(super) fn of(&self, key: &str) -> String {
        format!("{}{}/", self.root, encoded(key))
    }

    /// The lock's entry. Go's `api.LockKey` takes this path, and `consul lock` takes the one above it and adds the rest.
    pub(super) fn lock(&self, key: &str) -> String {
        self.of(key) + LOCK_ENTRY
    }

    /// The prefix of the waiters of a key.
    pub(super) fn waiters(&self, key: &str) -> String {
        self.of(key) + ".wait/"
    }

    /// A waiter's entry. Its name is the locker, so that a locker waits only once.
    pub(super) fn waiter(&self, key: &str, locker: &str) -> String {
        self.waiters(key) + &encoded(locker)
    }

    /// The mark of a session.
    pub(super) fn mark(&self, session: &str) -> String {
        format!("{}.session/{}", self.root, encoded(session))
    }

    /// The entry in which a client finds its messages.
    pub(super) fn inbox(&self, client: &str) -> String {
        format!("{}.inbox/{}", self.root, encoded(client))
    }

    /// The record of a client: what it says of itself.
    pub(super) fn record(&self, client: &str) -> String {
        format!("{}.client/{}", self.root, encoded(client))
    }

    /// The prefix of the entries that say by whom and why the hold of a locker was broken. Each has the name of its session: a locker that another
    /// program has written may hold the key again.
    pub(super) fn broken(&self, key: &str, locker: &str) -> String {
        format!("{}.broken/{}/{}/", self.root, encoded(key), encoded(locker))
    }

    /// The path at which a page of a list begins. `from` is the place that the page before has returned. `None` if no page can have returned it.
    pub(super) fn page(&self, from: Option<&str>) -> Option<String> {
        let from = from.unwrap_or(LOCK);
        from.starts_with(LOCK).then(|| format!("{}{from}", self.root))
    }

    /// The path without the root, as lists return it.
    pub(super) fn place<'p>(&self, path: &'p str) -> &'p str {
        path.strip_prefix(&self.root).unwrap_or(path)
    }
}

/// The name of a lock's entry below its key. It comes before the waiters in the order of names.
pub(super) const LOCK_ENTRY: &str = ".lock";

/// The beginning of every lock's unique key.
const LOCK: &str = "DLOCK_";

/// Returns a name as it stands in a path. No two names have the same path, and none is the beginning of another's directory. `%` itself is encoded,
/// so an encoded name differs from a name that looks like it.
pub(super) fn encoded(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for (at, c) in name.char_indices() {
        let is_plain = match c {
            '/' | '%' => false,
            '.' => at > 0,
            _ => c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric(),
        };
        if is_plain {
            text.push(c);
        } else {
            let mut bytes = [0; 4];
            c.encode_utf8(&mut bytes).bytes().for_each(|byte| text.push_str(&format!("%{byte:02X}")));
        }
    }
    text
}

/// Returns the name that is encoded so in a path. `None` if there is no such name: another program has written the path.
pub(super) fn decoded(text: &str) -> Option<String> {
    let name = percent_decode_str(text).decode_utf8().ok()?.into_owned();
    (encoded(&name) == text).then_some(name)
}

/// Returns the text of a tenure's entry: who holds or waits, since when, and why. People read it in the store's own tools. `after` is the index of
/// the entry that it replaces, if there is one: an entry with the same text as before would be no change for Consul.
pub(super) fn party(claim: &Claim<'_>, after: Option<u64>) -> Vec<u8> {
    let lease = u64::try_from(claim.lease.as_millis()).unwrap_or(u64::MAX);
    let mut party = json!({ "who": claim.locker, "process": claim.client, "when": now(), "lease_ms": lease });
    if let Some(after) = after {
        party["after"] = after.into();
    }
    let notes = [("why", claim.note.why), ("thread", claim.note.thread), ("host", claim.note.host)];
    for (name, note) in notes {
        if let Some(note) = note {
            party[name] = note.into();
        }
    }
    party.to_string().into_bytes()
}

/// Returns the text of a waiter's entry. It says that the locker confirms an [offer](super::confirm). A locker of an earlier version does not, and is
/// given the lock outright.
pub(super) fn place(claim: &Claim<'_>) -> Vec<u8> {
    with(&party(claim, None), |party| drop(party.insert(CONFIRMS.into(), true.into())))
}

/// The fields for a waiter that confirms, and for an offer that is not confirmed.
const CONFIRMS: &str = "confirms";
const OFFERED: &str = "offered";

/// Returns the text of the lock's entry while its release is delayed. It names no client, so that nobody is told that others wait.
pub(super) fn delayed(mark: &str, why: Option<&str>) -> Vec<u8> {
    let mut party = json!({ "who": mark, "when": now() });
    if let Some(why) = why {
        party["why"] = why.into();
    }
    party.to_string().into_bytes()
}

/// Returns the text of the lock's entry for a waiter that is given the lock, or has confirmed it: it holds from now on.
pub(super) fn from_now(party: &[u8]) -> Vec<u8> {
    with(party, |party| {
        party.remove(OFFERED);
        party.insert("when".into(), now().into());
    })
}

/// Returns the text of the lock's entry for a waiter that is offered the lock. A waiter that does not confirm holds from now on.
pub(super) fn offered(party: &[u8]) -> Vec<u8> {
    with(&from_now(party), |party| {
        if party.get(CONFIRMS) == Some(&true.into()) {
            party.insert(OFFERED.into(), true.into());
        }
    })
}

/// Returns the text of the lock's entry for a hold that is moved onto a [shared](super::shared) session. `number` is the hold's earlier number, if
/// the index of this entry is not its number. `None` if another program wrote the entry.
pub(super) fn moved(party: &[u8], number: Option<u64>) -> Option<Vec<u8>> {
    let moved = with(party, |party| {
        party.insert(MOVED.into(), true.into());
        match number {
            Some(number) => party.insert(NUMBER.into(), number.into()),
            None => party.remove(NUMBER),
        };
    });
    Party::read(&moved, None).is_moved.then_some(moved)
}

/// The fields for a hold that was moved.
const MOVED: &str = "shared";
const NUMBER: &str = "number";

/// Changes the text of an entry. The text of another program stays as it is.
fn with(party: &[u8], change: impl FnOnce(&mut Map<String, Value>)) -> Vec<u8> {
    match serde_json::from_slice(party) {
        Ok(Value::Object(mut party)) if party.contains_key("when") => {
            change(&mut party);
            Value::Object(party).to_string().into_bytes()
        }
        _ => party.to_vec(),
    }
}

/// The time of day. Only people read it: nothing depends on whether the clocks of two machines agree.
fn now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

/// The owner of an entry. An entry of another program is a holder like any other: `consul lock` and Go's `api.Lock` write texts of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Party {
    /// The locker or, in an entry of another program, the whole text. In an entry without a text, such as that of `consul lock`, it is the name of
    /// the session: no other hold has it, so a break that names it hits no later hold.
    pub(super) locker: String,
    /// The client, whose inbox is told. `None` in an entry of another program.
    pub(super) client: Option<String>,
    /// How long the tenure is kept without an extension; `None` in an entry that does not say so.
    pub(super) lease: Option<Duration>,
    /// Whether it was offered the lock, and has not confirmed that. An entry of an earlier version never says so: its locker holds the lock like any
    /// holder.
    pub(super) is_offered: bool,
    /// Whether a [shared](super::shared) session holds it, and the number that it had before it was moved.
    pub(super) is_moved: bool,
    pub(super) number: Option<u64>,
}

impl Party {
    /// Reads the value of an entry. Any value names an owner, because an entry that nobody can read is held, too.
    pub(super) fn read(value: &[u8], session: Option<&str>) -> Self {
        let parsed: Option<Value> = serde_json::from_slice(value).ok();
        let text = |name: &str| parsed.as_ref().and_then(|party| party.get(name)?.as_str().map(str::to_owned));
        let count = |name: &str| parsed.as_ref().and_then(|party| party.get(name)?.as_u64());
        let says = |name: &str| parsed.as_ref().is_some_and(|party| party.get(name) == Some(&true.into()));
        match text("who") {
            Some(locker) => Self {
                locker,
                client: text("process"),
                lease: count("lease_ms").map(Duration::from_millis),
                is_offered: says(OFFERED),
                is_moved: says(MOVED),
                number: count(NUMBER),
            },
            None => {
                let session = session.filter(|_| value.is_empty());
                let locker = session.map_or_else(|| shown(value), str::to_owned);
                Self { locker, client: None, lease: None, is_offered: false, is_moved: false, number: None }
            }
        }
    }
}

/// Shows an entry of another program. It escapes bytes that are no text, and the backslashes of a text that looks escaped: two different entries must
/// not look alike to an operator who breaks one of them.
fn shown(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if text.contains("\\x") => text.replace('\\', "\\\\"),
        Ok(text) => text.to_owned(),
        Err(_) => value.escape_ascii().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn two_values_that_differ_do_not_look_alike() {
        let values = [&b"caf\xe9"[..], b"caf\xe8", b"caf\\xe9", b"caf\\\\xe9", "caf\u{e9} \\n".as_bytes()];
        let shown = values.map(|value| Party::read(value, None).locker);
        assert_eq!(shown, ["caf\\xe9", "caf\\xe8", "caf\\\\xe9", "caf\\\\\\\\xe9", "caf\u{e9} \\n"]);
    }

    #[test]
    fn no_key_is_in_the_path_of_another() {
        let names = Names::new("dlock/");
        assert_eq!(names.lock("DLOCK_a_b"), "dlock/DLOCK_a_b/.lock");
        assert_eq!(names.lock("a/.wait/b"), "dlock/a%2F.wait%2Fb/.lock");
        assert_eq!(names.lock(".inbox"), "dlock/%2Einbox/.lock");
        assert_ne!(names.of("a%2Fb"), names.of("a/b"));
        assert_eq!(names.of("ä\n\u{202e} b"), "dlock/ä%0A%E2%80%AE b/");
        for key in ["DLOCK_a_b", "a/.wait/b", ".inbox", "a%2Fb", "ä\n\u{202e} b", ""] {
            assert_eq!(decoded(&encoded(key)).as_deref(), Some(key));
        }
        for path in ["%2f", "a/b", "%", ".inbox", "%FF", "%61"] {
            assert_eq!(decoded(path), None, "{path}");
        }
    }

    #[test]
    fn a_waiter_that_is_given_the_lock_holds_from_then_on() {
        let claim = Claim::new("k", "host-1-c0ffee", "host-1-c0ffee-7", Duration::from_secs(1));
        let of = |party: &[u8]| -> Value { serde_json::from_slice(party).expect("JSON") };
        let at = |party: &Value| humantime::parse_rfc3339(party["when"].as_str().expect("text")).expect("a time");
        let waits = party(&claim, None);
        std::thread::sleep(Duration::from_millis(2));
        let holds = from_now(&waits);
        let (waits, mut holds) = (of(&waits), of(&holds));
        assert!(at(&waits) < at(&holds));
        holds["when"] = waits["when"].clone();
        assert_eq!(waits, holds);
        for text in ["", "somebody", "7", "{\"who\":7}", "\u{fffd}"] {
            assert_eq!(from_now(text.as_bytes()), text.as_bytes());
            assert_eq!(offered(text.as_bytes()), text.as_bytes());
        }
    }

    #[test]
    fn only_a_waiter_that_confirms_is_offered_the_lock() {
        let claim = Claim::new("k", "host-1-c0ffee", "host-1-c0ffee-7", Duration::from_secs(1));
        let is_offered = |party: &[u8]| Party::read(party, None).is_offered;
        let (place, of_an_earlier_version) = (place(&claim), party(&claim, None));
        assert!(!is_offered(&place) && !is_offered(&offered(&of_an_earlier_version)));
        let offered = offered(&place);
        assert!(is_offered(&offered) && !is_offered(&from_now(&offered)));
    }

    #[test]
    fn an_entry_says_who_and_why() {
        let claim = Claim::new("k", "host-1-c0ffee", "host-1-c0ffee-7", Duration::from_secs(1));
        let party = Party::read(&party(&claim, Some(7)), Some("s"));
        let (locker, client) = ("host-1-c0ffee-7".to_owned(), Some("host-1-c0ffee".to_owned()));
        let lease = Some(claim.lease);
        assert_eq!(party.clone(), Party { locker, client, lease, is_offered: false, is_moved: false, number: None });
        for text in ["", "somebody", "7", "{\"who\":7}", "\u{fffd}"] {
            let of = |locker: &str| Party { locker: locker.into(), client: None, lease: None, ..party.clone() };
            assert_eq!(Party::read(text.as_bytes(), None), of(text));
            assert_eq!(Party::read(text.as_bytes(), Some("s")), of(if text.is_empty() { "s" } else { text }));
        }
    }
}
