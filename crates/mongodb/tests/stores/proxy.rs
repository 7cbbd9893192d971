//! A network between clients and a server that knows the commands of MongoDB: it answers them itself, loses or holds back their replies, and
//! cuts connections.

use mongodb::bson::{Document, doc};
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// The bytes of a message before its flags, the flags and the kind of its only section.
const HEADER: usize = 16;
const BEFORE_BODY: usize = HEADER + 5;

/// What becomes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server does not get it, and this error is the reply.
    Refused(i32),
    /// The server executes it, and this error is the reply.
    Interrupted(i32),
    /// The server executes it, and its reply has this write concern error.
    Unconfirmed(i32),
    /// The server executes it, and the connection breaks before the reply.
    Lost,
    /// The server executes it, and its reply comes when the fault is over.
    Held,
}

/// Which commands are meant, by name, how many of them from now on, and what becomes of them.
#[derive(Clone, Copy, Debug)]
struct Rule {
    command: &'static str,
    left: usize,
    fault: Fault,
}

#[derive(Default)]
struct Shared {
    rule: Mutex<Option<Rule>>,
    over: Condvar,
    fired: AtomicUsize,
    is_closed: AtomicBool,
    /// The last command of each name.
    last: Mutex<HashMap<String, Document>>,
    /// The connections that ask for changes, by their clients' side: that on which each stream has asked last.
    streams: Mutex<HashMap<i64, TcpStream>>,
}

/// Forwards connections to a port of this machine.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

impl Proxy {
    pub(crate) fn to(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let of_listener = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if of_listener.is_closed.load(Ordering::SeqCst) {
                    return;
                }
                // A server that is gone is a connection that breaks.
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                let shared = Arc::clone(&of_listener);
                thread::spawn(move || {
                    let _ = serve(&shared, &client, &server);
                    let _ = client.shutdown(Shutdown::Both);
                    let _ = server.shutdown(Shutdown::Both);
                });
            }
        });
        Self { port, shared }
    }

    /// From now on, this becomes of so many commands of this name.
    pub(crate) fn set(&self, command: &'static str, left: usize, fault: Fault) {
        self.shared.fired.store(0, Ordering::SeqCst);
        *self.shared.rule.lock() = Some(Rule { command, left, fault });
    }

    /// Nothing becomes of any command any more. What was held back goes.
    pub(crate) fn heal(&self) {
        *self.shared.rule.lock() = None;
        self.shared.over.notify_all();
    }

    /// How many commands the fault has met.
    pub(crate) fn fired(&self) -> usize {
        self.shared.fired.load(Ordering::SeqCst)
    }

    /// The last command of this name.
    pub(crate) fn last(&self, command: &str) -> Option<Document> {
        self.shared.last.lock().get(command).cloned()
    }

    /// Cuts the connections of all streams. Returns how many streams have asked for changes since the last cut.
    pub(crate) fn cut_streams(&self) -> usize {
        let streams = std::mem::take(&mut *self.shared.streams.lock());
        streams.values().filter(|stream| stream.shutdown(Shutdown::Both).is_ok()).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        self.heal();
        self.cut_streams();
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    /// What becomes of this command.
    fn fault(&self, command: &str) -> Option<Fault> {
        let mut rule = self.rule.lock();
        let rule = rule.as_mut().filter(|rule| rule.command == command && rule.left > 0)?;
        rule.left -= 1;
        self.fired.fetch_add(1, Ordering::SeqCst);
        Some(rule.fault)
    }
}

/// One connection: a driver sends the next command when it has the reply to the last one. The monitors of servers ask for a stream of replies,
/// so both sides are read.
fn serve(shared: &Arc<Shared>, mut client: &TcpStream, mut server: &TcpStream) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    // The faults of the commands whose replies are awaited, in order.
    let pending = Arc::new(Mutex::new(VecDeque::new()));
    let (replies_from, replies_to, faults, of_replies) =
        (server.try_clone()?, client.try_clone()?, Arc::clone(&pending), Arc::clone(shared));
    thread::spawn(move || {
        let _ = forward_replies(&of_replies, &replies_from, &replies_to, &faults);
        let _ = replies_from.shutdown(Shutdown::Both);
        let _ = replies_to.shutdown(Shutdown::Both);
    });
    loop {
        let message = read(&mut client)?;
        let body = body(&message).unwrap_or_default();
        let name = body.keys().next().cloned().unwrap_or_default();
        if let Ok(cursor) = body.get_i64("getMore") {
            shared.streams.lock().insert(cursor, client.try_clone()?);
        }
        shared.last.lock().insert(name.clone(), body);
        let fault = shared.fault(&name);
        if let Some(Fault::Refused(code)) = fault {
            let id: [u8; 4] = message[4..8].try_into().unwrap();
            client.write_all(&reply(&id, &failure(code)))?;
            continue;
        }
        pending.lock().push_back(fault);
        server.write_all(&message)?;
    }
}

fn forward_replies(
    shared: &Shared,
    mut server: &TcpStream,
    mut client: &TcpStream,
    faults: &Mutex<VecDeque<Option<Fault>>>,
) -> std::io::Result<()> {
    loop {
        let message = read(&mut server)?;
        let id: [u8; 4] = message[8..12].try_into().unwrap();
        let fault = faults.lock().pop_front().flatten();
        match fault {
            Some(Fault::Interrupted(code)) => client.write_all(&reply(&id, &failure(code)))?,
            Some(Fault::Unconfirmed(code)) => {
                let mut body = body(&message).unwrap();
                body.insert("writeConcernError", doc! { "code": code, "errmsg": "said by a test" });
                client.write_all(&reply(&id, &body))?;
            }
            Some(Fault::Lost) => return Ok(()),
            Some(Fault::Held) => {
                let mut rule = shared.rule.lock();
                while rule.is_some() {
                    shared.over.wait(&mut rule);
                }
                drop(rule);
                client.write_all(&message)?;
            }
            Some(Fault::Refused(_)) | None => client.write_all(&message)?,
        }
    }
}

fn failure(code: i32) -> Document {
    doc! { "ok": 0.0, "code": code, "errmsg": "said by a test" }
}

fn read(from: &mut &TcpStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut message = length.to_vec();
    message.resize(usize::try_from(u32::from_le_bytes(length)).unwrap(), 0);
    from.read_exact(&mut message[4..])?;
    Ok(message)
}

/// The document of an `OP_MSG`; the first messages of a connection may be of an older kind.
fn body(message: &[u8]) -> Option<Document> {
    let is_msg = message[12..HEADER] == 2013_u32.to_le_bytes();
    is_msg.then(|| Document::from_reader(&message[BEFORE_BODY..]).unwrap())
}

/// An `OP_MSG` in reply to a message.
fn reply(id: &[u8; 4], body: &Document) -> Vec<u8> {
    let body = body.to_vec().unwrap();
    let length = u32::try_from(BEFORE_BODY + body.len()).unwrap();
    let parts: [&[u8]; 6] = [&length.to_le_bytes(), &[0; 4], id, &2013_u32.to_le_bytes(), &[0; 5], &body];
    parts.concat()
}
