//! One socket to the server, TCP or local. Reads and writes have deadlines, and two threads may do them at the same time.
//!
//! Any thread can [cut](Socket::cut) it. That wakes the threads that read or write. It also closes the socket with `SO_LINGER` 0, so that
//! the system delivers nothing later that is left in its buffers. A command may still arrive after its call has failed, because a network
//! delays, and a caller with an unknown outcome must expect that. The cut only prevents that this machine causes such a delay.

use super::timing::SHORTEST_TIMEOUT;
use socket2::SockRef;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A connected socket. It is shared: one thread may read, another may write, and any thread may cut it.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// The time-out that the socket currently has for one direction; setting one costs a system call. It belongs to the one thread that
/// reads, or writes.
#[derive(Debug, Default)]
pub(crate) struct Timeout(Duration);

/// The result of one attempt to read or write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum IoProgress {
    /// This many bytes; never zero.
    Bytes(usize),
    /// No byte until the deadline.
    TimedOut,
}

#[cfg(unix)]
impl std::os::fd::AsFd for Socket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Self::Tcp(s) => s.as_fd(),
            Self::Unix(s) => s.as_fd(),
        }
    }
}

impl Socket {
    /// Reads the bytes that have arrived, waiting for the first one until `deadline`.
    ///
    /// # Errors
    ///
    /// Those of the socket; [`ErrorKind::UnexpectedEof`] when the server closed it.
    pub(crate) fn read(&self, buffer: &mut [u8], timeout: &mut Timeout, deadline: Instant) -> io::Result<IoProgress> {
        loop {
            if let Some(new) = timeout.renew(deadline) {
                match self {
                    Self::Tcp(s) => s.set_read_timeout(new),
                    #[cfg(unix)]
                    Self::Unix(s) => s.set_read_timeout(new),
                }?;
            }
            match self.read_once(buffer) {
                // The end of the stream is an error here: no command asks the server to close, and a reply is due or may come.
                Ok(0) => return Err(closed()),
                Ok(n) => return Ok(IoProgress::Bytes(n)),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if is_timeout(&e) => {
                    if Instant::now() >= deadline {
                        return Ok(IoProgress::TimedOut);
                    }
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Reads the bytes that have arrived, without waiting.
    ///
    /// # Errors
    ///
    /// Those of [`read`](Self::read).
    pub(crate) fn read_now(&self, buffer: &mut [u8]) -> io::Result<IoProgress> {
        match self.read_once_now(buffer) {
            Ok(0) => Err(closed()),
            Ok(n) => Ok(IoProgress::Bytes(n)),
            // A signal has interrupted the read. The caller does not wait, and reads again later.
            Err(e) if is_timeout(&e) || e.kind() == ErrorKind::Interrupted => Ok(IoProgress::TimedOut),
            Err(e) => Err(e),
        }
    }

    /// Writes as many bytes as it can until `deadline`.
    ///
    /// # Errors
    ///
    /// Those of the socket.
    pub(crate) fn write(&self, bytes: &[u8], timeout: &mut Timeout, deadline: Instant) -> io::Result<IoProgress> {
        // Usually there is room, and no time-out is needed.
        let mut written = self.write_now(bytes)?;
        while written < bytes.len() {
            // A time-out lasts at least one tick of the system's timer. A caller without any time left must not wait for one.
            if cfg!(unix) && Instant::now() >= deadline {
                break;
            }
            if let Some(new) = timeout.renew(deadline) {
                match self {
                    Self::Tcp(s) => s.set_write_timeout(new),
                    #[cfg(unix)]
                    Self::Unix(s) => s.set_write_timeout(new),
                }?;
            }
            // A plain write, which waits for room as long as the time-out lasts.
            let step = match self {
                Self::Tcp(s) => (&*s).write(&bytes[written..]),
                #[cfg(unix)]
                Self::Unix(s) => (&*s).write(&bytes[written..]),
            };
            match step {
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
        Ok(if written > 0 { IoProgress::Bytes(written) } else { IoProgress::TimedOut })
    }

    /// Writes as many bytes as there is room for, without waiting.
    #[cfg(unix)]
    fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        use rustix::net::{SendFlags, send};
        let flags = SendFlags::DONTWAIT;
        // On Apple's systems the standard library has set this option on the socket.
        #[cfg(not(target_vendor = "apple"))]
        let flags = flags | SendFlags::NOSIGNAL;
        let written = match self {
            Self::Tcp(s) => send(s, bytes, flags),
            Self::Unix(s) => send(s, bytes, flags),
        };
        match written.map_err(io::Error::from) {
            // No room, or a signal: the caller waits for room with a time-out.
            Err(e) if is_timeout(&e) || e.kind() == ErrorKind::Interrupted => Ok(0),
            written => written,
        }
    }

    /// Writes nothing: there is no flag for a single write that does not wait, and to make the socket non-blocking for a moment would be seen by
    /// the thread that reads. The write with a time-out follows.
    #[cfg(not(unix))]
    fn write_now(&self, _bytes: &[u8]) -> io::Result<usize> {
        Ok(0)
    }

    /// Wakes all threads that read or write: they see the end of the stream. Bytes that were written but not yet sent are thrown away
    /// when the socket is closed, because the server must not execute them later.
    pub(crate) fn cut(&self) {
        // First the option, then the shutdown: who is woken by it may close the socket at once, and the close must find the option set.
        self.no_linger();
        // An error means that the connection is already gone.
        let _ = match self {
            Self::Tcp(s) => s.shutdown(Shutdown::Both),
            #[cfg(unix)]
            Self::Unix(s) => s.shutdown(Shutdown::Both),
        };
    }

    /// Makes the close throw away bytes that were written but not yet sent.
    pub(crate) fn no_linger(&self) {
        match self {
            Self::Tcp(s) => _ = SockRef::from(s).set_linger(Some(Duration::ZERO)),
            // What is written to a local socket is in the server's queue at once, so nothing is left to throw away.
            #[cfg(unix)]
            Self::Unix(_) => {}
        }
    }

    /// Reads the bytes that have arrived, waiting for the first one for as long as the socket's time-out says.
    fn read_once(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => (&*s).read(buffer),
            #[cfg(unix)]
            Self::Unix(s) => (&*s).read(buffer),
        }
    }

    #[cfg(unix)]
    fn read_once_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        use rustix::net::{RecvFlags, recv};
        let (read, _) = match self {
            Self::Tcp(s) => recv(s, buffer, RecvFlags::DONTWAIT),
            Self::Unix(s) => recv(s, buffer, RecvFlags::DONTWAIT),
        }?;
        Ok(read)
    }

    /// A thread that writes meanwhile sees this as a time-out, and tries again until its deadline.
    #[cfg(not(unix))]
    fn read_once_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let Self::Tcp(s) = self;
        s.set_nonblocking(true)?;
        let read = (&*s).read(buffer);
        s.set_nonblocking(false)?;
        read
    }
}

impl Timeout {
    /// The time-out to set on the socket, if its present one is too long, or far too short.
    fn renew(&mut self, deadline: Instant) -> Option<Option<Duration>> {
        let left = deadline.saturating_duration_since(Instant::now()).max(SHORTEST_TIMEOUT);
        // A time-out between half of the time left and all of it can stay: if it ends early, the caller's loop goes round once more.
        // One of three quarters stays in that range while the time left changes by a quarter or a half.
        if self.0 <= left && self.0 >= left / 2 {
            return None;
        }
        self.0 = (left * 3 / 4).max(SHORTEST_TIMEOUT);
        Some(Some(self.0))
    }
}

fn closed() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection")
}

/// A socket time-out is reported as `WouldBlock` on Unix and as `TimedOut` elsewhere.
fn is_timeout(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
