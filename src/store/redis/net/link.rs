//! One connection to the server: bytes out, whole replies in.
//!
//! It has two halves, so that one thread can write while another reads; whoever has a half owns it. A [`Link`] is both
//! in one hand, as the handshake and the inbox use them.

use super::frame::Framer;
use super::resp::decode;
use super::socket::{Progress, Socket, Timeout};
#[cfg(feature = "tls")]
use super::tls_session::TlsSession;
use ::redis::Value;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Instant;

/// How much is read in one go.
const CHUNK: usize = 16 * 1024;

/// How much room for bytes a connection keeps.
pub(crate) const KEPT: usize = 64 * 1024;

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
    /// A link over a connected socket.
    ///
    /// # Errors
    ///
    /// Of TLS.
    pub(crate) fn new(socket: Socket, #[cfg(feature = "tls")] tls: Option<TlsSession>) -> io::Result<Self> {
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
            tls.first_words(&mut inbound.buffer)?;
            inbound.end = inbound.buffer.len();
        }
        Ok(Self { outbound, inbound })
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
