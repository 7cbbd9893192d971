//! Tests that no call is written to a connection that was cut because another server has answered.

use super::{AtLimit, Polling, Transport};
use crate::error::Error;
use crate::store::redis::net::connector::{Connector, OpenConnection, ReadHalf, Shutdown, WriteHalf};
use ::redis::Value;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

#[derive(Clone, Default)]
struct Replaced(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The server that answers now.
    server: u64,
    /// For each connection, the server that it leads to, and how often it was written to.
    connections: Vec<(u64, usize)>,
    /// How many replies have not been read yet.
    unread: usize,
}

/// One end of a connection, by the connection's place in the list.
struct End(Replaced, usize);

impl End {
    fn is_cut(&self) -> bool {
        let state = self.0.0.lock();
        state.connections[self.1].0 < state.server
    }

    fn check(&self) -> io::Result<bool> {
        if self.is_cut() { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(true) }
    }
}

impl Connector for Replaced {
    type Out = End;
    type In = End;
    type Cut = End;

    fn open(&self, _deadline: Instant) -> Result<OpenConnection<Self>, Error> {
        let mut state = self.0.lock();
        let server = state.server;
        state.connections.push((server, 0));
        let end = || End(self.clone(), state.connections.len() - 1);
        Ok(OpenConnection { outbound: end(), inbound: end(), cut: end() })
    }
}

impl WriteHalf for End {
    fn send(&mut self, _bytes: &[u8], _deadline: Instant) -> io::Result<bool> {
        let mut state = self.0.0.lock();
        state.connections[self.1].1 += 1;
        state.unread += 1;
        drop(state);
        self.check()
    }

    fn flush(&mut self, _deadline: Instant) -> io::Result<bool> {
        self.check()
    }
}

impl ReadHalf for End {
    fn fill(&mut self, deadline: Option<Instant>) -> io::Result<bool> {
        self.check().map(|is_there| is_there && deadline.is_some())
    }

    fn take_reply(&mut self) -> io::Result<Option<Value>> {
        let mut state = self.0.0.lock();
        let is_there = state.unread > 0;
        state.unread -= usize::from(is_there);
        Ok(is_there.then_some(Value::Okay))
    }
}

impl Shutdown for End {
    fn cut(&self) {}

    fn server(&self) -> u64 {
        self.0.0.lock().server
    }
}

/// A connection that has just been used is not checked otherwise.
/// Shows: G5.
#[test]
fn a_connection_that_another_server_has_ended_is_not_written_to() {
    let servers = Replaced::default();
    let transport =
        Transport::over(servers.clone(), "replaced".to_owned(), LIMIT, LIMIT, Polling::Automatic, *b"00000", None);
    let call = || {
        let mut batch = transport.batch(LIMIT);
        batch.push(Some("k"), |packed| packed.words(&["PING"]));
        transport.round_trip(batch, LIMIT, AtLimit::KeepConnection).pop().expect("an answer")
    };
    call().expect("the first server answers");
    servers.0.lock().server = 1;
    call().expect("the second server answers");
    call().expect("the second server answers");
    assert_eq!(servers.0.lock().connections, [(0, 1), (1, 2)]);
}
