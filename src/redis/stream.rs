//! One socket to the server, plain, local or TLS: connected, read and written with deadlines.

use super::address::{Address, Place};
#[cfg(feature = "tls")]
use super::tls::Tls;
use crate::error::{BackendFailure, Error};
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The shortest socket time-out that is set; zero would mean "none".
const MIN_TIMEOUT: Duration = Duration::from_millis(1);

/// After so long a silence the system asks whether the other side is still there: an inbox may hear nothing for days.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// A connected socket.
pub(crate) struct Stream {
    kind: Kind,
    /// The time-outs that the socket has now; setting one costs a system call.
    read_timeout: Duration,
    write_timeout: Duration,
}

enum Kind {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
    #[cfg(feature = "tls")]
    Tls(Box<rustls::StreamOwned<rustls::ClientConnection, TcpStream>>),
}

/// What one attempt to read or write brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// So many bytes; never zero.
    Bytes(usize),
    /// Nothing until the deadline.
    TimedOut,
}

impl Stream {
    /// Connects, TLS handshake included.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`], not executed, with the address and the words of the operating system.
    pub(crate) fn connect(
        address: &Address,
        #[cfg(feature = "tls")] tls: Option<&Tls>,
        deadline: Instant,
    ) -> Result<Self, Error> {
        let failed =
            |e: io::Error| Error::backend(BackendFailure::NotExecuted, format!("cannot connect to {address}: {e}"));
        let kind = match &address.place {
            #[cfg(unix)]
            Place::Unix(path) => Kind::Unix(UnixStream::connect(path).map_err(failed)?),
            #[cfg(not(unix))]
            Place::Unix(_) => return Err(failed(ErrorKind::Unsupported.into())),
            Place::Tcp { host, port, .. } => {
                let socket = connect_tcp(host, *port, deadline).map_err(failed)?;
                socket.set_nodelay(true).map_err(failed)?;
                SockRef::from(&socket).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE)).map_err(failed)?;
                Kind::Tcp(socket)
            }
        };
        let mut stream = Self { kind, read_timeout: Duration::ZERO, write_timeout: Duration::ZERO };
        #[cfg(feature = "tls")]
        if let (Some(tls), Place::Tcp { host, .. }) = (tls, &address.place) {
            stream = stream.into_tls(tls, host, deadline).map_err(failed)?;
        }
        stream.arm(Direction::Read, deadline).map_err(failed)?;
        stream.arm(Direction::Write, deadline).map_err(failed)?;
        Ok(stream)
    }

    /// Runs the TLS handshake on a plain connection.
    #[cfg(feature = "tls")]
    fn into_tls(mut self, tls: &Tls, host: &str, deadline: Instant) -> io::Result<Self> {
        let mut session = tls.session(host)?;
        while session.is_handshaking() {
            if Instant::now() >= deadline {
                return Err(io::Error::new(ErrorKind::TimedOut, "the TLS handshake took too long"));
            }
            self.arm(Direction::Read, deadline)?;
            self.arm(Direction::Write, deadline)?;
            let Kind::Tcp(socket) = &mut self.kind else { return Err(ErrorKind::Unsupported.into()) };
            match session.complete_io(socket) {
                Ok(_) => {}
                Err(e) if is_timeout(&e) => {}
                Err(e) => return Err(e),
            }
        }
        match self.kind {
            Kind::Tcp(socket) => {
                Ok(Self { kind: Kind::Tls(Box::new(rustls::StreamOwned::new(session, socket))), ..self })
            }
            _ => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// Reads what is there, waiting for the first byte until `deadline`.
    ///
    /// # Errors
    ///
    /// Of the socket; [`ErrorKind::UnexpectedEof`] when the server closed it.
    pub(crate) fn read(&mut self, buffer: &mut [u8], deadline: Instant) -> io::Result<Progress> {
        loop {
            self.arm(Direction::Read, deadline)?;
            match self.io().read(buffer) {
                Ok(0) => return Err(closed()),
                Ok(n) => return Ok(Progress::Bytes(n)),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if is_timeout(&e) => {
                    if Instant::now() >= deadline {
                        return Ok(Progress::TimedOut);
                    }
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Writes as many bytes as it can until `deadline`; all of them are on their way when it returns that it wrote them.
    ///
    /// # Errors
    ///
    /// Of the socket.
    pub(crate) fn write(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<Progress> {
        let mut written = 0;
        loop {
            self.arm(Direction::Write, deadline)?;
            let step =
                if written < bytes.len() { self.io().write(&bytes[written..]) } else { self.io().flush().map(|()| 0) };
            match step {
                Ok(0) if written == bytes.len() => return Ok(Progress::Bytes(written)),
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => written += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if is_timeout(&e) => {
                    if Instant::now() >= deadline {
                        return Ok(if written > 0 { Progress::Bytes(written) } else { Progress::TimedOut });
                    }
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Looks, without waiting, whether an idle connection is still there and silent.
    ///
    /// # Errors
    ///
    /// When it is closed, broken, or has bytes that nobody asked for.
    pub(crate) fn check_idle(&mut self) -> io::Result<()> {
        self.set_nonblocking(true)?;
        let read = self.io().read(&mut [0u8; 1]);
        self.set_nonblocking(false)?;
        match read {
            Ok(0) => Err(closed()),
            Ok(_) => Err(io::Error::new(ErrorKind::InvalidData, "the server sent something unasked")),
            Err(e) if is_timeout(&e) || e.kind() == ErrorKind::Interrupted => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// A second handle of the socket, by which another thread can break the connection.
    pub(crate) fn breaker(&self) -> io::Result<Breaker> {
        Ok(match &self.kind {
            Kind::Tcp(s) => Breaker::Tcp(s.try_clone()?),
            #[cfg(unix)]
            Kind::Unix(s) => Breaker::Unix(s.try_clone()?),
            #[cfg(feature = "tls")]
            Kind::Tls(s) => Breaker::Tcp(s.sock.try_clone()?),
        })
    }

    /// Gives the time-out that is left to the socket, if the one it has would be too long, or far too short.
    fn arm(&mut self, direction: Direction, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now()).max(MIN_TIMEOUT);
        let current = match direction {
            Direction::Read => &mut self.read_timeout,
            Direction::Write => &mut self.write_timeout,
        };
        // Between the half and the whole of what is left needs no call; an early end is a turn of the caller's loop.
        if *current <= left && *current >= left / 2 {
            return Ok(());
        }
        *current = (left * 3 / 4).max(MIN_TIMEOUT);
        let timeout = Some(*current);
        match (&self.kind, direction) {
            (Kind::Tcp(s), Direction::Read) => s.set_read_timeout(timeout),
            (Kind::Tcp(s), Direction::Write) => s.set_write_timeout(timeout),
            #[cfg(unix)]
            (Kind::Unix(s), Direction::Read) => s.set_read_timeout(timeout),
            #[cfg(unix)]
            (Kind::Unix(s), Direction::Write) => s.set_write_timeout(timeout),
            #[cfg(feature = "tls")]
            (Kind::Tls(s), Direction::Read) => s.sock.set_read_timeout(timeout),
            #[cfg(feature = "tls")]
            (Kind::Tls(s), Direction::Write) => s.sock.set_write_timeout(timeout),
        }
    }

    fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        match &self.kind {
            Kind::Tcp(s) => s.set_nonblocking(on),
            #[cfg(unix)]
            Kind::Unix(s) => s.set_nonblocking(on),
            #[cfg(feature = "tls")]
            Kind::Tls(s) => s.sock.set_nonblocking(on),
        }
    }

    fn io(&mut self) -> &mut dyn ReadWrite {
        match &mut self.kind {
            Kind::Tcp(s) => s,
            #[cfg(unix)]
            Kind::Unix(s) => s,
            #[cfg(feature = "tls")]
            Kind::Tls(s) => s.as_mut(),
        }
    }
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

/// Breaks a connection from outside.
#[derive(Debug)]
pub(crate) enum Breaker {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Breaker {
    /// Wakes whoever reads or writes, with the end of the stream. What was written and not sent yet is thrown away when
    /// the socket is closed: the server must not run it later.
    pub(crate) fn cut(&self) {
        self.no_linger();
        // An error means that the connection is gone already.
        let _ = match self {
            Self::Tcp(s) => s.shutdown(Shutdown::Both),
            #[cfg(unix)]
            Self::Unix(s) => s.shutdown(Shutdown::Both),
        };
    }

    /// Makes the close throw away what was written and not sent yet.
    pub(crate) fn no_linger(&self) {
        if let Self::Tcp(s) = self {
            let _ = SockRef::from(s).set_linger(Some(Duration::ZERO));
        }
    }
}

fn closed() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection")
}

/// A socket time-out is `WouldBlock` on Unix and `TimedOut` elsewhere.
fn is_timeout(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Tries every address of a host until the deadline.
fn connect_tcp(host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the host name has no address");
    for address in resolve(host, port, deadline)? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(ErrorKind::TimedOut, "connection timed out"));
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(socket) => return Ok(socket),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// Resolves a name on a thread of its own: the system's resolver knows no deadline.
fn resolve(host: &str, port: u16, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let (send, receive) = crossbeam_channel::bounded(1);
    let name = host.to_owned();
    std::thread::Builder::new().name("redis-dlock-resolve".to_owned()).spawn(move || {
        // Nobody listens any more after the deadline.
        let _ = send.send((name.as_str(), port).to_socket_addrs().map(Vec::from_iter));
    })?;
    receive
        .recv_deadline(deadline)
        .unwrap_or_else(|_| Err(io::Error::new(ErrorKind::TimedOut, "resolving the host name took too long")))
}
