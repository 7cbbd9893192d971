//! One socket to the server, TCP or local. Reads and writes have deadlines, and two threads may do them at the same time.
//!
//! Any thread can [cut](Socket::cut) it. That wakes the threads that read or write. It also closes the socket with `SO_LINGER` 0, so that
//! the system delivers nothing later that is left in its buffers. A command may still arrive after its call has failed, because a network
//! delays, and a caller with an unknown outcome must expect that. The cut only prevents that this machine causes such a delay.

use super::timing::SHORTEST_TIMEOUT;
#[cfg(unix)]
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io::{self, ErrorKind, Read};
use std::net::Shutdown;
use std::time::{Duration, Instant};

/// A connected socket. It is shared: one thread may read, another may write, and any thread may cut it.
#[derive(Debug)]
pub(crate) struct Socket(socket2::Socket);

/// The time-out that the socket currently has for one direction; setting one costs a system call. It belongs to the one thread that
/// reads, or writes.
#[derive(Debug, Default)]
pub(crate) struct Timeout(Duration);

#[cfg(unix)]
impl std::os::fd::AsFd for Socket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Socket {
    /// Takes over a connected socket, TCP or local.
    pub(crate) fn of(socket: impl Into<socket2::Socket>) -> Self {
        Self(socket.into())
    }

    /// Reads the bytes that have arrived, waiting for the first one until `deadline`. Returns how many they are: zero if none has come.
    ///
    /// # Errors
    ///
    /// Those of the socket; [`ErrorKind::UnexpectedEof`] when the server closed it.
    pub(crate) fn read(&self, buffer: &mut [u8], timeout: &mut Timeout, deadline: Instant) -> io::Result<usize> {
        loop {
            if let Some(new) = timeout.renew(deadline) {
                self.0.set_read_timeout(Some(new))?;
            }
            match (&self.0).read(buffer) {
                // The end of the stream is an error here: no command asks the server to close, and a reply is due or may come.
                Ok(0) => return Err(closed()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if is_timeout(&e) => {
                    if Instant::now() >= deadline {
                        return Ok(0);
                    }
                }
                read => return read,
            }
        }
    }

    /// Reads the bytes that have arrived, without waiting. Returns how many they are.
    ///
    /// # Errors
    ///
    /// Those of [`read`](Self::read).
    pub(crate) fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.read_once_now(buffer) {
            Ok(0) => Err(closed()),
            // A signal has interrupted the read. The caller does not wait, and reads again later.
            Err(e) if is_timeout(&e) || e.kind() == ErrorKind::Interrupted => Ok(0),
            read => read,
        }
    }

    /// Writes as many bytes as it can until `deadline`. Returns how many they are.
    ///
    /// # Errors
    ///
    /// Those of the socket.
    pub(crate) fn write(&self, bytes: &[u8], timeout: &mut Timeout, deadline: Instant) -> io::Result<usize> {
        // Usually there is room, and no time-out is needed.
        let mut written = self.write_now(bytes)?;
        while written < bytes.len() {
            // A time-out lasts at least one tick of the system's timer. A caller without any time left must not wait for one.
            if cfg!(unix) && Instant::now() >= deadline {
                break;
            }
            if let Some(new) = timeout.renew(deadline) {
                self.0.set_write_timeout(Some(new))?;
            }
            match self.write_once(&bytes[written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => written += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if is_timeout(&e) => {
                    if Instant::now() >= deadline {
                        break;
                    }
                }
                Err(e) => return Err(e),
            }
        }
        Ok(written)
    }

    /// Writes as many bytes as there is room for, without waiting.
    #[cfg(unix)]
    fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.send(bytes, SendFlags::DONTWAIT) {
            // There is no room, or a signal came. The caller waits for room with a time-out.
            Err(e) if is_timeout(&e) || e.kind() == ErrorKind::Interrupted => Ok(0),
            written => written,
        }
    }

    /// Waits for room as long as the socket's time-out says, and writes as many bytes as there is room for.
    #[cfg(unix)]
    fn write_once(&self, bytes: &[u8]) -> io::Result<usize> {
        self.send(bytes, SendFlags::empty())
    }

    #[cfg(unix)]
    fn send(&self, bytes: &[u8], flags: SendFlags) -> io::Result<usize> {
        // On Apple's systems, every socket has this option from its creation.
        #[cfg(not(target_vendor = "apple"))]
        let flags = flags | SendFlags::NOSIGNAL;
        Ok(send(&self.0, bytes, flags)?)
    }

    /// Writes nothing. There is no flag for a single write that does not wait, and a socket that is non-blocking for a moment would disturb the
    /// thread that reads. The write with a time-out follows.
    #[cfg(not(unix))]
    fn write_now(&self, _bytes: &[u8]) -> io::Result<usize> {
        Ok(0)
    }

    #[cfg(not(unix))]
    fn write_once(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes)
    }

    /// Wakes all threads that read or write: they see the end of the stream. Bytes that were written but not yet sent are thrown away
    /// when the socket is closed, because the server must not execute them later.
    pub(crate) fn cut(&self) {
        // The option is set before the shutdown: a thread that the shutdown wakes may close the socket at once, and the close must find the option
        // set. Bytes that are written to a local socket are in the server's queue at once, so nothing is left to throw away.
        let _ = self.0.set_linger(Some(Duration::ZERO));
        // An error means that the connection is already gone.
        let _ = self.0.shutdown(Shutdown::Both);
    }

    #[cfg(unix)]
    fn read_once_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(&self.0, buffer, RecvFlags::DONTWAIT)?.0)
    }

    /// A thread that writes meanwhile sees this as a time-out, and tries again until its deadline.
    #[cfg(not(unix))]
    fn read_once_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.set_nonblocking(true)?;
        let read = (&self.0).read(buffer);
        self.0.set_nonblocking(false)?;
        read
    }
}

impl Timeout {
    /// The time-out to set on the socket, if its present one is too long, or far too short.
    fn renew(&mut self, deadline: Instant) -> Option<Duration> {
        let left = deadline.saturating_duration_since(Instant::now()).max(SHORTEST_TIMEOUT);
        // A time-out between half of the time left and all of it can stay: if it ends early, the caller's loop goes round once more.
        // A time-out of three quarters stays in that range until the time left has grown by a half or shrunk by a quarter.
        if self.0 <= left && self.0 >= left / 2 {
            return None;
        }
        self.0 = (left * 3 / 4).max(SHORTEST_TIMEOUT);
        Some(self.0)
    }
}

fn closed() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection")
}

/// A socket time-out is reported as `WouldBlock` on Unix and as `TimedOut` elsewhere.
fn is_timeout(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
