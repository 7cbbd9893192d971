//! What a release makes of the first waiter that it believes to know, where that is not so.

use super::servers::Servers;
use crate::deadline::Deadline;
use crate::kv::{Change, Check, Committed, Kv, Transaction, Write};
use crate::message;
use crate::names::{Names, party};
use crate::store::ConsensusStore;
use redis_dlock::port::{AcquireOutcome, Claim, Operations, PollOutcome, ReleaseOutcome};
use std::sync::Arc;
use std::time::Duration;

const ROOT: &str = "dlock/";
const LONG: Duration = Duration::from_secs(3600);

fn store(servers: &Servers) -> ConsensusStore {
    ConsensusStore::new(Arc::new(servers.clone()), ROOT)
}

fn claim<'a>(key: &'a str, locker: &'a str) -> Claim<'a> {
    Claim::new(key, &locker[..1], locker, LONG)
}

/// Returns what the inbox of a client hears, with a text in place of another one.
fn heard(servers: &Servers, client: &str, from: &str, to: &str) -> Change {
    let change = servers.inbox(&Names::new(ROOT).inbox(client), &mut 0).expect("a message");
    let text = String::from_utf8(change.value).expect("a text");
    assert!(text.contains(from), "{text}");
    Change { value: text.replace(from, to).into_bytes(), ..change }
}

#[track_caller]
fn is_free(servers: &Servers, key: &str) {
    let tried = store(servers).acquire(&claim(key, "c-1"), LONG).expect("an answer");
    assert!(matches!(tried, AcquireOutcome::Acquired(_)), "{tried:?}");
}

/// A person has given the key to a waiter with its own session, and has left its place in the queue.
fn waits_itself() {
    let servers = Servers::new(0, true);
    let (a, b, names) = (store(&servers), store(&servers), Names::new(ROOT));
    a.acquire(&claim("k", "a-1"), LONG).expect("an answer");
    b.join(&claim("k", "b-1"), LONG).expect("an answer");
    let path = names.lock("k");
    let [from, to] = [&path, &names.waiter("k", "b-1")].map(|path| servers.holder(path).expect("a session"));
    let by_hand = Transaction {
        checks: vec![Check::HeldBy { path: path.clone(), session: from.clone() }],
        writes: vec![Write::Pass { path, from, to, value: party(&claim("k", "b-1"), None) }],
        look: String::new(),
    };
    assert!(matches!(servers.commit(&by_hand, Deadline::after(LONG)), Ok(Committed::Done { .. })));
    let polled = b.poll(&claim("k", "b-1"), LONG).expect("an answer");
    assert!(matches!(polled, PollOutcome::Acquired(_)), "{polled:?}");
    b.release(&claim("k", "b-1"), LONG).expect("an answer");
    is_free(&servers, "k");
}

/// A message to the holder of another key names the holder of this one.
fn waits_for_another_key() {
    let servers = Servers::new(0, true);
    let (a, b, x) = (store(&servers), store(&servers), store(&servers));
    a.acquire(&claim("k", "a-1"), LONG).expect("an answer");
    b.acquire(&claim("other", "b-1"), LONG).expect("an answer");
    x.join(&claim("other", "x-1"), LONG).expect("an answer");
    a.confirming().note_waiters(&heard(&servers, "b", "\"b-1\"", "\"a-1\""));
    a.release(&claim("k", "a-1"), LONG).expect("an answer");
    is_free(&servers, "k");
}

/// The entry in the message is of another locker than the one that waits.
fn has_another_name() {
    let servers = Servers::new(0, true);
    let (a, x) = (store(&servers), store(&servers));
    a.acquire(&claim("k", "a-1"), LONG).expect("an answer");
    x.join(&claim("k", "x-1"), LONG).expect("an answer");
    a.confirming().note_waiters(&heard(&servers, "a", "\\\"x-1\\\"", "\\\"z-9\\\""));
    a.release(&claim("k", "a-1"), LONG).expect("an answer");
    let polled = x.poll(&claim("k", "x-1"), LONG).expect("an answer");
    assert!(matches!(polled, PollOutcome::Acquired(_)), "{polled:?}");
}

/// A person has written an entry among those who wait, which has no session: it gets nothing, and keeps nobody from the key.
fn waits_beside_what_is_no_waiter() {
    let servers = Servers::new(0, true);
    let (a, b, x, names) = (store(&servers), store(&servers), store(&servers), Names::new(ROOT));
    b.acquire(&claim("k", "b-1"), LONG).expect("an answer");
    a.join(&claim("k", "a-1"), LONG).expect("an answer");
    x.join(&claim("k", "x-1"), LONG).expect("an answer");
    b.release(&claim("k", "b-1"), LONG).expect("an answer");
    let polled = a.poll(&claim("k", "a-1"), LONG).expect("an answer");
    assert!(matches!(polled, PollOutcome::Acquired(_)), "{polled:?}");
    servers.put(&names.waiter("k", "by hand"));
    let given = a.hand_over(&claim("k", "a-1"), &claim("k", "a-2"), LONG);
    assert!(matches!(&given, Ok(ReleaseOutcome::Queued(busy)) if busy.holder.as_deref() == Some("x-1")), "{given:?}");
    let place = servers.holder(&names.waiter("k", "a-2"));
    assert!(place.is_some());
    a.acquire(&claim("other", "a-3"), LONG).expect("an answer");
    assert_ne!(servers.holder(&names.lock("other")), place, "a session that stands in a queue serves another tenure");
}

/// Nobody waits behind it.
fn is_alone() {
    let servers = Servers::new(0, true);
    let (a, x, names) = (store(&servers), store(&servers), Names::new(ROOT));
    a.acquire(&claim("k", "a-1"), LONG).expect("an answer");
    x.join(&claim("k", "x-1"), LONG).expect("an answer");
    a.confirming().note_waiters(&heard(&servers, "a", "", ""));
    a.release(&claim("k", "a-1"), LONG).expect("an answer");
    let change = servers.inbox(&names.inbox("x"), &mut 0).expect("a message");
    assert_eq!(message::offer(&change).map(|offer| offer.waiting), Some(0));
}

played! {
    that_waits_beside_an_entry_of_a_person_is_given_the_key: waits_beside_what_is_no_waiter, 20;
    that_is_alone_is_told_of_nobody_behind_it: is_alone, 20;
    that_is_the_locker_itself_gets_nothing: waits_itself, 20;
    that_waits_for_another_key_gets_nothing: waits_for_another_key, 20;
    that_has_another_name_is_looked_for: has_another_name, 20;
}
