//! Counts the requests to a server, stops one of them, or gives it another answer.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
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
    /// What is done before a request goes on whose first line has these words.
    stop: Mutex<Option<(String, Stopped)>>,
    /// What comes in place of the next answer.
    answer: Mutex<Option<String>>,
    is_over: AtomicBool,
}

type Stopped = Box<dyn FnOnce() + Send>;

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
                thread::spawn(move || carry(client, server, |piece, count| requests.note(piece, count)));
                let answers = Arc::clone(&shared);
                thread::spawn(move || carry(back.0, back.1, |_, _| answers.answer.lock().unwrap().take()));
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

    /// Stops the next request whose first line has these words, does something, and lets it go on. A request's first line must come in one piece.
    pub(crate) fn before(&self, words: &str, act: impl FnOnce() + Send + 'static) {
        *self.shared.stop.lock().unwrap() = Some((words.to_owned(), Box::new(act)));
    }

    /// Gives this answer to the next request whose first line has these words, once the server has answered it. No other request may be under way.
    pub(crate) fn answer(&self, words: &str, answer: String) {
        let shared = Arc::clone(&self.shared);
        self.before(words, move || *shared.answer.lock().unwrap() = Some(answer));
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
    fn note(&self, piece: &[u8], count: u64) -> Option<String> {
        self.requests.fetch_add(count, Ordering::SeqCst);
        let piece = String::from_utf8_lossy(piece);
        let stopped = self.stop.lock().unwrap().take_if(|(words, _)| piece.contains(words.as_str()));
        if let Some((_, act)) = stopped {
            act();
        }
        None
    }
}

/// Carries one way of a connection to its end. Before each piece goes on, tells it, and how many requests began in it, and takes what goes on instead.
fn carry(mut from: TcpStream, mut to: TcpStream, note: impl Fn(&[u8], u64) -> Option<String>) {
    let _ = to.set_nodelay(true);
    let (mut piece, mut seen) = ([0; 16 * 1024], Vec::new());
    while let Ok(length @ 1..) = from.read(&mut piece) {
        seen.extend_from_slice(&piece[..length]);
        let instead = note(&piece[..length], seen.windows(END.len()).filter(|part| *part == END).count() as u64);
        // The rest may be the beginning of another one.
        seen.drain(..seen.len().saturating_sub(END.len() - 1));
        if to.write_all(instead.as_ref().map_or(&piece[..length], |text| text.as_bytes())).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
