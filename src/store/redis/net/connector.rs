//! What the transport needs from a connection. A connection has two halves, each used by one thread at a time; any thread can cut it.
//!
//! These traits are a seam for tests. The model of the transport implements them by a simulated network, and unit tests by a connection
//! that hangs, takes no more bytes, or panics. The crate itself has one implementation: [`Endpoint`](super::endpoint::Endpoint), which
//! opens links.
//!
//! A half never blocks beyond its deadline. A deadline that has come is no error: the half returns `false`, and keeps the bytes that it
//! has. Only an error ends the connection. So one thread can give a half to another in the middle of a reply or of a write.

use crate::error::Error;
use ::redis::Value;
use std::io;
use std::time::Instant;

/// Opens connections.
pub(crate) trait Connector: Send + Sync + 'static {
    type Out: WriteHalf;
    type In: ReadHalf;
    type Cut: Shutdown;

    /// Opens a connection. Blocks until the deadline at most.
    fn open(&self, deadline: Instant) -> Result<OpenConnection<Self>, Error>;

    /// Stops the work of opening connections. Called when no more connections are needed.
    fn close(&self) {}

    /// Returns `true` if a thread may be started to open a connection. Only the model returns `false`, as if the system refused the thread.
    fn may_spawn(&self) -> bool {
        true
    }
}

/// An open connection.
pub(crate) struct OpenConnection<C: Connector + ?Sized> {
    pub(crate) outbound: C::Out,
    pub(crate) inbound: C::In,
    pub(crate) cut: C::Cut,
}

/// The half that is written to. Both methods return `true` if everything is written.
pub(crate) trait WriteHalf: Send {
    /// Takes bytes, and writes as many as it can until the deadline.
    fn send(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<bool>;

    /// Writes the bytes that earlier writes left over.
    fn flush(&mut self, deadline: Instant) -> io::Result<bool>;
}

/// The half that is read from.
pub(crate) trait ReadHalf: Send {
    /// Reads more; returns `false` if nothing came until the deadline. Without a deadline it does not wait, and reads what has arrived.
    fn fill(&mut self, deadline: Option<Instant>) -> io::Result<bool>;

    /// Returns the next reply that was read completely.
    fn take_reply(&mut self) -> io::Result<Option<Value>>;
}

/// Ends a connection from any thread.
pub(crate) trait Shutdown: Send {
    /// Wakes the threads that read or write with an error, and discards what was not sent yet.
    fn cut(&self);

    /// Returns a number that rises when another server than before answers on another connection. This connection may have been cut then.
    fn server(&self) -> u64 {
        0
    }
}
