//! A network between clients and a server: slow, cut, silent, with answers held back or lost.
//!
//! The crate `noxious` (a port of Toxiproxy) delays, slices and closes, but it is async, has no RST and no connection that
//! stays open in silence, and does not know commands: it cannot lose the reply of a certain one.

mod resp;
mod toxics;

use parking_lot::{Condvar, Mutex};
pub(crate) use resp::Sent;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use toxics::{Fate, Link, Toxics};
pub(crate) use toxics::{Fired, Lot, Way};

/// Forwards connections to a port of this machine. Its threads end with its connections, and those with it.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The port that new connections lead to.
    target: AtomicU16,
    toxics: Mutex<Toxics>,
    /// Something that was held back may go.
    released: Condvar,
    over: AtomicBool,
    /// Subscriptions are confirmed here, and the server has none.
    hides: AtomicBool,
    /// What goes by is not of Redis.
    is_foreign: AtomicBool,
}

/// Something to be written.
struct Freight {
    at: Instant,
    bytes: Vec<u8>,
    /// Whether it waits until commands are let through.
    is_stopped: bool,
    /// The connection ends with it.
    is_last: bool,
}

impl Proxy {
    pub(crate) fn to(port: u16, round_trip: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self { port: listener.local_addr().unwrap().port(), shared: Arc::default() };
        proxy.shared.target.store(port, Ordering::SeqCst);
        proxy.delay(Way::ToServer, round_trip / 2);
        proxy.delay(Way::ToClient, round_trip / 2);
        let shared = Arc::clone(&proxy.shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                if shared.over.load(Ordering::SeqCst) {
                    return;
                }
                let port = shared.target.load(Ordering::SeqCst);
                // A server that is down closes what comes in.
                if let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", port))) {
                    shared.carry(client, server);
                }
            }
        });
        proxy
    }

    /// The same for whatever two programs say to each other. It knows no commands, and no subscribers.
    pub(crate) fn to_foreign(port: u16) -> Self {
        let proxy = Self::to(port, Duration::ZERO);
        proxy.shared.is_foreign.store(true, Ordering::SeqCst);
        proxy
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How many connections there have been.
    pub(crate) fn connections(&self) -> usize {
        self.shared.toxics.lock().connections()
    }

    /// Lets nothing through the present connections any more, and does not close them; new ones work.
    pub(crate) fn silence(&self) {
        self.shared.toxics.lock().silence(|_| true);
    }

    /// Silences the present connections that have subscribed, or the others.
    pub(crate) fn silence_only(&self, inboxes: bool) {
        self.shared.toxics.lock().silence(|is_inbox| is_inbox == inboxes);
    }

    /// Delivers everything so much later, one way.
    pub(crate) fn delay(&self, way: Way, delay: Duration) {
        self.shared.toxics.lock().set_delay(way, delay);
    }

    /// Delivers the first answer of each connection so much later, from now on: a connect takes so long.
    pub(crate) fn delay_first_answers(&self, delay: Duration) {
        self.shared.toxics.lock().delay_first_answers(delay);
    }

    /// Loses everything that goes one way, on all connections, until it is switched off.
    pub(crate) fn lose(&self, way: Way, on: bool) {
        self.shared.toxics.lock().set_lossy(way, on);
    }

    /// Loses everything on all connections, new ones included, until it [heals](Self::heal): each side takes the other for silent.
    pub(crate) fn cut_off(&self) {
        self.lose(Way::ToServer, true);
        self.lose(Way::ToClient, true);
    }

    /// Lets everything through again. Connections that have lost something end.
    pub(crate) fn heal(&self) {
        let was_cut = [Way::ToServer, Way::ToClient].map(|way| self.shared.toxics.lock().set_lossy(way, false));
        if was_cut.contains(&true) {
            self.reset();
        }
    }

    /// Loses every message to a subscriber, until it is switched off.
    pub(crate) fn lose_messages(&self, on: bool) {
        self.shared.toxics.lock().set_lose_messages(on);
    }

    /// Subscribes nobody from now on, and confirms every subscription: as a proxy that has one connection for all its clients.
    pub(crate) fn hide_subscribers(&self, on: bool) {
        self.shared.hides.store(on, Ordering::SeqCst);
    }

    /// Delivers byte by byte, until it is switched off.
    pub(crate) fn slice(&self, on: bool) {
        self.shared.toxics.lock().slice = on;
    }

    /// Ends the present connections with RST.
    pub(crate) fn reset(&self) {
        self.shared.toxics.lock().reset();
        self.shared.released.notify_all();
    }

    /// Leads new connections to another server from now on; the present ones stay with theirs.
    pub(crate) fn lead_new_to(&self, port: u16) {
        self.shared.target.store(port, Ordering::SeqCst);
    }

    /// Leads to another server from now on; the present connections end.
    pub(crate) fn lead_to(&self, port: u16) {
        self.shared.target.store(port, Ordering::SeqCst);
        self.reset();
    }

    /// Decides on one command to come: after `before` others of its kind.
    pub(crate) fn trap(&self, what: Sent, before: usize, lot: Lot) -> Fired {
        self.shared.toxics.lock().set_trap(what, before, lot)
    }

    /// Lets through the commands whose lot is [`Lot::StopRequest`], and what came after them.
    pub(crate) fn let_requests_through(&self) {
        self.shared.toxics.lock().let_go();
        self.shared.released.notify_all();
    }

    /// Keeps what the server sends on the connections that have subscribed, or on the others, new ones included.
    pub(crate) fn hold_back(&self, inboxes: bool) {
        self.shared.toxics.lock().hold(inboxes, true);
    }

    /// Keeps what the server sends on connections to come, so that no connect ends, until it is switched off.
    pub(crate) fn hold_back_new(&self, on: bool) {
        self.shared.toxics.lock().hold_new(on);
        self.shared.released.notify_all();
    }

    /// Delivers what was held back on the connections that have subscribed, or on the others, and goes on.
    pub(crate) fn let_through(&self, inboxes: bool) {
        self.shared.toxics.lock().hold(inboxes, false);
        self.shared.released.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.shared.toxics.lock().close();
        self.shared.released.notify_all();
        // The thread that waits for connections sees it.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn carry(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let (client, server) = (Arc::new(client), Arc::new(server));
        let number = self.toxics.lock().add(Link::new(Arc::clone(&client), Arc::clone(&server)));
        let ways = [(Way::ToServer, &client, &server), (Way::ToClient, &server, &client)];
        let left = Arc::new(Mutex::new(ways.len()));
        for (way, from, to) in ways {
            to.set_nodelay(true).unwrap();
            let (from, to) = (Arc::clone(from), Arc::clone(to));
            let (send, receive) = channel();
            let (reader, writer, left) = (Arc::clone(self), Arc::clone(self), Arc::clone(&left));
            thread::spawn(move || reader.read(number, way, &from, &send));
            thread::spawn(move || {
                writer.write(number, way, &to, &receive);
                writer.toxics.lock().end(number, way);
                drop(to);
                let mut left = left.lock();
                *left -= 1;
                if *left == 0 {
                    writer.toxics.lock().forget(number);
                }
            });
        }
    }

    /// Reads frames, and decides on each. What is no frame goes on as it comes.
    fn read(&self, number: usize, way: Way, mut from: &TcpStream, to: &Sender<Freight>) {
        let (mut chunk, mut bytes) = ([0; 16 * 1024], Vec::new());
        let is_foreign = self.is_foreign.load(Ordering::SeqCst);
        let mut is_tls = None;
        while let Ok(n @ 1..) = from.read(&mut chunk) {
            bytes.extend_from_slice(&chunk[..n]);
            // A TLS session begins with a record of this type; there are no frames to be found in it.
            let is_foreign = is_foreign || *is_tls.get_or_insert(bytes[0] == 0x16);
            // What a replica gets at first may look like the beginning of a frame that never ends.
            let is_opaque = is_foreign || way == Way::ToClient && self.toxics.lock().is_replica(number);
            loop {
                let length = match resp::frame(&bytes) {
                    _ if is_opaque && !bytes.is_empty() => bytes.len(),
                    _ if is_opaque => break,
                    Ok(Some(length)) => length,
                    Err(()) if !bytes.is_empty() => bytes.len(),
                    _ => break,
                };
                let mut frame: Vec<_> = bytes.drain(..length).collect();
                if way == Way::ToServer && self.hides.load(Ordering::SeqCst) {
                    // The server never hears of the subscription.
                    if let Some(confirmation) = resp::confirmation(&frame) {
                        let _ = from.write_all(&confirmation);
                        continue;
                    }
                }
                let command = if is_foreign { &[] } else { frame.as_slice() };
                let (fate, is_stopped) = {
                    let mut toxics = self.toxics.lock();
                    (toxics.judge(number, way, command), toxics.is_stopped(number, way))
                };
                let (late, is_last) = match fate {
                    Fate::Goes(late) => (late, false),
                    Fate::IsCut(length) => {
                        frame.truncate(length);
                        (Duration::ZERO, true)
                    }
                    Fate::IsLost => continue,
                };
                if to.send(Freight { at: Instant::now() + late, bytes: frame, is_stopped, is_last }).is_err() {
                    return;
                }
            }
        }
    }

    fn write(&self, number: usize, way: Way, mut to: &TcpStream, from: &Receiver<Freight>) {
        for Freight { at, bytes, is_stopped, is_last } in from {
            thread::sleep(at.saturating_duration_since(Instant::now()));
            let mut toxics = self.toxics.lock();
            let waits =
                |toxics: &mut Toxics| toxics.is_held(number, way) || is_stopped && toxics.is_stopped(number, way);
            while waits(&mut toxics) && !self.over.load(Ordering::SeqCst) {
                self.released.wait(&mut toxics);
            }
            let (lost, slice) = (toxics.is_lost(number, way), toxics.slice);
            drop(toxics);
            let pieces = if slice { 1 } else { bytes.len().max(1) };
            if !lost && bytes.chunks(pieces).any(|piece| to.write_all(piece).is_err()) {
                return;
            }
            if is_last {
                let _ = to.shutdown(Shutdown::Write);
                return self.toxics.lock().cut(number);
            }
        }
    }
}
