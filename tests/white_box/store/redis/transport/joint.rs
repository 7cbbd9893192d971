//! Tests that batches to several servers, begun together, do not wait for one another.

use super::{AtLimit, Batch, Begun, Polling, Replies, Transport, WaitOrder};
use crate::error::Error;
use crate::store::redis::net::connector::{Connector, OpenConnection, ReadHalf, Shutdown, WriteHalf};
use ::redis::Value;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);

/// A server that answers at once, unless it hangs. Its connection takes no bytes while it is full.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    hangs: bool,
    is_full: bool,
    /// How many replies have not been read yet.
    unread: usize,
    /// How many connections were cut.
    cuts: usize,
    /// For each attempt to write, whether it might have waited.
    writes: Vec<bool>,
    /// Whether nothing has come before somebody waits for it.
    is_far: bool,
    /// How often somebody has looked for replies without waiting.
    looks: usize,
}

impl Server {
    fn write(&self, deadline: Instant) -> io::Result<bool> {
        let may_wait = deadline > Instant::now();
        let mut state = self.0.lock();
        state.writes.push(may_wait);
        let takes = !state.is_full;
        state.unread += usize::from(takes && !state.hangs);
        Ok(takes)
    }
}

impl Connector for Server {
    type Out = Server;
    type In = Server;
    type Cut = Server;

    fn open(&self, _: Instant) -> Result<OpenConnection<Self>, Error> {
        Ok(OpenConnection { outbound: self.clone(), inbound: self.clone(), cut: self.clone() })
    }
}

impl WriteHalf for Server {
    fn send(&mut self, _: &[u8], deadline: Instant) -> io::Result<bool> {
        self.write(deadline)
    }

    fn flush(&mut self, deadline: Instant) -> io::Result<bool> {
        self.write(deadline)
    }
}

impl ReadHalf for Server {
    fn fill(&mut self, deadline: Option<Instant>) -> io::Result<bool> {
        let mut state = self.0.lock();
        let is_there = state.unread > 0;
        let Some(deadline) = deadline else {
            state.looks += 1;
            return Ok(!state.is_far && is_there);
        };
        drop(state);
        if !is_there {
            thread::sleep(deadline.saturating_duration_since(Instant::now()));
        }
        Ok(is_there)
    }

    fn take_reply(&mut self) -> io::Result<Option<Value>> {
        let mut state = self.0.lock();
        let is_there = state.unread > 0;
        state.unread -= usize::from(is_there);
        Ok(is_there.then_some(Value::Okay))
    }
}

impl Shutdown for Server {
    fn cut(&self) {
        self.0.lock().cuts += 1;
    }
}

fn batch(transport: &Transport<Server>, limit: Duration) -> Batch<'_> {
    let mut batch = transport.batch(limit);
    batch.push(Some("k"), |packed| packed.words(&["PING"]));
    batch
}

fn connect(server: &Server, polling: Polling) -> Transport<Server> {
    Transport::over(server.clone(), "joint".to_owned(), LONG, LONG, polling, *b"00000", None)
}

/// A transport whose connection is open, and so old that a limit that ends may break it.
fn open(server: &Server) -> Transport<Server> {
    let transport = connect(server, Polling::Automatic);
    transport
        .round_trip(batch(&transport, LONG), LONG, AtLimit::BreakConnection)
        .pop()
        .expect("one")
        .expect("an answer");
    thread::sleep(2 * SHORT);
    transport
}

fn begin(transport: &Transport<Server>, at: Instant, limit: Duration) -> Begun {
    transport.begin(batch(transport, SHORT), at, limit, WaitOrder::AfterOthers)
}

fn is_answered(transport: &Transport<Server>, mut begun: Begun) -> bool {
    begun.until.at_limit = AtLimit::BreakConnection;
    transport.end(begun).pop().expect("one").is_ok()
}

/// Its caller had no time left when it came to this answer, because it had waited for another one.
/// Shows: S16.
#[test]
fn an_answer_that_has_come_is_read_after_the_deadline_too() {
    let [hung, healthy] = [(); 2].map(|()| Server::default());
    let transports = [&hung, &healthy].map(open);
    hung.0.lock().hangs = true;
    let at = Instant::now();
    let [first, second] = transports.each_ref().map(|transport| begin(transport, at, SHORT));
    assert!(!is_answered(&transports[0], first));
    assert!(Instant::now() >= at + SHORT);
    assert!(is_answered(&transports[1], second));
    assert_eq!([&hung, &healthy].map(|server| server.0.lock().cuts), [1, 0]);
}

