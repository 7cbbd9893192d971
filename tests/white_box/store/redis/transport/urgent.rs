//! Tests that urgent calls do not wait for other callers: they do not use a connection whose callers are stuck.

use super::{AtLimit, CALLERS, Polling, PostTime, Replied, Reply, Transport, URGENT};
use crate::error::{BackendFailure, Error};
use crate::store::redis::net::connector::{Connector, OpenConnection, ReadHalf, Shutdown, WriteHalf};
use crate::store::redis::net::resp::Packed;
use ::redis::Value;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Far longer than anything takes.
const LONG: Duration = Duration::from_secs(20);

/// Connections on which each byte is a command. A thread that writes to one of the callers' connections is stuck until it is let go.
#[derive(Clone, Default)]
struct Crowded(Arc<(Mutex<State>, Condvar)>);

/// The outcome of a connect.
#[derive(Clone, Copy, Default)]
enum Opening {
    #[default]
    Works,
    Fails,
    /// It hangs until all threads are let go.
    Hangs,
}

struct State {
    opens: usize,
    opening: Opening,
    /// Whether writers get stuck.
    stands: bool,
    /// For each connection, the number of commands written to it, and the number of those not answered.
    connections: Vec<(usize, usize)>,
    standing: usize,
    is_let_go: bool,
}

impl Default for State {
    fn default() -> Self {
        Self { opens: 0, opening: Opening::Works, stands: true, connections: Vec::new(), standing: 0, is_let_go: false }
    }
}

struct End {
    crowded: Crowded,
    connection: usize,
}

impl Crowded {
    fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        let result = act(&mut self.0.0.lock());
        self.0.1.notify_all();
        result
    }

    fn wait_until(&self, is_so: impl Fn(&State) -> bool) {
        let mut state = self.0.0.lock();
        self.0.1.wait_while_for(&mut state, |state| !is_so(state), LONG);
        assert!(is_so(&state));
    }

    fn end(&self, connection: usize) -> End {
        End { crowded: self.clone(), connection }
    }
}

impl Connector for Crowded {
    type Out = End;
    type In = End;
    type Cut = End;

    fn open(&self, _deadline: Instant) -> Result<OpenConnection<Self>, Error> {
        let opening = self.with(|state| {
            state.opens += 1;
            state.opening
        });
        match opening {
            Opening::Works => {}
            Opening::Fails => return Err(Error::backend(BackendFailure::NotExecuted, "no room")),
            Opening::Hangs => self.wait_until(|state| state.is_let_go),
        }
        let n = self.with(|state| {
            state.connections.push((0, 0));
            state.connections.len() - 1
        });
        Ok(OpenConnection { outbound: self.end(n), inbound: self.end(n), cut: self.end(n) })
    }
}

impl WriteHalf for End {
    fn send(&mut self, bytes: &[u8], _deadline: Instant) -> io::Result<bool> {
        if self.connection < CALLERS && self.crowded.with(|state| state.stands) {
            self.crowded.with(|state| state.standing += 1);
            self.crowded.wait_until(|state| state.is_let_go);
        }
        self.crowded.with(|state| {
            let (written, unanswered) = &mut state.connections[self.connection];
            *written += bytes.len();
            *unanswered += bytes.len();
        });
        Ok(true)
    }

    fn flush(&mut self, _deadline: Instant) -> io::Result<bool> {
        Ok(true)
    }
}

impl ReadHalf for End {
    fn fill(&mut self, deadline: Option<Instant>) -> io::Result<bool> {
        if deadline.is_some() {
            self.crowded.wait_until(|state| state.connections[self.connection].1 > 0);
        }
        Ok(self.crowded.with(|state| state.connections[self.connection].1 > 0))
    }

    fn take_reply(&mut self) -> io::Result<Option<Value>> {
        Ok(self.crowded.with(|state| {
            let unanswered = &mut state.connections[self.connection].1;
            (*unanswered > 0).then(|| {
                *unanswered -= 1;
                Value::Okay
            })
        }))
    }
}

impl Shutdown for End {
    fn cut(&self) {}
}

fn command() -> Packed {
    let mut packed = Packed::default();
    packed.begin();
    packed.bytes.push(b'x');
    packed
}

fn call(transport: &Transport<Crowded>, key: &str, packed: Packed, limit: Duration) -> Reply {
    let mut batch = transport.batch(limit);
    batch.push(Some(key), |into| *into = packed);
    transport.round_trip(batch, limit, AtLimit::KeepConnection).pop().expect("a reply")
}

fn transport() -> (Crowded, Transport<Crowded>) {
    let crowded = Crowded::default();
    (
        crowded.clone(),
        Transport::over(crowded, "crowded".to_owned(), LONG, LONG * 2, Polling::Automatic, *b"00000", None),
    )
}

