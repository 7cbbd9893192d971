//! A network between clients and a server: it delivers everything later, both ways, and keeps what clients send.
//!
//! One thread carries all connections, so that many of them cost little more than one; each chunk goes when its time has come, however
//! many are under way. What is late is late by the delay and not by a sleep that takes too long: the thread's timer slack is a nanosecond.

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::thread::set_current_timer_slack;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Forwards connections to a port of this machine. Ends when dropped.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Nanoseconds, each way.
    delay: AtomicU64,
    over: AtomicBool,
    /// What clients sent, all connections in one, once it is asked for.
    sent: Mutex<Option<Vec<u8>>>,
}

/// One way of a connection.
struct Way {
    from: TcpStream,
    to: TcpStream,
    is_of_client: bool,
    freight: VecDeque<(Instant, Vec<u8>)>,
    is_over: bool,
}

impl Proxy {
    pub(crate) fn to(port: u16, each_way: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self { port: listener.local_addr().unwrap().port(), shared: Arc::default() };
        proxy.delay(each_way);
        let shared = Arc::clone(&proxy.shared);
        thread::spawn(move || {
            set_current_timer_slack(NonZeroU64::new(1)).unwrap();
            carry(&listener, port, &shared);
        });
        proxy
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Delivers what comes from now on so much later.
    pub(crate) fn delay(&self, each_way: Duration) {
        self.shared.delay.store(each_way.as_nanos() as u64, Ordering::Relaxed);
    }

    /// What clients have sent since the last time; the first time nothing.
    pub(crate) fn take_sent(&self) -> Vec<u8> {
        self.shared.sent.lock().unwrap().replace(Vec::new()).unwrap_or_default()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        // The thread that waits for something sees it.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// The word that stands for the listener among those that stand for ways.
const LISTENER: u64 = u64::MAX;

fn carry(listener: &TcpListener, port: u16, shared: &Shared) {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    epoll::add(&poll, listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN).unwrap();
    let (mut ways, mut events) = (Vec::<Way>::new(), Vec::with_capacity(64));
    loop {
        let due = ways.iter().filter_map(|way| way.freight.front()).map(|(due, _)| *due).min();
        let limit = due.map(|due| Timespec::try_from(due.saturating_duration_since(Instant::now())).unwrap());
        events.clear();
        match epoll::wait(&poll, spare_capacity(&mut events), limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("{error}"),
        }
        if shared.over.load(Ordering::Relaxed) {
            return;
        }
        for event in &events {
            match event.data.u64() {
                LISTENER => add(&mut ways, &poll, listener.accept().unwrap().0, port),
                way => ways[way as usize].read(shared, &poll),
            }
        }
        let now = Instant::now();
        ways.iter_mut().for_each(|way| way.write(now));
    }
}

fn add(ways: &mut Vec<Way>, poll: &OwnedFd, client: TcpStream, port: u16) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { return };
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
    }
    let (client_too, server_too) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    for (from, to, is_of_client) in [(client, server, true), (server_too, client_too, false)] {
        epoll::add(poll, &from, epoll::EventData::new_u64(ways.len() as u64), epoll::EventFlags::IN).unwrap();
        ways.push(Way { from, to, is_of_client, freight: VecDeque::new(), is_over: false });
    }
}

impl Way {
    fn read(&mut self, shared: &Shared, poll: &OwnedFd) {
        let mut chunk = [0; 64 * 1024];
        let n = match self.from.read(&mut chunk) {
            Ok(n @ 1..) => n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            // The end: an empty chunk says so to the other side, in its turn.
            Ok(0) | Err(_) => {
                let _ = epoll::delete(poll, &self.from);
                0
            }
        };
        if self.is_of_client
            && let Some(sent) = shared.sent.lock().unwrap().as_mut()
        {
            sent.extend_from_slice(&chunk[..n]);
        }
        let due = Instant::now() + Duration::from_nanos(shared.delay.load(Ordering::Relaxed));
        self.freight.push_back((due, chunk[..n].to_vec()));
    }

    fn write(&mut self, now: Instant) {
        while let Some((due, bytes)) = self.freight.front_mut()
            && *due <= now
        {
            if bytes.is_empty() || self.is_over {
                let _ = self.to.shutdown(std::net::Shutdown::Write);
                self.is_over = true;
                self.freight.pop_front();
                continue;
            }
            match self.to.write(bytes) {
                Ok(n) if n == bytes.len() => drop(self.freight.pop_front()),
                Ok(n) => drop(bytes.drain(..n)),
                // Its buffer is full: a little later.
                Err(error) if error.kind() == ErrorKind::WouldBlock => *due = now + Duration::from_micros(100),
                Err(_) => self.is_over = true,
            }
        }
    }
}
