//! Connects a socket before a deadline, by TCP or locally.
//!
//! * The addresses of a host are tried one after another, until one accepts or the deadline comes.
//! * The system's resolver takes no deadline. So a name is looked up on a thread of its own. When the time is over, that thread is left to
//!   end by itself.
//! * A local socket connects without blocking. A full backlog has no event to wait for (`EAGAIN`), so the connect is repeated every 1 to 16 ms
//!   until its deadline.

use super::address::{Address, Place};
use super::handshake::failed;
use super::socket::Socket;
use super::timing::KEEPALIVE;
use crate::error::Error;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
#[cfg(unix)]
use std::path::Path;
use std::time::Instant;

/// Connects a socket to the server's address.
///
/// # Errors
///
/// [`Error::Backend`], not executed, with the address and the operating system's words.
pub(crate) fn dial(address: &Address, deadline: Instant) -> Result<Socket, Error> {
    let failed = |cause| failed(address, cause);
    match &address.place {
        #[cfg(unix)]
        Place::Unix(path) => connect_unix(path.as_ref(), deadline).map(Socket::of).map_err(failed),
        #[cfg(not(unix))]
        Place::Unix(_) => Err(failed(ErrorKind::Unsupported.into())),
        Place::Service { .. } => Err(failed(ErrorKind::NotFound.into())),
        Place::Tcp { host, port, .. } => {
            let socket = connect_tcp(host, *port, deadline).map_err(failed)?;
            // One write is one batch of commands. With Nagle's algorithm, the next write would wait for the acknowledgement of this one.
            socket.set_nodelay(true).map_err(failed)?;
            // Keep-alives are for a connection that nobody uses for long: a firewall may forget it, and the next call would learn of that only after
            // its limit.
            SockRef::from(&socket).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE)).map_err(failed)?;
            Ok(Socket::of(socket))
        }
    }
}

/// Connects to a local socket. `UnixStream::connect` has no deadline, and blocks while the server's queue of connections is full. In
/// that case a non-blocking connect on Linux returns `EAGAIN`, and no event reports a free place, so the connect is repeated.
/// (`socket2`'s `connect_timeout` mistakes that reply for the beginning of a connect, and fails.)
#[cfg(unix)]
fn connect_unix(path: &Path, deadline: Instant) -> io::Result<socket2::Socket> {
    use super::timing::FULL;
    use rustix::io::Errno;
    use socket2::{Domain, SockAddr, Type};
    let address = SockAddr::unix(path)?;
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    let mut tries = 0;
    loop {
        match socket.connect(&address).map_err(|e| (Errno::from_io_error(&e), e)) {
            // A connect that was interrupted may have gone through meanwhile.
            Ok(()) | Err((Some(Errno::ISCONN), _)) => break,
            Err((Some(Errno::AGAIN | Errno::INPROGRESS | Errno::ALREADY | Errno::INTR), _)) => {}
            Err((_, e)) => return Err(e),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(timed_out());
        }
        tries += 1;
        std::thread::sleep(FULL.after(tries).min(left));
    }
    // Reads and writes wait, each with a time-out.
    socket.set_nonblocking(false)?;
    Ok(socket)
}

/// Tries every address of a host, one after the other, until the deadline.
fn connect_tcp(host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the host name has no address");
    for address in resolve(host, port, deadline)? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(timed_out());
        }
        // Each address gets all the time that is left: an address that hangs is rare, and the resolver returns the best address first.
        match TcpStream::connect_timeout(&address, left) {
            Ok(socket) => return Ok(socket),
            // The last failure is returned: if all addresses fail, the failures are mostly the same.
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// Resolves a name on a thread of its own, because the system's resolver has no deadline.
fn resolve(host: &str, port: u16, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    // An address needs no look-up, and no thread. The nodes of a Cluster and Sentinels mostly name addresses.
    if let Ok(ip) = host.parse() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    // The channel has room for the one answer, so that the thread ends even if its caller has left.
    let (send, receive) = crossbeam_channel::bounded(1);
    let name = host.to_owned();
    // The thread ends with the resolver's answer, which may take half a minute if a name server is gone. It owns only the name, so it may outlive its
    // caller.
    std::thread::Builder::new().name("dlock-resolve".to_owned()).spawn(move || {
        // After the deadline no thread receives the result.
        let _ = send.send((name.as_str(), port).to_socket_addrs().map(Vec::from_iter));
    })?;
    receive
        .recv_deadline(deadline)
        .unwrap_or_else(|_| Err(io::Error::new(ErrorKind::TimedOut, "resolving the host name took too long")))
}

/// The error of a connect for which no time is left, as the system would say it.
fn timed_out() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "connection timed out")
}

#[cfg(all(test, unix))]
#[path = "../../../../tests/white_box/store/redis/net/dial.rs"]
mod tests;
