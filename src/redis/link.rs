//! One connection to the server after its handshake: bytes out, whole replies in. Whoever holds the link owns it; it has
//! no lock and is never shared.

use super::address::Address;
use super::frame::Framer;
use super::handshake;
use super::stream::{Breaker, Progress, Stream};
#[cfg(feature = "tls")]
use super::tls::Tls;
use crate::error::Error;
use ::redis::Value;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// After so long a silence a link is looked at before it is written to: the server may have closed it.
const IDLE: Duration = Duration::from_secs(1);
/// How much is read in one go.
const CHUNK: usize = 16 * 1024;

/// Everything a link is made from.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: Address,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Tls>,
    /// For connect, TLS and handshake together.
    pub(crate) connect_timeout: Duration,
}

/// A connection that is in step: every byte read belongs to a reply that was asked for.
pub(crate) struct Link {
    stream: Stream,
    breaker: Breaker,
    /// Bytes handed to the link and not yet to the system.
    unsent: VecDeque<u8>,
    /// Bytes read, from `start` on not yet taken as replies.
    buffer: Vec<u8>,
    start: usize,
    framer: Framer,
    last_use: Instant,
}

impl Link {
    /// Connects and shakes hands.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] (not executed), [`Error::Denied`], [`Error::Unsupported`], [`Error::InvalidConfig`] for a
    /// database that does not exist.
    pub(crate) fn open(endpoint: &Endpoint, deadline: Instant) -> Result<Self, Error> {
        #[cfg(feature = "tls")]
        let stream = Stream::connect(&endpoint.address, endpoint.tls.as_ref(), deadline)?;
        #[cfg(not(feature = "tls"))]
        let stream = Stream::connect(&endpoint.address, deadline)?;
        let breaker = stream.breaker().map_err(|e| handshake::failed(&endpoint.address, &e))?;
        let mut link = Self {
            stream,
            breaker,
            unsent: VecDeque::new(),
            buffer: Vec::new(),
            start: 0,
            framer: Framer::default(),
            last_use: Instant::now(),
        };
        handshake::run(&mut link, &endpoint.address, deadline)?;
        Ok(link)
    }

    /// A handle by which another thread can break this link.
    pub(crate) fn breaker(&self) -> io::Result<Breaker> {
        self.stream.breaker()
    }

    /// Makes sure, without waiting, that a link that was idle for long is still usable. Only while no reply is due.
    pub(crate) fn check_idle(&mut self) -> io::Result<()> {
        if self.last_use.elapsed() < IDLE {
            return Ok(());
        }
        self.stream.check_idle()
    }

    /// Takes bytes to be sent, and sends what it can; the rest goes with the next [`flush`](Self::flush).
    pub(crate) fn send(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        let mut sent = 0;
        if self.unsent.is_empty() {
            if let Progress::Bytes(n) = self.stream.write(bytes, deadline)? {
                sent = n;
            }
            self.last_use = Instant::now();
        }
        self.unsent.extend(&bytes[sent..]);
        Ok(())
    }

    /// Sends what is left over; whether nothing is left then.
    pub(crate) fn flush(&mut self, deadline: Instant) -> io::Result<bool> {
        if !self.unsent.is_empty()
            && let Progress::Bytes(n) = self.stream.write(self.unsent.make_contiguous(), deadline)?
        {
            self.unsent.drain(..n);
        }
        Ok(self.unsent.is_empty())
    }

    /// The next reply that was read completely.
    pub(crate) fn take_reply(&mut self) -> io::Result<Option<Value>> {
        let found = self.framer.end(&self.buffer[self.start..]);
        let garbage = |what: &str| io::Error::new(ErrorKind::InvalidData, format!("the server sent {what}"));
        match found.map_err(|malformed| garbage(malformed.0))? {
            None => {
                self.buffer.drain(..self.start);
                self.start = 0;
                Ok(None)
            }
            Some(end) => {
                let frame = &self.buffer[self.start..self.start + end];
                let value = ::redis::parse_redis_value(frame).map_err(|_| garbage("a reply that cannot be read"))?;
                self.start += end;
                Ok(Some(value))
            }
        }
    }

    /// Reads more bytes; `false` when none came until the deadline.
    pub(crate) fn fill(&mut self, deadline: Instant) -> io::Result<bool> {
        let length = self.buffer.len();
        self.buffer.resize(length + CHUNK, 0);
        let read = self.stream.read(&mut self.buffer[length..], deadline);
        let n = match &read {
            Ok(Progress::Bytes(n)) => *n,
            _ => 0,
        };
        self.buffer.truncate(length + n);
        self.last_use = Instant::now();
        read.map(|progress| progress != Progress::TimedOut)
    }

    /// Closes the connection so that nothing written and unsent reaches the server any more.
    pub(crate) fn abort(self) {
        self.breaker.no_linger();
    }
}