/// Shows: G3.
#[test]
fn an_urgent_call_is_answered_while_a_caller_stands_still_on_every_other_connection() {
    let (crowded, transport) = transport();
    let keys = ["a", "b", "c", "d"];
    assert_eq!(keys.len(), CALLERS);
    std::thread::scope(|scope| {
        for (n, key) in keys.into_iter().enumerate() {
            let transport = &transport;
            scope.spawn(move || call(transport, key, command(), LONG).expect("answered in the end"));
            crowded.wait_until(|state| state.standing == n + 1);
        }
        // Nobody waits for the connection for urgent calls, and no other caller opens it.
        while !transport.urgent_batch(LONG).is_urgent() {
            std::thread::yield_now();
        }
        // This holds even for a key that a caller asks about.
        ["a", "e"].iter().for_each(|key| call_urgently(&transport, key, true));
        // It does nothing about what others keep for their next batches.
        let mut kept = transport.batch(Duration::ZERO);
        kept.push(Some("a"), |packed| *packed = command());
        transport.post_all(kept, LONG, vec![Box::new(|_| ())], PostTime::WithNext);
        call_urgently(&transport, "a", true);
        assert_ne!(transport.kept.load(std::sync::atomic::Ordering::Relaxed), 0);
        // Callers do not use that connection, however long they wait.
        call(&transport, "f", command(), Duration::from_millis(20)).expect_err("nobody writes it");
        crowded.with(|state| {
            assert_eq!(state.connections.len(), CALLERS + 1);
            assert_eq!(state.connections[URGENT].0, 3);
            state.is_let_go = true;
        });
    });
}

/// Creates a transport with one open connection, on which callers are answered. Later connects end as told.
fn with_one_connection(opening: Opening) -> (Crowded, Transport<Crowded>) {
    let (crowded, transport) = transport();
    assert!(!transport.urgent_batch(LONG).is_urgent());
    assert_eq!(crowded.with(|state| state.opens), 0, "the server has never answered");
    crowded.with(|state| state.stands = false);
    call(&transport, "a", command(), LONG).expect("an answer");
    crowded.with(|state| state.opening = opening);
    (crowded, transport)
}

/// An urgent call is answered, on the connection for these or on that of the callers.
fn call_urgently(transport: &Transport<Crowded>, key: &str, is_apart: bool) {
    let mut batch = transport.urgent_batch(LONG);
    assert_eq!(batch.is_urgent(), is_apart);
    batch.push(Some(key), |packed| *packed = command());
    let answers = transport.round_trip(batch, LONG, AtLimit::BreakConnection);
    assert!(matches!(&answers[..], [Ok(Replied { value: Value::Okay, .. })]), "{answers:?}");
}

/// Shows: G3.
#[test]
fn urgent_calls_go_with_the_callers_while_their_own_connect_hangs() {
    let (crowded, transport) = with_one_connection(Opening::Hangs);
    for _ in 0..100 {
        call_urgently(&transport, "a", false);
    }
    crowded.wait_until(|state| state.opens == 2);
    crowded.with(|state| state.is_let_go = true);
    while !transport.urgent_batch(LONG).is_urgent() {
        std::thread::yield_now();
    }
    assert_eq!(crowded.with(|state| state.opens), 2);
}

#[test]
fn a_refused_connect_for_urgent_calls_is_not_repeated_with_each_of_them() {
    let (crowded, transport) = with_one_connection(Opening::Fails);
    let begin = Instant::now();
    for _ in 0..100 {
        call_urgently(&transport, "a", false);
        std::thread::sleep(Duration::from_millis(1));
    }
    let pauses = begin.elapsed().as_secs() as usize + 1;
    let opens = crowded.with(|state| state.opens) - 1;
    assert!((1..=pauses + 1).contains(&opens), "{opens} connects in {pauses} s");
}

#[test]
fn a_connect_that_hangs_costs_callers_one_call() {
    let (crowded, transport) = with_one_connection(Opening::Hangs);
    crowded.with(|state| state.stands = true);
    std::thread::scope(|scope| {
        let standing = scope.spawn(|| call(&transport, "a", command(), LONG));
        crowded.wait_until(|state| state.standing == 1);
        transport.settings.connect_took.store(1, std::sync::atomic::Ordering::Relaxed);
        let short = Duration::from_millis(20);
        call(&transport, "b", command(), short).expect_err("its connect hangs");
        assert_eq!(transport.choose(short), 0, "the next one keeps to the connection that is there");
        crowded.with(|state| state.is_let_go = true);
        standing.join().expect("no panic").expect("answered in the end");
    });
}
