//! One address leads to another server after a planned failover, and connections to the demoted master stay open: `REPLICAOF` closes none.
//!
//! The address is a local socket behind a symbolic link, as a name in DNS that is changed, or a proxy that keeps its connections, as a virtual
//! address or a load balancer.

use crate::support::crew::{answered, eventually, queue_by};
use crate::support::lab::{config, connect};
use crate::support::{Proxy, RedisServer};
use redis_dlock::{DLockGenerator, DistributedReentrantLock};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::Duration;
use std::{fs, thread};
use tempfile::TempDir;

/// An address that leads to one of two servers.
trait Address {
    fn to(server: &RedisServer) -> Self;

    fn url(&self) -> String;

    /// New connections lead to this server.
    fn lead_to(&self, server: &RedisServer);
}

struct Link(TempDir);

impl Link {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

impl Address for Link {
    fn to(server: &RedisServer) -> Self {
        let link = Self(tempfile::tempdir().unwrap());
        link.lead_to(server);
        link
    }

    fn url(&self) -> String {
        format!("unix://{}", self.path("socket").display())
    }

    fn lead_to(&self, server: &RedisServer) {
        symlink(server.file("socket"), self.path("next")).unwrap();
        fs::rename(self.path("next"), self.path("socket")).unwrap();
    }
}

impl Address for Proxy {
    fn to(server: &RedisServer) -> Self {
        Self::to(server.port(), Duration::ZERO)
    }

    fn url(&self) -> String {
        self.url()
    }

    fn lead_to(&self, server: &RedisServer) {
        self.lead_new_to(server.port());
    }
}

/// A master, its replica, and the address that leads to the master.
struct Scene<A> {
    old: RedisServer,
    new: RedisServer,
    address: A,
}

impl<A: Address> Scene<A> {
    fn open() -> Self {
        let server = || RedisServer::start_with(&["--unixsocket", "socket", "--repl-diskless-sync-delay", "0"]);
        let (old, new) = (server(), server());
        new.run::<()>(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
        eventually("the replica follows", || old.run::<String>(&["INFO", "replication"]).contains("state=online"));
        Self { address: A::to(&old), old, new }
    }

    fn client(&self) -> DLockGenerator {
        connect(&self.address.url())
    }

    /// The replica becomes the master, without losing a write, and then the address is changed.
    fn fail_over(&self) {
        self.old.run::<()>(&["FAILOVER", "TO", "127.0.0.1", &self.new.port().to_string()]);
        let says = |server: &RedisServer, role: &str| server.run::<String>(&["INFO", "replication"]).contains(role);
        eventually("the failover is over", || says(&self.old, "role:slave") && says(&self.new, "role:master"));
        self.address.lead_to(&self.new);
    }

    fn has(&self, lock: &DistributedReentrantLock) -> bool {
        self.new.run(&["EXISTS", lock.key()])
    }
}

macro_rules! by_each_address {
    ($($name:ident),+ $(,)?) => {
        mod link {
            $(#[test]
            fn $name() {
                super::$name(&super::Scene::<super::Link>::open());
            })+
        }
        mod proxy {
            $(#[test]
            fn $name() {
                super::$name(&super::Scene::<super::Proxy>::open());
            })+
        }
    };
}

by_each_address!(who_only_tries_gets_the_lock, who_waits_gets_the_lock_and_hears, who_holds_keeps_its_leases);

/// Locks with so many threads at once, so that as many connections are opened as callers may have.
fn lock_all_at_once(locks: &[DistributedReentrantLock]) {
    let barrier = Barrier::new(locks.len());
    thread::scope(|scope| {
        for lock in locks {
            scope.spawn(|| {
                for _ in 0..20 {
                    barrier.wait();
                    lock.lock().unwrap().unlock().unwrap();
                }
            });
        }
    });
}

fn locks(client: &DLockGenerator, count: usize, lease: u64) -> Vec<DistributedReentrantLock> {
    (0..count).map(|n| client.generate_with(config(&format!("moved {n}"), lease)).unwrap()).collect()
}

/// Shows: G11.
fn who_only_tries_gets_the_lock<A: Address>(scene: &Scene<A>) {
    for threads in [1, 8] {
        let client = scene.client();
        lock_all_at_once(&locks(&client, threads, 60_000));
    }
    let clients = [1, 8].map(|threads| {
        let client = scene.client();
        let locks = locks(&client, threads, 60_000);
        lock_all_at_once(&locks);
        locks
    });
    scene.fail_over();
    for lock in clients.iter().flatten() {
        let guard = answered(|| lock.try_lock()).expect("it is free");
        assert!(scene.has(lock));
        answered(|| guard.ensure_valid());
        drop(guard);
        eventually("it is released", || !scene.has(lock));
    }
}

/// Shows: G10, L1.
fn who_waits_gets_the_lock_and_hears<A: Address>(scene: &Scene<A>) {
    let [holder, waiter] = [(); 2].map(|()| scene.client().generate_with(config("moved", 60_000)).unwrap());
    let guard = holder.lock().unwrap();
    let waits = queue_by(&waiter, |lock| drop(lock.lock().unwrap()));
    scene.fail_over();
    // Its answer may be that of the demoted master. Then it is repeated.
    let _ = guard.unlock();
    waits.join();
    eventually("it hears at the new master", || {
        scene.new.run::<Vec<String>>(&["PUBSUB", "CHANNELS", "DLOCK:1:inbox:*"]).len() == 1
    });
}

/// Shows: G3.
fn who_holds_keeps_its_leases<A: Address>(scene: &Scene<A>) {
    let clients = [1, 8].map(|threads| {
        let client = scene.client();
        let locks: Vec<_> = (0..threads)
            .map(|n| client.generate_with(config(&format!("held {threads} {n}"), 6_000).with_renew_at(0.25)).unwrap())
            .collect();
        lock_all_at_once(&locks);
        locks
    });
    let locks: Vec<_> = clients.iter().flatten().collect();
    let guards: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
    let are_extended = |at: &RedisServer| {
        let ends = |lock: &DistributedReentrantLock| at.run::<i64>(&["PEXPIRETIME", lock.key()]);
        let before: Vec<_> = locks.iter().map(|lock| ends(lock)).collect();
        for (lock, before) in locks.iter().zip(before) {
            eventually("its lease is extended", || ends(lock) > before);
        }
    };
    // Renewals have a connection of their own, which they open at the first.
    are_extended(&scene.old);
    scene.fail_over();
    are_extended(&scene.new);
    for guard in guards {
        assert!(guard.is_valid());
        guard.unlock().unwrap();
    }
}
