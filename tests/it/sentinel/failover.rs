//! Clients follow a failover.

use crate::support::LONG;
use crate::support::crew::{eventually, spawn};
use crate::support::sentinels::{Service, is_master};
use redis_dlock::{DLockConfig, DLockGenerator, DistributedReentrantLock};
use rustix::process::Signal;
use std::fs;
use std::time::Duration;

/// Longer than a failover takes.
const LEASE: Duration = Duration::from_secs(30);

fn lock_of(generator: &DLockGenerator) -> DistributedReentrantLock {
    generator.generate_with(DLockConfig::new("SENTINEL", "failover").with_lease(LEASE)).unwrap()
}

/// How many connections of ours a server has.
fn connections(service: &Service, port: u16) -> usize {
    let server = service.servers.iter().find(|server| server.port() == port).unwrap();
    server.run::<String>(&["CLIENT", "LIST"]).lines().filter(|line| line.contains("name=redis-dlock ")).count()
}

/// A hold that every replica has survives its master's death, and so do the waiters.
#[test]
fn a_killed_master_is_left_for_the_new_one() {
    let mut service = Service::start();
    let [holder, waiter] = [(); 2].map(|()| DLockGenerator::connect(&service.url()).unwrap());
    let guard = lock_of(&holder).lock_owned().unwrap();
    let first = guard.fencing_token();
    let old = service.named_by(0);
    let waits = spawn(move || lock_of(&waiter).lock_owned().map(|guard| (guard.fencing_token(), waiter)));
    eventually("the other waits", || lock_of(&holder).inspect().unwrap().waiting == 1);
    service.wait_for_replicas(old);
    service.on(old).kill();
    let new = service.wait_for_another_master(old);
    assert!(guard.is_valid());
    // The key is still its own on the new master.
    eventually("the new master is followed", || guard.ensure_valid().is_ok() && connections(&service, new) > 0);
    guard.unlock().unwrap();
    let (second, _waiter) = waits.join().unwrap();
    assert!(second > first, "{second} after {first}");
}

/// The old master says `OK` for ten seconds more.
#[test]
fn a_planned_failover_is_followed_while_the_old_master_still_takes_writes() {
    let mut service = Service::start();
    let generator = DLockGenerator::connect(&service.url()).unwrap();
    let lock = lock_of(&generator);
    lock.lock().unwrap().unlock().unwrap();
    let old = service.named_by(0);
    assert!(connections(&service, old) > 0);
    service.sentinels[0].run::<String>(&["SENTINEL", "FAILOVER", "dlock"]).unwrap();
    let new = service.wait_for_another_master(old);
    // Nobody asks for a lock: the client notices by itself.
    eventually("the client leaves the old master", || connections(&service, old) == 0);
    assert!(is_master(service.on(old)), "the old master was left only when it ended the connections itself");
    let guard = lock.lock().unwrap();
    assert!(service.on(new).run::<bool>(&["EXISTS", lock.key()]));
    guard.unlock().unwrap();
}

#[test]
fn a_master_that_stood_still_and_goes_on_is_not_taken_back() {
    let mut service = Service::start();
    let generator = DLockGenerator::connect(&service.url()).unwrap();
    let lock = lock_of(&generator);
    let token = {
        let guard = lock.lock().unwrap();
        let token = guard.fencing_token();
        guard.unlock().unwrap();
        token
    };
    let old = service.named_by(0);
    service.wait_for_replicas(old);
    service.on(old).signal(Signal::STOP);
    service.wait_for_another_master(old);
    let guard = lock.try_lock_for(LONG).unwrap().expect("free");
    assert!(guard.fencing_token() > token);
    service.on(old).signal(Signal::CONT);
    eventually("it answers again", || is_master(service.on(old)));
    // It is a master by its own words, and nobody goes back to it.
    for _ in 0..20 {
        guard.ensure_valid().unwrap();
        assert_eq!(connections(&service, old), 0);
        std::thread::sleep(Duration::from_millis(20));
    }
    guard.unlock().unwrap();
}

/// An empty one has none of the locks: the holder is told long before its lease is extended.
#[test]
fn a_hold_that_the_new_master_does_not_know_is_told_as_lost() {
    let mut service = Service::start();
    let generator = DLockGenerator::connect(&service.url()).unwrap();
    let lock = lock_of(&generator);
    let old = service.named_by(0);
    // From here on the replicas get nothing. (What they have is nothing.)
    for server in service.servers.iter().filter(|server| server.port() != old) {
        server.run::<()>(&["CLIENT", "PAUSE", "600", "ALL"]);
    }
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    service.on(old).kill();
    lost.recv_timeout(LEASE / 2).expect("told of the loss");
    assert!(!guard.is_valid());
    drop(guard);
    lock.try_lock_for(LONG).unwrap().expect("free").unlock().unwrap();
}

#[test]
fn there_is_one_more_thread_and_it_ends_with_the_client() {
    let service = Service::start();
    let watches = || {
        let names = fs::read_dir("/proc/self/task")
            .unwrap()
            .filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
        names.filter(|name| name.trim() == "dlock-watch").count()
    };
    let before = watches();
    let generator = DLockGenerator::connect(&service.url()).unwrap();
    for n in 0..8 {
        generator.generate("SENTINEL", n.to_string()).unwrap().lock().unwrap().unlock().unwrap();
    }
    assert!(watches() > before);
    generator.close();
    drop(generator);
    eventually("the thread has ended", || watches() <= before);
}
