use super::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

fn subscriber() -> (Subscriber, UnixStream) {
    subscriber_within(Duration::from_secs(1))
}

fn subscriber_within(io_timeout: Duration) -> (Subscriber, UnixStream) {
    let (near, far) = UnixStream::pair().expect("sockets");
    let link = Link::new(
        Socket::of(near),
        #[cfg(feature = "tls")]
        None,
    );
    let place = Place::Tcp { host: "h".to_owned(), port: 1, tls: false };
    (Subscriber::new(SubscriberId(1), place, Weak::new(), link.expect("no TLS"), io_timeout), far)
}

/// What the server says of the channel of a slot.
fn push(kind: &str, slot: Slot) -> String {
    let channel = slot_inbox_channel(slot, "c");
    format!("*3\r\n${}\r\n{kind}\r\n${}\r\n{channel}\r\n:1\r\n", kind.len(), channel.len())
}

fn pushed(subscriber: &mut Subscriber, far: &mut UnixStream, words: &[String]) -> Vec<ServerPush> {
    far.write_all(words.concat().as_bytes()).expect("room");
    let (events, read) = subscriber.read("c");
    read.expect("no failure");
    events
}

/// What the connection has sent, as plain words.
fn sent(far: &mut UnixStream) -> String {
    let mut bytes = vec![0; 4096];
    let length = far.read(&mut bytes).expect("commands");
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

#[test]
fn confirmations_ends_and_messages_are_told_by_their_slots() {
    let (mut subscriber, mut far) = subscriber();
    subscriber.subscribe(&[1, 2, 3], "c").expect("sent");
    assert_eq!(sent(&mut far).matches("SSUBSCRIBE").count(), 3);
    let confirmed = pushed(
        &mut subscriber,
        &mut far,
        &[push("ssubscribe", 1), "-MOVED 2 h:7\r\n".to_owned(), push("ssubscribe", 3)],
    );
    let [ServerPush::Confirmed(1), ServerPush::Refused(2, error), ServerPush::Confirmed(3)] = confirmed.as_slice()
    else {
        panic!("{confirmed:?}");
    };
    assert_eq!(error.code(), "MOVED");
    assert_eq!(subscriber.slots.len(), 2);
    // One is ended by us, and its reply says nothing new. The server ends the other.
    subscriber.unsubscribe(&[3, 4], "c").expect("sent");
    assert_eq!(pushed(&mut subscriber, &mut far, &[push("sunsubscribe", 3)]), []);
    assert!(!subscriber.gives_slots_away);
    let ended = [push("sunsubscribe", 1), push("sunsubscribe", 1)];
    assert_eq!(pushed(&mut subscriber, &mut far, &ended), [ServerPush::Ended(1)]);
    assert!(subscriber.gives_slots_away && subscriber.slots.is_empty() && subscriber.asked.is_empty());
    let message = "*3\r\n$8\r\nsmessage\r\n$1\r\nx\r\n$5\r\nhello\r\n".to_owned();
    let pong = "*2\r\n$4\r\npong\r\n$0\r\n\r\n+PONG\r\n-NOPERM no\r\n".to_owned();
    assert_eq!(pushed(&mut subscriber, &mut far, &[message, pong]), [ServerPush::Message(b"hello".to_vec())]);
    // What comes before the end of the connection counts.
    far.write_all(b"*3\r\n$8\r\nsmessage\r\n$1\r\nx\r\n$4\r\nlast\r\n").expect("room");
    drop(far);
    let (events, read) = subscriber.read("c");
    assert!(read.is_err() && events == [ServerPush::Message(b"last".to_vec())], "{events:?}");
}

/// The server has ended a subscription, and its word of it has crossed our command.
#[test]
fn a_redirection_counts_for_the_slot_that_it_names() {
    let (mut subscriber, mut far) = subscriber();
    subscriber.subscribe(&[1], "c").expect("sent");
    pushed(&mut subscriber, &mut far, &[push("ssubscribe", 1)]);
    subscriber.unsubscribe(&[1], "c").expect("sent");
    subscriber.subscribe(&[2], "c").expect("sent");
    let words = [push("sunsubscribe", 1), "-MOVED 1 h:7\r\n".to_owned(), push("ssubscribe", 2)];
    assert_eq!(pushed(&mut subscriber, &mut far, &words), [ServerPush::Confirmed(2)]);
    assert!(subscriber.slots.len() == 1 && subscriber.slots.contains(&2) && subscriber.asked.is_empty());
}

/// An error without a slot that is taken for the answer to a later command costs one more subscription, and nobody is deaf.
#[test]
fn a_confirmation_that_nobody_counts_on_is_taken_back() {
    let (mut subscriber, mut far) = subscriber();
    subscriber.subscribe(&[1], "c").expect("sent");
    pushed(&mut subscriber, &mut far, &[push("ssubscribe", 1)]);
    subscriber.unsubscribe(&[1], "c").expect("sent");
    subscriber.subscribe(&[2], "c").expect("sent");
    sent(&mut far);
    let words = [push("sunsubscribe", 1), "-CLUSTERDOWN no\r\n".to_owned(), push("ssubscribe", 2)];
    let [ServerPush::Refused(2, _)] = pushed(&mut subscriber, &mut far, &words).as_slice() else {
        panic!("no refusal")
    };
    assert!(subscriber.slots.is_empty());
    let channel = slot_inbox_channel(2, "c");
    assert!(sent(&mut far).contains(&format!("SUNSUBSCRIBE\r\n${}\r\n{channel}", channel.len())));
    // It is subscribed again before that is answered.
    subscriber.subscribe(&[2], "c").expect("sent");
    let words = [push("sunsubscribe", 2), push("ssubscribe", 2)];
    assert_eq!(pushed(&mut subscriber, &mut far, &words), [ServerPush::Confirmed(2)]);
}

/// The same, but the slot is subscribed again before the first confirmation comes, which then counts for the second subscription.
#[test]
fn a_confirmation_of_a_slot_that_is_heard_already_ends_nothing() {
    let (mut subscriber, mut far) = subscriber();
    subscriber.subscribe(&[1, 3], "c").expect("sent");
    pushed(&mut subscriber, &mut far, &[push("ssubscribe", 1), push("ssubscribe", 3)]);
    subscriber.unsubscribe(&[1], "c").expect("sent");
    subscriber.subscribe(&[2], "c").expect("sent");
    pushed(&mut subscriber, &mut far, &[push("sunsubscribe", 1), "-CLUSTERDOWN no\r\n".to_owned()]);
    subscriber.subscribe(&[2], "c").expect("sent");
    sent(&mut far);
    let words = [push("ssubscribe", 2), push("ssubscribe", 2)];
    assert_eq!(pushed(&mut subscriber, &mut far, &words), [ServerPush::Confirmed(2)]);
    assert!(subscriber.slots.contains(&2) && subscriber.asked.is_empty(), "{:?}", subscriber.asked);
}

/// A slot that another node owns by a newer map is left: the answer that is under way counts no more.
#[test]
fn a_slot_that_was_left_is_confirmed_no_more() {
    let (mut subscriber, mut far) = subscriber();
    subscriber.subscribe(&[1, 2], "c").expect("sent");
    assert_eq!(sent(&mut far).matches("SSUBSCRIBE").count(), 2);
    subscriber.leave(&[1, 2]);
    assert_eq!(pushed(&mut subscriber, &mut far, &[push("ssubscribe", 1), "-MOVED 2 h:7\r\n".to_owned()]), []);
    // Back again.
    subscriber.subscribe(&[1], "c").expect("sent");
    assert!(!sent(&mut far).contains("SUNSUBSCRIBE"));
    assert_eq!(pushed(&mut subscriber, &mut far, &[push("ssubscribe", 1)]), [ServerPush::Confirmed(1)]);
}

/// A server that reads nothing holds nobody up.
#[test]
fn what_has_no_room_is_sent_later() {
    // A wait for room would last that long. To pack the commands may take seconds on a busy machine.
    let (mut subscriber, mut far) = subscriber_within(Duration::from_secs(60));
    let slots: Vec<Slot> = (0..16_000).collect();
    let begun = Instant::now();
    subscriber.subscribe(&slots, "c").expect("sent");
    assert!(subscriber.is_behind && begun.elapsed() < subscriber.io_timeout);
    let mut expected = Packed::default();
    slots.iter().for_each(|slot| expected.words(&["SSUBSCRIBE", &slot_inbox_channel(*slot, "c")]));
    let reader = std::thread::spawn(move || {
        let mut bytes = vec![0; expected.bytes.len()];
        far.read_exact(&mut bytes).expect("commands");
        assert!(bytes == expected.bytes);
        far
    });
    while subscriber.is_behind {
        subscriber.read("c").1.expect("no failure");
    }
    drop(reader.join().expect("no panic"));
}

#[test]
fn a_silent_server_is_asked_and_then_given_up() {
    let (mut subscriber, mut far) = subscriber();
    let begun = Instant::now();
    subscriber.check(begun).expect("it has just been connected");
    subscriber.check(begun + 2 * SILENCE).expect("it is asked");
    subscriber.check(Instant::now()).expect("it has time to answer");
    let mut sent = [0; 64];
    let length = far.read(&mut sent).expect("a PING");
    assert!(String::from_utf8_lossy(&sent[..length]).contains("PING"));
    assert!(subscriber.check(begun + 4 * SILENCE).is_err());
    pushed(&mut subscriber, &mut far, &["+PONG\r\n".to_owned()]);
    subscriber.check(Instant::now()).expect("it has answered");
    subscriber.subscribe(&[1], "c").expect("sent");
    let asked = Instant::now();
    subscriber.check(asked).expect("it has time to answer");
    assert!(
        subscriber.due() <= asked + subscriber.io_timeout && subscriber.check(asked + subscriber.io_timeout).is_err()
    );
}
