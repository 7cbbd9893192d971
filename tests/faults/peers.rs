//! A network between the servers of a consensus store. Each pair of servers has a way of its own for each direction, so that one server can be
//! cut off from all others.
//!
//! All others reach a server at one address, its door. The process that owns a connection shows which server is at the door.

use crate::consensus::{DOORS, LOCAL, Server};
use crate::support::Proxy;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::{fs, thread};

/// The network between the servers: see the module.
pub(crate) struct Peers {
    /// The ways, by the server that connects and the server that it connects to.
    ways: Arc<Vec<Vec<Proxy>>>,
    doors: Vec<u16>,
    over: Arc<AtomicBool>,
}

impl Peers {
    /// Opens the doors of servers that do not run yet.
    pub(crate) fn between(servers: &[Server]) -> Self {
        let way = |to: &Server| Proxy::to_foreign(to.peers());
        let ways: Arc<Vec<Vec<_>>> = Arc::new(servers.iter().map(|_| servers.iter().map(way).collect()).collect());
        let processes: Vec<_> = servers.iter().map(Server::pid).collect();
        let doors: Vec<_> = servers.iter().map(Server::peers).collect();
        let over = Arc::new(AtomicBool::new(false));
        for (to, port) in doors.iter().copied().enumerate() {
            let listener = TcpListener::bind((DOORS, port)).unwrap();
            let (ways, processes, over) = (Arc::clone(&ways), processes.clone(), Arc::clone(&over));
            thread::spawn(move || {
                for guest in listener.incoming().map_while(Result::ok) {
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                    let (ways, processes) = (Arc::clone(&ways), processes.clone());
                    // The connection is closed if its process has ended meanwhile.
                    thread::spawn(move || {
                        let from = guest.peer_addr().ok().and_then(|address| owner(address, &processes));
                        from.map(|from| lead(&guest, ways[from][to].port()))
                    });
                }
            });
        }
        Self { ways, doors, over }
    }

    /// Loses everything between a server and all others.
    pub(crate) fn cut_off(&self, server: usize) {
        self.ways_of(server).for_each(Proxy::cut_off);
    }

    /// Ends that.
    pub(crate) fn heal(&self, server: usize) {
        self.ways_of(server).for_each(Proxy::heal);
    }

    fn ways_of(&self, server: usize) -> impl Iterator<Item = &Proxy> {
        self.ways[server].iter().chain(self.ways.iter().map(move |ways| &ways[server]))
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        for port in &self.doors {
            let _ = TcpStream::connect((DOORS, *port));
        }
    }
}

/// The place of the process that this end of a connection belongs to.
fn owner(address: SocketAddr, processes: &[Arc<AtomicU32>]) -> Option<usize> {
    // `sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode`
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let local = |line: &&str| {
        let port = line.split_whitespace().nth(1).and_then(|local| local.rsplit_once(':'));
        port.is_some_and(|(_, port)| u16::from_str_radix(port, 16) == Ok(address.port()))
    };
    let sockets: Vec<_> = table
        .lines()
        .skip(1)
        .filter(local)
        .filter_map(|line| Some(format!("socket:[{}]", line.split_whitespace().nth(9)?)))
        .collect();
    processes.iter().position(|process| {
        let pid = process.load(Ordering::SeqCst);
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter_map(|descriptor| fs::read_link(descriptor.path()).ok())
            .any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
    })
}

/// Carries a connection to this port, until both ends are closed.
fn lead(guest: &TcpStream, port: u16) {
    let Ok(way) = TcpStream::connect((LOCAL, port)) else { return };
    let (_, _) = (guest.set_nodelay(true), way.set_nodelay(true));
    let carry = |mut from: &TcpStream, mut to: &TcpStream| {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    };
    thread::scope(|scope| {
        scope.spawn(|| carry(guest, &way));
        carry(&way, guest);
    });
}
