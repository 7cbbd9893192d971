//! A network between a client and a server: slow, cut, silent, or with answers held back.

use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Forwards connections to a port of this machine, each direction with a delay. Its threads end with its connections.
pub(crate) struct Proxy {
    port: u16,
    accepted: Arc<AtomicUsize>,
    /// Connections up to this one are cut off without a word: nothing goes through any more.
    silenced: Arc<AtomicUsize>,
    dam: Arc<Dam>,
}

/// Connections, by number, on which nothing comes back from the server for now.
#[derive(Default)]
struct Dam {
    closed: Mutex<HashSet<usize>>,
    changed: Condvar,
}

impl Dam {
    fn pass(&self, number: usize) {
        let mut closed = self.closed.lock();
        while closed.contains(&number) {
            self.changed.wait(&mut closed);
        }
    }
}

impl Proxy {
    pub(crate) fn to(port: u16, round_trip: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port_here = listener.local_addr().unwrap().port();
        let proxy = Self { port: port_here, accepted: Arc::default(), silenced: Arc::default(), dam: Arc::default() };
        let (accepted, silenced, dam) =
            (Arc::clone(&proxy.accepted), Arc::clone(&proxy.silenced), Arc::clone(&proxy.dam));
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", port))) else { return };
                let number = accepted.fetch_add(1, Ordering::SeqCst) + 1;
                for (from, to, answers) in [(&client, &server, false), (&server, &client, true)] {
                    to.set_nodelay(true).unwrap();
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (send, receive) = channel();
                    let (silenced, dam) = (Arc::clone(&silenced), Arc::clone(&dam));
                    let may_go = move || {
                        if answers {
                            dam.pass(number);
                        }
                        silenced.load(Ordering::SeqCst) < number
                    };
                    thread::spawn(move || read(from, round_trip / 2, &send));
                    thread::spawn(move || write(to, &receive, may_go));
                }
            }
        });
        proxy
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Lets nothing through the present connections any more, and does not close them; new ones work.
    pub(crate) fn silence(&self) {
        self.silenced.store(self.connections(), Ordering::SeqCst);
    }

    /// Keeps what the server sends on a connection; the first one is number 1.
    pub(crate) fn hold_back(&self, number: usize) {
        self.dam.closed.lock().insert(number);
    }

    /// Delivers what was held back on a connection, and goes on.
    pub(crate) fn let_through(&self, number: usize) {
        self.dam.closed.lock().remove(&number);
        self.dam.changed.notify_all();
    }

    /// How many connections there have been.
    pub(crate) fn connections(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.dam.closed.lock().clear();
        self.dam.changed.notify_all();
    }
}

fn read(mut from: TcpStream, delay: Duration, to: &Sender<(Instant, Vec<u8>)>) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        if to.send((Instant::now() + delay, buffer[..n].to_vec())).is_err() {
            return;
        }
    }
}

fn write(mut to: TcpStream, from: &Receiver<(Instant, Vec<u8>)>, may_go: impl Fn() -> bool) {
    for (at, bytes) in from {
        thread::sleep(at.saturating_duration_since(Instant::now()));
        if may_go() && to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
