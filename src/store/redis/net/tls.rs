//! TLS, with the crate rustls: what sessions are made from, and a session shared by the two halves of a connection, of which one thread may
//! read while another writes.
//!
//! A server's certificate is always checked, against the platform's roots or those that the program gives. No setting turns the check off.
//! With several servers (a Cluster, a service of Sentinels) the certificate of each must name the host under which that server is dialled.
//!
//! rustls keeps the session apart from the socket. So the session's mutex is held only while bytes are converted, never while a thread
//! waits for the socket. Records leave in the order in which they were made, because only one thread writes.

use super::socket::{Socket, Timeout};
use crate::error::Error;
use crate::sync::unseen::Mutex;
use crate::tls::TlsSettings;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Instant;

/// What TLS sessions are made from. Shows nothing of it.
#[derive(Clone)]
pub(crate) struct Tls(Arc<ClientConfig>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads the certificates for sessions with `host`, if it is known already.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for certificates or keys that cannot be used, and for a host that no certificate can name.
    pub(crate) fn new(settings: &TlsSettings, host: Option<&str>) -> Result<Self, Error> {
        if let Some(host) = host
            && ServerName::try_from(host).is_err()
        {
            return Err(Error::invalid_config(
                "URL",
                host,
                "no certificate can name this host: give a DNS name or an IP address",
            ));
        }
        Ok(Self(Arc::new(settings.client_config()?)))
    }

    /// A session with a host, before its handshake.
    fn session(&self, host: &str) -> io::Result<ClientConnection> {
        // The certificate must name the host as it was dialled, even if another server has named that host.
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        ClientConnection::new(Arc::clone(&self.0), name).map_err(io::Error::other)
    }
}

/// A session, from its handshake on.
pub(crate) struct TlsSession(Mutex<ClientConnection>);

impl TlsSession {
    /// Runs the handshake.
    ///
    /// # Errors
    ///
    /// Those of the socket and of TLS, such as a certificate that does not fit.
    pub(crate) fn start(tls: &Tls, host: &str, socket: &Socket, deadline: Instant) -> io::Result<Self> {
        let mut session = tls.session(host)?;
        // A batch of renewals may have any length. The session holds the text only for a moment, until it is encrypted, so a limit would only bound
        // the length of a write.
        session.set_buffer_limit(None);
        let (mut read, mut write) = (Timeout::default(), Timeout::default());
        let (mut buffer, mut out) = ([0u8; 4096], Vec::new());
        let late = || io::Error::new(ErrorKind::TimedOut, "the TLS handshake took too long");
        loop {
            while session.wants_write() {
                session.write_tls(&mut out)?;
            }
            let mut sent = 0;
            while sent < out.len() {
                match socket.write(&out[sent..], &mut write, deadline)? {
                    0 => return Err(late()),
                    n => sent += n,
                }
            }
            out.clear();
            // This comes after the writing: the server needs our last message of the handshake, and may have none left to send.
            if !session.is_handshaking() {
                return Ok(Self(Mutex::new(session)));
            }
            // One deadline for all steps: a server that sends a byte now and then must not make the handshake last for ever.
            match socket.read(&mut buffer, &mut read, deadline)? {
                0 => return Err(late()),
                n => take_in(&mut session, &buffer[..n])?,
            }
        }
    }

    /// Encrypts `plain` into records to be written.
    pub(crate) fn encrypt(&self, plain: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let mut session = self.0.lock();
        // Encrypting and collecting the records is one step. Two writers that took turns here would mix their records, and the peer would refuse
        // them.
        session.writer().write_all(plain)?;
        while session.wants_write() {
            session.write_tls(out)?;
        }
        Ok(())
    }

    /// Decrypts the records that were read. They may yield no text yet.
    pub(crate) fn decrypt(&self, mut read: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let mut session = self.0.lock();
        while !read.is_empty() {
            // The records go in part by part: the session takes in only what it has room for, and its text is taken out before the next part.
            let taken = session.read_tls(&mut read)?;
            session.process_new_packets().map_err(io::Error::other)?;
            drain(&mut session, out)?;
            // After the peer's `close_notify` the session takes nothing in, and without this error the loop would not end. Bytes that come
            // after a `close_notify` are not from the peer.
            if taken == 0 {
                return Err(io::Error::new(ErrorKind::InvalidData, "bytes after the end of the TLS session"));
            }
        }
        Ok(())
    }

    /// Takes the text that arrived together with the end of the handshake.
    pub(crate) fn first_words(&self, out: &mut Vec<u8>) -> io::Result<()> {
        // A server may speak before it is asked, and put that into the packet with its last message of the handshake.
        drain(&mut self.0.lock(), out)
    }
}

/// Takes in records of the handshake. Text that comes with the last of them stays in the session, for [`TlsSession::first_words`].
fn take_in(session: &mut ClientConnection, mut read: &[u8]) -> io::Result<()> {
    while !read.is_empty() && session.read_tls(&mut read)? > 0 {
        session.process_new_packets().map_err(io::Error::other)?;
    }
    Ok(())
}

/// Takes all plain text out of a session.
fn drain(session: &mut ClientConnection, out: &mut Vec<u8>) -> io::Result<()> {
    match session.reader().read_to_end(out) {
        // The end of the text is the end of the session. The peer itself has announced it: somebody who cuts the connection cannot forge that.
        Ok(_) => Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection")),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(()),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/net/tls.rs"]
mod tests;
