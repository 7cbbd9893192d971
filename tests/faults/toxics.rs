//! The network of the scenarios does what its names say.

use crate::support::crew::{eventually, hang};
use crate::support::proxy::{Lot, Sent, Way};
use crate::support::{Proxy, RedisServer};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

/// How long nothing is to come.
const SHORT: Duration = Duration::from_millis(100);

fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(("127.0.0.1", proxy.port())).unwrap()
}

fn send(mut stream: &TcpStream, words: &[&str]) {
    stream.write_all(&redis::cmd(words[0]).arg(&words[1..]).get_packed_command()).unwrap();
}

/// What comes next; `Err` of the kind of failure.
fn heard(stream: &TcpStream) -> Result<String, ErrorKind> {
    heard_within(stream, hang())
}

/// What comes next within a time; `WouldBlock` when nothing does.
fn heard_within(mut stream: &TcpStream, limit: Duration) -> Result<String, ErrorKind> {
    stream.set_read_timeout(Some(limit)).unwrap();
    let mut bytes = [0; 1000];
    let n = stream.read(&mut bytes).map_err(|e| e.kind())?;
    Ok(String::from_utf8_lossy(&bytes[..n]).into_owned())
}

/// An increment that a trap knows: the proxy tells scripts apart by their first comment.
fn probe(stream: &TcpStream) {
    let title = include_str!("../../scripts/probe.lua").lines().nth(1).unwrap();
    send(stream, &["EVAL", &format!("#!lua\n{title}\nreturn redis.call('INCR', KEYS[1])"), "1", "n"]);
}

fn count(server: &RedisServer) -> u64 {
    server.run::<Option<u64>>(&["GET", "n"]).unwrap_or(0)
}

#[test]
fn one_command_meets_its_lot_and_the_others_go_through() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let nothing = || Err(ErrorKind::WouldBlock);
    for (lot, first, executed) in [
        (Lot::LoseReply, nothing(), 2),
        (Lot::LoseRequest, nothing(), 1),
        (Lot::CutReply(1), Ok(":".to_owned()), 2),
        (Lot::Reset, Err(ErrorKind::ConnectionReset), 2),
    ] {
        server.run::<()>(&["DEL", "n"]);
        let fired = proxy.trap(Sent::Probe, 1, lot);
        let stream = connect(&proxy);
        probe(&stream);
        assert_eq!(heard(&stream), Ok(":1\r\n".to_owned()));
        assert!(!fired.is_fired());
        probe(&stream);
        let limit = if first == nothing() { SHORT } else { hang() };
        assert_eq!(heard_within(&stream, limit), first, "{lot:?}");
        assert!(fired.is_fired());
        eventually("it is executed, or not", || count(&server) == executed);
        // Later bytes on the connection share its lot. A new connection works.
        let _ = (&stream).write_all(&redis::cmd("PING").get_packed_command());
        assert_ne!(heard_within(&stream, SHORT), Ok("+PONG\r\n".to_owned()), "{lot:?}");
        let other = connect(&proxy);
        send(&other, &["PING"]);
        assert_eq!(heard(&other), Ok("+PONG\r\n".to_owned()));
    }
}

#[test]
fn a_late_request_is_executed_also_when_its_client_has_gone() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let fired = proxy.trap(Sent::Probe, 0, Lot::DelayRequest(20 * SHORT));
    let stream = connect(&proxy);
    probe(&stream);
    eventually("the trap is met", || fired.is_fired());
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    assert_eq!(count(&server), 0);
    eventually("it is executed", || count(&server) == 1);
}

#[test]
fn a_half_open_connection_is_closed_on_neither_side() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let stream = connect(&proxy);
    send(&stream, &["SUBSCRIBE", "c"]);
    assert!(heard(&stream).is_ok());
    proxy.silence();
    let heard_by = || server.run::<u64>(&["PUBLISH", "c", "x"]);
    assert_eq!(heard_by(), 1);
    assert_eq!(heard_within(&stream, SHORT), Err(ErrorKind::WouldBlock));
    drop(stream);
    thread::sleep(SHORT);
    assert_eq!(heard_by(), 1, "the server does not know");
    drop(proxy);
    eventually("the end of the network is the end of its connections", || heard_by() == 0);
}

#[test]
fn bytes_are_lost_one_way_delayed_and_sliced() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let stream = connect(&proxy);
    proxy.lose(Way::ToClient, true);
    send(&stream, &["INCR", "n"]);
    eventually("it is executed", || count(&server) == 1);
    assert_eq!(heard_within(&stream, SHORT), Err(ErrorKind::WouldBlock));
    proxy.lose(Way::ToClient, false);
    proxy.lose(Way::ToServer, true);
    send(&stream, &["INCR", "n"]);
    assert_eq!(heard_within(&stream, SHORT), Err(ErrorKind::WouldBlock));
    assert_eq!(count(&server), 1);
    proxy.lose(Way::ToServer, false);

    let stream = connect(&proxy);
    proxy.delay(Way::ToServer, SHORT);
    proxy.delay(Way::ToClient, SHORT);
    let begin = Instant::now();
    send(&stream, &["PING"]);
    assert_eq!(heard(&stream), Ok("+PONG\r\n".to_owned()));
    assert!(begin.elapsed() >= 2 * SHORT);

    proxy.slice(true);
    proxy.delay(Way::ToServer, Duration::ZERO);
    proxy.delay(Way::ToClient, Duration::ZERO);
    let long = "x".repeat(500);
    // A reader that comes late may find all pieces at once.
    eventually("a reply comes in pieces", || {
        send(&stream, &["ECHO", &long]);
        let (mut pieces, mut whole) = (0, String::new());
        while !whole.ends_with("x\r\n") {
            whole += &heard(&stream).unwrap();
            pieces += 1;
        }
        assert_eq!(whole, format!("$500\r\n{long}\r\n"));
        pieces > 1
    });
}
