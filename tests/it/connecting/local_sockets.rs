//! A local socket connects within its limit, also when the server's queue of connections is full.

use super::{connect, settings};
use crate::support::RedisServer;
use crate::support::crew::{HANG, spawn, spawn_with};
use crate::support::journal;
use crate::support::lab::{builder, config};
use redis_dlock::{DistributedReentrantLock, Error};
use rustix::process::Signal;
use socket2::{Domain, SockAddr, Socket, Type};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

const LIMIT: Duration = Duration::from_millis(100);

/// A server with a local socket and a short queue of connections.
struct Local {
    server: RedisServer,
    path: PathBuf,
}

impl Local {
    fn start() -> Self {
        let server = RedisServer::start_with(&["--unixsocket", "socket", "--tcp-backlog", "2"]);
        Self { path: server.file("socket"), server }
    }

    fn url(&self) -> String {
        format!("unix://{}", self.path.display())
    }

    /// Stops the server and fills its queue of connections.
    fn stop(&self) -> Vec<Socket> {
        self.server.signal(Signal::STOP);
        let mut waiting = Vec::new();
        loop {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            match socket.connect(&SockAddr::unix(&self.path).unwrap()) {
                Ok(()) => waiting.push(socket),
                Err(_) => return waiting,
            }
        }
    }
}

/// Tries a lock that is not to be had, on a thread of its own.
fn try_in_vain(lock: &DistributedReentrantLock) {
    spawn_with(lock, move |lock| {
        let tried = lock.try_lock_for(LIMIT);
        assert!(matches!(tried, Err(Error::Backend { .. })), "{tried:?}");
    })
    .join();
}

/// Shows: G12.
#[test]
fn a_try_ends_in_time_when_the_servers_queue_is_full() {
    let local = Local::start();
    let generator = connect(settings(&local.url()));
    let lock = generator.generate_with(config("x", 30_000)).unwrap();
    // A connection that was never made, and one that is made again.
    let fresh = builder().build(settings(&local.url()).build().unwrap()).unwrap();
    let fresh = fresh.generate_with(config("y", 30_000)).unwrap();
    lock.lock().unwrap().unlock().unwrap();
    let clients: u64 = local.server.run(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    assert!(clients > 0);
    thread::sleep(super::IDLE);
    let waiting = local.stop();
    assert!(!waiting.is_empty());
    try_in_vain(&fresh);
    try_in_vain(&lock);
    try_in_vain(&lock);
    local.server.signal(Signal::CONT);
    spawn(move || {
        lock.lock().unwrap().unlock().unwrap();
        fresh.lock().unwrap().unlock().unwrap();
    })
    .join();
}

/// Holds a lock while the server stops for good: the loss is known while the server still stands.
fn a_loss_is_told(key: &'static str, others_call_first: bool) {
    journal::keep();
    let local = Local::start();
    let (say, losses) = mpsc::channel();
    let builder = builder().on_lost(move |loss| say.send(loss.clone()).unwrap());
    let generator = builder.build(settings(&local.url()).connect().unwrap()).unwrap();
    let lock = generator.generate_with(config(key, 1200)).unwrap();
    let other = generator.generate_with(config("other", 1200)).unwrap();
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    let is_over = Arc::new(AtomicBool::new(false));
    if others_call_first {
        local.server.run::<u64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    }
    let _waiting = local.stop();
    let caller = others_call_first.then(|| {
        let (other, is_over) = (other.clone(), Arc::clone(&is_over));
        spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                assert!(other.try_lock_for(Duration::from_millis(5)).is_err());
            }
        })
    });
    lost.recv_timeout(HANG).expect("told while the server stands still");
    assert_eq!(losses.recv_timeout(HANG).expect("told while the server stands still").key, lock.key());
    assert!(!journal::warnings(lock.key()).is_empty());
    assert!(!guard.is_valid());
    is_over.store(true, Ordering::Relaxed);
    if let Some(caller) = caller {
        caller.join();
    }
    try_in_vain(&other);
    local.server.signal(Signal::CONT);
    assert!(guard.unlock().is_err());
}

/// Shows: G5.
#[test]
fn a_loss_is_told_while_the_renewal_connects() {
    a_loss_is_told("renewal connects", false);
}

/// Shows: G5.
#[test]
fn a_loss_is_told_while_another_caller_connects() {
    a_loss_is_told("another caller connects", true);
}
