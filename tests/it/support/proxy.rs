//! A network between a client and a server: slow, cut, or silent.

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
}

impl Proxy {
    pub(crate) fn to(port: u16, round_trip: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy =
            Self { port: listener.local_addr().unwrap().port(), accepted: Arc::default(), silenced: Arc::default() };
        let (accepted, silenced) = (Arc::clone(&proxy.accepted), Arc::clone(&proxy.silenced));
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", port))) else { return };
                let number = accepted.fetch_add(1, Ordering::SeqCst) + 1;
                for (from, to) in [(&client, &server), (&server, &client)] {
                    to.set_nodelay(true).unwrap();
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (send, receive) = channel();
                    let silenced = Arc::clone(&silenced);
                    thread::spawn(move || read(from, round_trip / 2, &send));
                    thread::spawn(move || write(to, &receive, || silenced.load(Ordering::SeqCst) >= number));
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

    /// How many connections there have been.
    pub(crate) fn connections(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
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

fn write(mut to: TcpStream, from: &Receiver<(Instant, Vec<u8>)>, is_silenced: impl Fn() -> bool) {
    for (at, bytes) in from {
        thread::sleep(at.saturating_duration_since(Instant::now()));
        if !is_silenced() && to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
