//! One connection to the server after its handshake: bytes out, whole replies in.
//!
//! It has two halves, so that one thread can write while another reads; whoever has a half owns it. A [`Link`] is both
//! in one hand, as the handshake and the inbox use them.

use super::address::Address;
#[cfg(feature = "tls")]
use super::address::Place;
use super::dial::dial;
use super::frame::Framer;
use super::handshake;
use super::socket::{Progress, Socket, Timeout};
#[cfg(feature = "tls")]
use super::tls::Tls;
#[cfg(feature = "tls")]
use super::tls_session::TlsSession;
use crate::error::Error;
use ::redis::Value;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How much is read in one go.
const CHUNK: usize = 16 * 1024;

/// How much room for bytes a connection keeps.
pub(super) const KEPT: usize = 64 * 1024;

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
    pub(crate) outbound: Outbound,
    pub(crate) inbound: Inbound,
}

/// What both halves share.
struct Ends {
    socket: Arc<Socket>,
    #[cfg(feature = "tls")]
    tls: Option<TlsSession>,
}

/// The half that is written to.
pub(crate) struct Outbound {
    ends: Arc<Ends>,
    timeout: Timeout,
    /// Handed to this half and not yet to the system, from `sent` on.
    unsent: Vec<u8>,
    sent: usize,
}

/// The half that is read from.
pub(crate) struct Inbound {
    ends: Arc<Ends>,
    timeout: Timeout,
    /// Bytes read, from `start` to `end` not yet taken as replies; behind that only room.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    framer: Framer,
}

impl Link {
    /// Connects and shakes hands.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] (not executed), [`Error::Denied`], [`Error::Unsupported`], [`Error::InvalidConfig`] for a
    /// database that does not exist.
    pub(crate) fn open(endpoint: &Endpoint, deadline: Instant) -> Result<Self, Error> {
        let socket = dial(&endpoint.address, deadline)?;
        #[cfg(feature = "tls")]
        let tls = match (&endpoint.tls, &endpoint.address.place) {
            (Some(tls), Place::Tcp { host, .. }) => Some(
                TlsSession::start(tls, host, &socket, deadline).map_err(|e| handshake::failed(&endpoint.address, e))?,
            ),
            _ => None,
        };
        let ends = Arc::new(Ends {
            socket: Arc::new(socket),
            #[cfg(feature = "tls")]
            tls,
        });
        let outbound = Outbound { ends: Arc::clone(&ends), timeout: Timeout::default(), unsent: Vec::new(), sent: 0 };
        #[cfg_attr(not(feature = "tls"), expect(unused_mut, reason = "only TLS says something before it is asked"))]
        let mut inbound = Inbound {
            ends,
            timeout: Timeout::default(),
            buffer: Vec::new(),
            start: 0,
            end: 0,
            framer: Framer::default(),
        };
        #[cfg(feature = "tls")]
        if let Some(tls) = &inbound.ends.tls {
            tls.first_words(&mut inbound.buffer).map_err(|e| handshake::failed(&endpoint.address, e))?;
            inbound.end = inbound.buffer.len();
        }
        let mut link = Self { outbound, inbound };
        handshake::run(&mut link, &endpoint.address, deadline)?;
        Ok(link)
    }

    /// The socket, by which another thread can break this link.
    pub(crate) fn socket(&self) -> Arc<Socket> {
        Arc::clone(&self.inbound.ends.socket)
    }

    /// Sends, and waits for one reply; `None` when there is none until the deadline.
    pub(crate) fn ask(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<Option<Value>> {
        self.outbound.send(bytes, deadline)?;
        self.reply(deadline)
    }

    /// Waits for one more reply; `None` when there is none until the deadline.
    pub(crate) fn reply(&mut self, deadline: Instant) -> io::Result<Option<Value>> {
        loop {
            self.outbound.flush(deadline)?;
            if let Some(value) = self.inbound.take_reply()? {
                return Ok(Some(value));
            }
            if !self.inbound.fill(deadline)? {
                return Ok(None);
            }
        }
    }
}

impl Outbound {
    /// Takes bytes to be sent, and sends what it can until the deadline; the rest goes with the next
    /// [`flush`](Self::flush). Whether nothing is left.
    pub(crate) fn send(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<bool> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.ends.tls {
            tls.encrypt(bytes, &mut self.unsent)?;
            return self.flush(deadline);
        }
        if !self.unsent.is_empty() {
            self.unsent.extend_from_slice(bytes);
            return self.flush(deadline);
        }
        let sent = match self.ends.socket.write(bytes, &mut self.timeout, deadline)? {
            Progress::Bytes(n) => n,
            Progress::TimedOut => 0,
        };
        self.unsent.extend_from_slice(&bytes[sent..]);
        Ok(self.unsent.is_empty())
    }

