//! Counts the requests to a server.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// Forwards connections to a server, and counts what is asked on them. It ends when this is dropped.
pub(crate) struct Counter {
    /// Its own address: `host:port`.
    address: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    requests: AtomicU64,
    is_over: AtomicBool,
}

/// What the first line of a request ends with. No body of the stores' JSON contains it.
const END: &[u8] = b" HTTP/1.1\r\n";

impl Counter {
    /// Before a server at `host:port`.
    pub(crate) fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let counter = Self { address: listener.local_addr().unwrap().to_string(), shared: Arc::default() };
        let (shared, server) = (Arc::clone(&counter.shared), server.to_owned());
        thread::spawn(move || {
            for client in listener.incoming() {
                if shared.is_over.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(&server)) else { continue };
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let requests = Arc::clone(&shared);
                thread::spawn(move || carry(client, server, |count| requests.add(count)));
                thread::spawn(move || carry(back.0, back.1, drop));
            }
        });
        counter
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// How many requests there were.
    pub(crate) fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // The thread that waits for a connection sees it.
        let _ = TcpStream::connect(&self.address);
    }
}

impl Shared {
    fn add(&self, count: u64) {
        self.requests.fetch_add(count, Ordering::SeqCst);
    }
}

/// Carries one way of a connection to its end, and tells how many requests began in each piece.
fn carry(mut from: TcpStream, mut to: TcpStream, count: impl Fn(u64)) {
    let _ = to.set_nodelay(true);
    let (mut piece, mut seen) = ([0; 16 * 1024], Vec::new());
    while let Ok(length @ 1..) = from.read(&mut piece) {
        seen.extend_from_slice(&piece[..length]);
        count(seen.windows(END.len()).filter(|part| *part == END).count() as u64);
        // The rest may be the beginning of another one.
        seen.drain(..seen.len().saturating_sub(END.len() - 1));
        if to.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
