use super::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

fn line() -> (Line, UnixStream) {
    let (near, far) = UnixStream::pair().expect("sockets");
    let link = Link::new(
        Socket::Unix(near),
        #[cfg(feature = "tls")]
        None,
    );
    let place = Place::Tcp { host: "h".to_owned(), port: 1, tls: false };
    (Line::new(LineId(1), place, Weak::new(), link.expect("no TLS"), Duration::from_secs(1)), far)
}

/// What the server says of the channel of a slot.
fn push(kind: &str, slot: Slot) -> String {
    let channel = slot_inbox_channel(slot, "c");
    format!("*3\r\n${}\r\n{kind}\r\n${}\r\n{channel}\r\n:1\r\n", kind.len(), channel.len())
}

fn said(line: &mut Line, far: &mut UnixStream, words: &[String]) -> Vec<Event> {
    far.write_all(words.concat().as_bytes()).expect("room");
    let (events, read) = line.read("c");
    read.expect("no failure");
    events
}

/// What the line has sent, as plain words.
fn sent(far: &mut UnixStream) -> String {
    let mut bytes = vec![0; 4096];
    let length = far.read(&mut bytes).expect("commands");
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

#[test]
fn confirmations_ends_and_messages_are_told_by_their_slots() {
    let (mut line, mut far) = line();
    line.subscribe(&[1, 2, 3], "c").expect("sent");
    assert_eq!(sent(&mut far).matches("SSUBSCRIBE").count(), 3);
    let confirmed =
        said(&mut line, &mut far, &[push("ssubscribe", 1), "-MOVED 2 h:7\r\n".to_owned(), push("ssubscribe", 3)]);
    let [Event::Confirmed(1), Event::Refused(2, error), Event::Confirmed(3)] = confirmed.as_slice() else {
        panic!("{confirmed:?}");
    };
    assert_eq!(error.code(), "MOVED");
    assert_eq!(line.slots().len(), 2);
    // The server ends one; the other is ended by us, and its reply says nothing new.
    line.unsubscribe(&[3, 4], "c").expect("sent");
    let ended = said(&mut line, &mut far, &[push("sunsubscribe", 1), push("sunsubscribe", 3), push("sunsubscribe", 1)]);
    assert_eq!(ended, [Event::Ended(1)]);
    assert!(line.slots().is_empty() && line.asked.is_empty());
    let message = "*3\r\n$8\r\nsmessage\r\n$1\r\nx\r\n$5\r\nhello\r\n".to_owned();
    let pong = "*2\r\n$4\r\npong\r\n$0\r\n\r\n+PONG\r\n-NOPERM no\r\n".to_owned();
    assert_eq!(said(&mut line, &mut far, &[message, pong]), [Event::Message(b"hello".to_vec())]);
    // What comes before the end of the connection counts.
    far.write_all(b"*3\r\n$8\r\nsmessage\r\n$1\r\nx\r\n$4\r\nlast\r\n").expect("room");
    drop(far);
    let (events, read) = line.read("c");
    assert!(read.is_err() && events == [Event::Message(b"last".to_vec())], "{events:?}");
}

/// The server has ended a subscription, and its word of it has crossed our command.
#[test]
fn a_redirection_counts_for_the_slot_that_it_names() {
    let (mut line, mut far) = line();
    line.subscribe(&[1], "c").expect("sent");
    said(&mut line, &mut far, &[push("ssubscribe", 1)]);
    line.unsubscribe(&[1], "c").expect("sent");
    line.subscribe(&[2], "c").expect("sent");
    let words = [push("sunsubscribe", 1), "-MOVED 1 h:7\r\n".to_owned(), push("ssubscribe", 2)];
    assert_eq!(said(&mut line, &mut far, &words), [Event::Confirmed(2)]);
    assert!(line.slots().len() == 1 && line.slots().contains(&2) && line.asked.is_empty());
}

/// An error without a slot that is taken for the answer to a later command costs one more subscription, and nobody is deaf.
#[test]
fn a_confirmation_that_nobody_counts_on_is_taken_back() {
    let (mut line, mut far) = line();
    line.subscribe(&[1], "c").expect("sent");
    said(&mut line, &mut far, &[push("ssubscribe", 1)]);
    line.unsubscribe(&[1], "c").expect("sent");
    line.subscribe(&[2], "c").expect("sent");
    sent(&mut far);
    let words = [push("sunsubscribe", 1), "-CLUSTERDOWN no\r\n".to_owned(), push("ssubscribe", 2)];
    let [Event::Refused(2, _)] = said(&mut line, &mut far, &words).as_slice() else { panic!("no refusal") };
    assert!(line.slots().is_empty());
    let channel = slot_inbox_channel(2, "c");
    assert!(sent(&mut far).contains(&format!("SUNSUBSCRIBE\r\n${}\r\n{channel}", channel.len())));
    // It is subscribed again before that is answered.
    line.subscribe(&[2], "c").expect("sent");
    let words = [push("sunsubscribe", 2), push("ssubscribe", 2)];
    assert_eq!(said(&mut line, &mut far, &words), [Event::Confirmed(2)]);
}

/// A slot that another node owns by a newer map is left: the answer that is under way counts no more.
#[test]
fn a_slot_that_was_left_is_confirmed_no_more() {
    let (mut line, mut far) = line();
    line.subscribe(&[1, 2], "c").expect("sent");
    assert_eq!(sent(&mut far).matches("SSUBSCRIBE").count(), 2);
    line.leave(&[1, 2]);
    assert_eq!(said(&mut line, &mut far, &[push("ssubscribe", 1), "-MOVED 2 h:7\r\n".to_owned()]), []);
    // Back again.
    line.subscribe(&[1], "c").expect("sent");
    assert!(!sent(&mut far).contains("SUNSUBSCRIBE"));
    assert_eq!(said(&mut line, &mut far, &[push("ssubscribe", 1)]), [Event::Confirmed(1)]);
}

/// A server that reads nothing holds nobody up.
#[test]
fn what_has_no_room_is_sent_later() {
    let (mut line, mut far) = line();
    let slots: Vec<Slot> = (0..16_000).collect();
    let begun = Instant::now();
    line.subscribe(&slots, "c").expect("sent");
    assert!(line.is_behind() && begun.elapsed() < line.io_timeout);
    let mut expected = Packed::default();
    slots.iter().for_each(|slot| expected.words(&["SSUBSCRIBE", &slot_inbox_channel(*slot, "c")]));
    let reader = std::thread::spawn(move || {
        let mut bytes = vec![0; expected.bytes.len()];
        far.read_exact(&mut bytes).expect("commands");
        assert!(bytes == expected.bytes);
        far
    });
    while line.is_behind() {
        line.read("c").1.expect("no failure");
    }
    drop(reader.join().expect("no panic"));
}

#[test]
fn a_silent_server_is_asked_and_then_given_up() {
    let (mut line, mut far) = line();
    let begun = Instant::now();
    line.check(begun).expect("it has just been connected");
    line.check(begun + 2 * SILENCE).expect("it is asked");
    line.check(Instant::now()).expect("it has time to answer");
    let mut sent = [0; 64];
    let length = far.read(&mut sent).expect("a PING");
    assert!(String::from_utf8_lossy(&sent[..length]).contains("PING"));
    assert!(line.check(begun + 4 * SILENCE).is_err());
    said(&mut line, &mut far, &["+PONG\r\n".to_owned()]);
    line.check(Instant::now()).expect("it has answered");
    line.subscribe(&[1], "c").expect("sent");
    let asked = Instant::now();
    line.check(asked).expect("it has time to answer");
    assert!(line.due() <= asked + line.io_timeout && line.check(asked + line.io_timeout).is_err());
}
