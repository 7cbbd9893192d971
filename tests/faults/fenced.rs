//! The resource that the lock protects: a value in the test's own process. It refuses a request with a smaller token than it has seen. Reads carry a
//! token, too. Otherwise a slower holder could still replace a value that an update is built on.

use crate::checker::tokens::Update;
use parking_lot::Mutex;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The store.
pub(crate) struct Fenced {
    port: u16,
    value: Arc<Mutex<Value>>,
    over: Arc<AtomicBool>,
}

#[derive(Default)]
struct Value {
    value: u64,
    greatest: u64,
    accepted: Vec<Update>,
    refused: usize,
}

impl Fenced {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let fenced = Self { port: listener.local_addr().unwrap().port(), value: Arc::default(), over: Arc::default() };
        let (value, over) = (Arc::clone(&fenced.value), Arc::clone(&fenced.over));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let value = Arc::clone(&value);
                // Ends with the worker.
                thread::spawn(move || serve(&client, &value));
            }
        });
        fenced
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The accepted updates in their order, and how many calls were refused.
    pub(crate) fn updates(&self) -> (Vec<Update>, usize) {
        let value = self.value.lock();
        (value.accepted.clone(), value.refused)
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// `read token` and `write token from`: the value, or `stale`. `beat` is answered and does nothing.
fn serve(client: &TcpStream, value: &Mutex<Value>) {
    for line in BufReader::new(client).lines().map_while(Result::ok) {
        if line == "beat" {
            if writeln!(&*client, "beat").is_err() {
                return;
            }
            continue;
        }
        let words: Vec<_> = line.split(' ').collect();
        let number = |n: usize| words.get(n).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        let mut value = value.lock();
        let token = number(1);
        let answer = if token < value.greatest {
            value.refused += 1;
            "stale".to_owned()
        } else {
            value.greatest = token;
            if words[0] == "write" {
                let (from, to) = (number(2), number(2) + 1);
                value.value = to;
                value.accepted.push(Update { token, from, to });
            }
            value.value.to_string()
        };
        drop(value);
        // A single write, because the end of a line in a second write would wait for a delayed acknowledgement.
        if (&*client).write_all(format!("{answer}\n").as_bytes()).is_err() {
            return;
        }
    }
}

/// A worker's way to the store.
pub(crate) struct Access(BufReader<TcpStream>);

impl Access {
    pub(crate) fn open(port: u16) -> Self {
        Self(BufReader::new(TcpStream::connect(("127.0.0.1", port)).unwrap()))
    }

    /// The value, unless the token is too small.
    pub(crate) fn read(&mut self, token: u64) -> Option<u64> {
        self.ask(&format!("read {token}"))
    }

    /// Replaces the value that was read by the next one; `None` when the token is too small.
    pub(crate) fn write(&mut self, token: u64, from: u64) -> Option<u64> {
        self.ask(&format!("write {token} {from}"))
    }

    /// As many round trips to the test's process as a fresh connection needs; `false` when that has ended.
    pub(crate) fn beat(&mut self) -> bool {
        (0..4).all(|_| {
            let mut answer = String::new();
            writeln!(self.0.get_mut(), "beat").is_ok() && self.0.read_line(&mut answer).is_ok_and(|bytes| bytes > 0)
        })
    }

    fn ask(&mut self, line: &str) -> Option<u64> {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        self.0.read_line(&mut answer).unwrap();
        answer.trim().parse().ok()
    }
}

#[test]
fn a_smaller_token_is_refused() {
    let store = Fenced::start();
    let mut access = Access::open(store.port());
    assert_eq!(access.read(5), Some(0));
    assert_eq!(access.write(5, 0), Some(1));
    assert_eq!(access.read(9), Some(1));
    assert_eq!(access.write(5, 0), None);
    assert_eq!(access.write(9, 1), Some(2));
    let (accepted, refused) = store.updates();
    assert_eq!((accepted.len(), refused), (2, 1));
    assert!(crate::checker::tokens::check_updates(&accepted).is_empty());
}
