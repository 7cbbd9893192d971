//! One connection to the server: bytes out, whole replies in.
//!
//! A connection has two halves, so that one thread can write while another reads. One thread at a time owns a half. A [`Link`] keeps both
//! halves together, for the handshake and the inbox.
//!
//! The crate `redis` parses URLs and error replies, and hashes scripts. This crate has its own sockets, and its own reader of all other
//! replies: a blocking connection of `redis` is out of step after a time-out, and the parser of `redis` takes ten times as long.
//!
//! A read or write that ends at its deadline is no error here, and loses nothing. Bytes that were not written stay in the outbound half,
//! and the bytes of an incomplete reply stay in the inbound half. The owner of the half decides whether to go on or to give the connection
//! up.

use super::connector::{ReadHalf, WriteHalf};
use super::resp::{Malformed, Packed, Parser};
use super::socket::{Socket, Timeout};
#[cfg(feature = "tls")]
use super::tls::TlsSession;
use ::redis::Value;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Instant;

/// How many bytes one read takes at most.
const CHUNK: usize = 16 * 1024;

/// How much buffer capacity a connection keeps.
pub(crate) const KEPT: usize = 64 * 1024;

/// A connection that is in step: every byte read belongs to a reply that was requested.
pub(crate) struct Link {
    pub(crate) outbound: Outbound,
    pub(crate) inbound: Inbound,
}

/// What the two halves share.
struct Ends {
    socket: Arc<Socket>,
    #[cfg(feature = "tls")]
    tls: Option<TlsSession>,
}

/// The writing half.
pub(crate) struct Outbound {
    ends: Arc<Ends>,
    timeout: Timeout,
    /// Bytes passed to this half; those from `sent` on have not been passed to the system yet.
    unsent: Vec<u8>,
    sent: usize,
}

/// The reading half.
pub(crate) struct Inbound {
    ends: Arc<Ends>,
    timeout: Timeout,
    /// The bytes from `start` to `end` were read and not yet taken as replies; behind them is only room.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    reader: Parser,
}

impl Link {
    /// Makes a link over a connected socket.
    ///
    /// # Errors
    ///
    /// Those of TLS.
    pub(crate) fn new(socket: Socket, #[cfg(feature = "tls")] tls: Option<TlsSession>) -> io::Result<Self> {
        // The halves share this. The socket closes when the last half is dropped, whichever that is.
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
            reader: Parser::default(),
        };
        #[cfg(feature = "tls")]
        // Text that came with the handshake is in the session. No read of the socket would return it.
        if let Some(tls) = &inbound.ends.tls {
            tls.first_words(&mut inbound.buffer)?;
            inbound.end = inbound.buffer.len();
        }
        Ok(Self { outbound, inbound })
    }

    /// The socket. Another thread can use it to break this link.
    pub(crate) fn socket(&self) -> Arc<Socket> {
        Arc::clone(&self.inbound.ends.socket)
    }

    /// Sends a command, and waits for its reply. Returns `None` if there is none by the deadline.
    pub(crate) fn ask(&mut self, words: &[&str], deadline: Instant) -> io::Result<Option<Value>> {
        self.outbound.send(&Packed::of(words).bytes, deadline)?;
        self.reply(deadline)
    }

    /// Waits for one more reply. Returns `None` if there is none by the deadline.
    pub(crate) fn reply(&mut self, deadline: Instant) -> io::Result<Option<Value>> {
        loop {
            // Unsent bytes go first, because the server cannot answer before it has them.
            self.outbound.flush(deadline)?;
            if let Some(value) = self.inbound.take_reply()? {
                return Ok(Some(value));
            }
            if !self.inbound.fill(Some(deadline))? {
                return Ok(None);
            }
        }
    }
}

impl WriteHalf for Outbound {
    fn send(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<bool> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.ends.tls {
            // The record goes behind the bytes that are still unsent. Each record must be sent, and in its order, because the peer counts the
            // records.
            tls.encrypt(bytes, &mut self.unsent)?;
            return self.flush(deadline);
        }
        if !self.unsent.is_empty() {
            // The bytes go behind those that are still unsent. Otherwise the server would take the middle of one command for the beginning of
            // another.
            self.unsent.extend_from_slice(bytes);
            return self.flush(deadline);
        }
        // No bytes are unsent, so these are written from the caller's buffer. Only the rest for which there is no room is copied.
        let sent = self.ends.socket.write(bytes, &mut self.timeout, deadline)?;
        self.unsent.extend_from_slice(&bytes[sent..]);
        Ok(self.unsent.is_empty())
    }

    fn flush(&mut self, deadline: Instant) -> io::Result<bool> {
        if !self.unsent.is_empty() {
            self.sent += self.ends.socket.write(&self.unsent[self.sent..], &mut self.timeout, deadline)?;
            if self.sent == self.unsent.len() {
                self.unsent.clear();
                // A batch of thousands of commands is rare. Without this, each connection would keep the buffer for it.
                self.unsent.shrink_to(KEPT);
                self.sent = 0;
            }
        }
        Ok(self.unsent.is_empty())
    }
}

impl ReadHalf for Inbound {
    fn take_reply(&mut self) -> io::Result<Option<Value>> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            return Ok(None);
        }
        let read = self.reader.next(&self.buffer[self.start..self.end]);
        match read
            .map_err(|Malformed(what)| io::Error::new(ErrorKind::InvalidData, format!("the server sent {what}")))?
        {
            None => {
                // The beginning of an incomplete reply moves to the front here, so bytes are moved once for each read, and not for each reply.
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
                Ok(None)
            }
            Some((value, length)) => {
                self.start += length;
                Ok(Some(value))
            }
        }
    }

    fn fill(&mut self, deadline: Option<Instant>) -> io::Result<bool> {
        // The buffer grows with a long reply, but only as its bytes arrive: a length that a server only claims costs no memory.
        if self.buffer.len() < self.end + CHUNK {
            self.buffer.resize(self.end + CHUNK, 0);
        }
        // The bytes go behind those that were read before, so a reply lies in one piece, however many reads it took.
        let (socket, room) = (&self.ends.socket, &mut self.buffer[self.end..]);
        let n = match deadline {
            Some(deadline) => socket.read(room, &mut self.timeout, deadline)?,
            None => socket.read_now(room)?,
        };
        if n == 0 {
            return Ok(false);
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.ends.tls {
            // Only a part of a record may have come. Then there is no text yet, and the caller reads on.
            let mut plain = Vec::new();
            let read = tls.decrypt(&self.buffer[self.end..self.end + n], &mut plain);
            // The text before the end of the stream is delivered first; the next read reports the end again.
            if plain.is_empty() {
                read?;
            }
            // The text takes the place of the encrypted bytes.
            self.buffer.truncate(self.end);
            self.buffer.extend_from_slice(&plain);
            self.end = self.buffer.len();
            return Ok(true);
        }
        self.end += n;
        Ok(true)
    }
}