    /// Sends what is left over; whether nothing is left then.
    pub(crate) fn flush(&mut self, deadline: Instant) -> io::Result<bool> {
        if !self.unsent.is_empty()
            && let Progress::Bytes(n) =
                self.ends.socket.write(&self.unsent[self.sent..], &mut self.timeout, deadline)?
        {
            self.sent += n;
            if self.sent == self.unsent.len() {
                self.unsent.clear();
                self.unsent.shrink_to(KEPT);
                self.sent = 0;
            }
        }
        Ok(self.unsent.is_empty())
    }
}

impl Inbound {
    /// The next reply that was read completely.
    pub(crate) fn take_reply(&mut self) -> io::Result<Option<Value>> {
        let garbage = |what: &str| io::Error::new(ErrorKind::InvalidData, format!("the server sent {what}"));
        let unread = &self.buffer[self.start..self.end];
        match self.framer.end(unread).map_err(|malformed| garbage(malformed.0))? {
            None => {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
                Ok(None)
            }
            Some(end) => {
                let value = decode(&unread[..end]).ok_or_else(|| garbage("a reply that cannot be read"))?;
                self.start += end;
                Ok(Some(value))
            }
        }
    }

    /// Reads more bytes; `false` when none came until the deadline.
    pub(crate) fn fill(&mut self, deadline: Instant) -> io::Result<bool> {
        self.read(|socket, buffer, timeout| socket.read(buffer, timeout, deadline))
    }

    /// Reads what is there, without waiting; `false` when there is nothing.
    pub(crate) fn fill_now(&mut self) -> io::Result<bool> {
        self.read(|socket, buffer, _| socket.read_now(buffer))
    }

    fn read(
        &mut self,
        from: impl FnOnce(&Socket, &mut [u8], &mut Timeout) -> io::Result<Progress>,
    ) -> io::Result<bool> {
        if self.buffer.len() < self.end + CHUNK {
            self.buffer.resize(self.end + CHUNK, 0);
        }
        let Progress::Bytes(n) = from(&self.ends.socket, &mut self.buffer[self.end..], &mut self.timeout)? else {
            return Ok(false);
        };
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.ends.tls {
            let mut plain = Vec::new();
            let read = tls.decrypt(&self.buffer[self.end..self.end + n], &mut plain);
            // What was said before the end is heard; the end comes again.
            if plain.is_empty() {
                read?;
            }
            self.buffer.truncate(self.end);
            self.buffer.extend_from_slice(&plain);
            self.end = self.buffer.len();
            return Ok(true);
        }
        self.end += n;
        Ok(true)
    }
}

/// Reads one complete frame, as the framer has found it. The parser takes ten times as long; it is left what is rare, and errors.
pub(super) fn decode(frame: &[u8]) -> Option<Value> {
    let mut rest = frame;
    element(&mut rest).filter(|_| rest.is_empty()).or_else(|| ::redis::parse_redis_value(frame).ok())
}

/// Takes one element off the front.
fn element(rest: &mut &[u8]) -> Option<Value> {
    let (kind, line) = line(rest)?.split_first()?;
    match (kind, line) {
        (b':', digits) => number(digits).map(Value::Int),
        (b'+', b"OK") => Some(Value::Okay),
        (b'$' | b'*', b"-1") => Some(Value::Nil),
        (b'$', length) => {
            let bytes = rest.get(..usize::try_from(number(length)?).ok()?)?;
            *rest = rest[bytes.len()..].strip_prefix(b"\r\n")?;
            Some(Value::BulkString(bytes.to_vec()))
        }
        (b'*', length) => {
            let length = usize::try_from(number(length)?).ok()?;
            (0..length).map(|_| element(rest)).collect::<Option<_>>().map(Value::Array)
        }
        _ => None,
    }
}

/// Takes a line off the front.
fn line<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let end = rest.iter().position(|b| *b == b'\r')?;
    let line = &rest[..end];
    *rest = rest[end..].strip_prefix(b"\r\n")?;
    Some(line)
}

fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::frame::tests::{encode, values};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn replies_are_read_as_the_parser_reads_them(value in values()) {
            let mut frame = Vec::new();
            encode(&value, &mut frame);
            prop_assert_eq!(decode(&frame), ::redis::parse_redis_value(&frame).ok());
            prop_assert_eq!(decode(&frame), Some(value));
        }
    }
}
