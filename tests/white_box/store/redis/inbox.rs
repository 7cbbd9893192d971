use super::*;
use crate::store::redis::net::socket::Socket;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// An inbox that was not read for a while, with nothing to read, and the far end of its connection.
fn unread_since(heard: Instant) -> (RedisInbox, UnixStream) {
    let (near, far) = UnixStream::pair().expect("sockets");
    let link = Link::new(
        Socket::of(near),
        #[cfg(feature = "tls")]
        None,
    )
    .expect("no TLS");
    let (place, breaker, io_timeout) = ("h".to_owned(), link.socket(), Duration::from_secs(60));
    (RedisInbox { place, link: Some(link), breaker, heard, pinged: None, io_timeout }, far)
}

/// A machine that stalls, or a thread that gets no processor.
#[test]
fn a_server_has_time_to_answer_a_ping_however_long_the_client_did_not_read() {
    let (mut inbox, mut far) = unread_since(Instant::now() - Duration::from_secs(3600));
    assert!(inbox.next(Duration::ZERO).expect("it is asked").is_none());
    let mut sent = [0; 64];
    let length = far.read(&mut sent).expect("a PING");
    assert!(String::from_utf8_lossy(&sent[..length]).contains("PING"));
    assert!(inbox.next(Duration::ZERO).expect("it has time to answer").is_none());
    far.write_all(b"+PONG\r\n*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$15\r\ncontended a-1 k\r\n").expect("room");
    assert!(matches!(inbox.next(Duration::ZERO).expect("it has answered"), Some(Message::Contended { .. })));
    // It has had its time.
    inbox.pinged = Some(Instant::now() - inbox.io_timeout);
    assert!(inbox.next(Duration::ZERO).is_err());
}