/// The time was over before the batch was begun: the connection has not met it.
#[test]
fn a_batch_without_time_breaks_no_connection() {
    let server = Server::default();
    let transport = open(&server);
    let begun = begin(&transport, Instant::now(), Duration::ZERO);
    assert!(!is_answered(&transport, begun));
    let mut state = server.0.lock();
    assert_eq!((state.cuts, state.writes.len()), (0, 1));
    state.unread = 0;
    drop(state);
}

/// Nobody who has other batches to begin waits for a connection that takes no more bytes.
#[test]
fn a_full_connection_keeps_nobody_from_beginning_elsewhere() {
    let [full, other] = [(); 2].map(|()| Server::default());
    let transports = [&full, &other].map(open);
    full.0.lock().is_full = true;
    let at = Instant::now();
    let [first, second] = transports.each_ref().map(|transport| begin(transport, at, LONG));
    assert!(full.0.lock().writes[1..].iter().all(|may_wait| !may_wait), "{:?}", full.0.lock().writes);
    full.0.lock().is_full = false;
    assert!(is_answered(&transports[0], first));
    assert!(is_answered(&transports[1], second));
}

/// A connection that nobody uses is closed, and another one is opened when it is needed; one with a reply due stays.
#[test]
fn an_idle_connection_is_closed() {
    let server = Server::default();
    let transport = open(&server);
    transport.end_idle(LONG);
    assert_eq!(server.0.lock().cuts, 0);
    server.0.lock().hangs = true;
    let due = begin(&transport, Instant::now(), LONG);
    thread::sleep(2 * SHORT);
    transport.end_idle(SHORT);
    assert_eq!(server.0.lock().cuts, 0, "a reply is due");
    server.0.lock().unread = 1;
    server.0.lock().hangs = false;
    assert!(is_answered(&transport, due));
    thread::sleep(2 * SHORT);
    transport.end_idle(SHORT);
    assert_eq!((server.0.lock().cuts, transport.is_connected()), (1, false));
    transport
        .round_trip(batch(&transport, LONG), LONG, AtLimit::BreakConnection)
        .pop()
        .expect("one")
        .expect("an answer");
    assert!(transport.is_connected());
}

/// Runs that many calls, and counts those whose callers have looked for their answers before they waited.
fn calls_that_poll(server: &Server, calls: usize, call: impl Fn() -> Replies) -> usize {
    let polls = |_: &usize| {
        let before = server.0.lock().looks;
        call().pop().expect("one").expect("an answer");
        server.0.lock().looks > before
    };
    (0..calls).filter(polls).count()
}

/// The same for calls of callers.
fn callers_that_poll(transport: &Transport<Server>, server: &Server, calls: usize) -> usize {
    let call = || transport.round_trip(batch(transport, LONG), LONG, AtLimit::BreakConnection);
    calls_that_poll(server, calls, call)
}

#[test]
fn a_caller_that_is_alone_polls_and_only_now_and_then_if_the_server_is_far() {
    let far = Server::default();
    far.0.lock().is_far = true;
    let polled = callers_that_poll(&connect(&far, Polling::AtMost(SHORT / 500)), &far, 2000);
    // One after 1, 2, 4 … 64 others each, and after that one of 129.
    assert!(polled <= 8 + 2000 / 129, "{polled}");
    let near = Server::default();
    assert_eq!(callers_that_poll(&connect(&near, Polling::Automatic), &near, 100), 100);
    assert_eq!(callers_that_poll(&connect(&near, Polling::Off), &near, 100), 0);
}

#[test]
fn an_urgent_caller_does_not_poll() {
    let server = Server::default();
    let transport = connect(&server, Polling::Automatic);
    assert_eq!(callers_that_poll(&transport, &server, 1), 1);
    while !transport.urgent_batch(LONG).is_urgent() {
        thread::yield_now();
    }
    let call = || {
        let mut batch = transport.urgent_batch(LONG);
        batch.push(Some("k"), |packed| packed.words(&["PING"]));
        transport.round_trip(batch, LONG, AtLimit::BreakConnection)
    };
    assert_eq!(calls_that_poll(&server, 100, call), 0);
}
