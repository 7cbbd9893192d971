//! Connections through a Unix socket, as agents of Consul offer one.
//!
//! The HTTP client only has TCP, and lets a program supply its own connector and transport. A socket has no name to look up, and no TLS.
//!
//! The rest of the crate relies on these rules, which hold for the client's own connections, too:
//!
//! 1. *A connect that fails has sent nothing.* Its error is always that of a refused connection, so the request counts as not executed, and the next
//!    server is asked.
//! 2. *Each read and each write has what is left of the request's time.* The client says how much that is before each of them.
//! 3. *Another thread may end a connection.* A read that waits then finds the end of the stream. An inbox is cut in this way.
//! 4. *An idle connection is used again only if it is still open, and has nothing to read.* Unexpected bytes would be taken for the answer to the
//!    next request.
//!
//! 5. *A connect ends with the request's time*, on Linux. It blocks while the agent does not accept connections and its queue is full.
//!    (Other systems refuse the connection in that case.)

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, ShutdownHandle, Transport,
};

/// Connects to a socket, whatever the URL of a request says.
#[derive(Debug)]
pub(super) struct SocketConnector(pub(super) PathBuf);

impl Connector for SocketConnector {
    type Out = SocketTransport;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<SocketTransport>, Error> {
        // Whatever the reason, no request was sent.
        let refused = |e| io::Error::new(ErrorKind::ConnectionRefused, format!("{}: {e}", self.0.display()));
        let socket = Arc::new(Socket(connect(&self.0, details.timeout.not_zero().map(|time| *time)).map_err(refused)?));
        let shared: Weak<dyn ShutdownHandle> = Arc::<Socket>::downgrade(&socket);
        (details.register_shutdown)(shared)?;
        let sizes = &details.config;
        let buffers = LazyBuffers::new(sizes.input_buffer_size(), sizes.output_buffer_size());
        Ok(Some(SocketTransport { socket, buffers }))
    }
}

/// Connects within a time. The kernel waits for a place in the agent's queue for as long as a write may take (`SO_SNDTIMEO`). The standard library
/// has no connect with a limit for these sockets.
#[cfg(target_os = "linux")]
fn connect(path: &Path, limit: Option<Duration>) -> io::Result<UnixStream> {
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Each write sets what is left for it, so this one does not outlast the connect.
    set_socket_timeout(&socket, Timeout::Send, limit)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// Connects, or fails at once: other systems refuse a connection for which there is no room.
#[cfg(not(target_os = "linux"))]
fn connect(path: &Path, _: Option<Duration>) -> io::Result<UnixStream> {
    UnixStream::connect(path)
}

/// A connection.
pub(super) struct SocketTransport {
    socket: Arc<Socket>,
    buffers: LazyBuffers,
}

/// The socket, which another thread may shut down.
#[derive(Debug)]
struct Socket(UnixStream);

impl ShutdownHandle for Socket {
    fn shutdown(&self) {
        // It may be closed already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl Transport for SocketTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    /// Writes all bytes. After an error the caller counts the outcome as unknown: the agent may have got a whole request.
    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = timeout.for_write();
        self.socket.0.set_write_timeout(timeout.not_zero().map(|time| *time))?;
        let output = &self.buffers.output()[..amount];
        (&self.socket.0).write_all(output).map_err(|e| timed(e, timeout))
    }

    /// Waits for the first bytes. Returns `false` at the end of the stream. A signal does not end the wait. The caller sets the time that is left
    /// before each read.
    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = timeout.for_read();
        self.socket.0.set_read_timeout(timeout.not_zero().map(|time| *time))?;
        let input = self.buffers.input_append_buf();
        let amount = loop {
            match (&self.socket.0).read(input) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                read => break read.map_err(|e| timed(e, timeout))?,
            }
        };
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    /// Returns whether an idle connection has nothing to read. Its end, or unexpected bytes, would be something to read.
    fn is_open(&mut self) -> bool {
        let socket = &self.socket.0;
        let is_idle = || {
            socket.set_nonblocking(true)?;
            let read = (&mut &*socket).read(&mut [0]);
            socket.set_nonblocking(false)?;
            Ok::<_, io::Error>(read.is_err_and(|e| e.kind() == ErrorKind::WouldBlock))
        };
        is_idle().unwrap_or(false)
    }
}

impl fmt::Debug for SocketTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketTransport").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// Converts the error of a read or a write. The end of its time has two error kinds.
fn timed(error: io::Error, timeout: NextTimeout) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => Error::Io(error),
    }
}
