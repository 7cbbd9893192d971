//! Clients follow a failover.

use crate::support::LONG;
use crate::support::crew::{eventually, queue_by};
use crate::support::lab::connect_patiently;
use crate::support::process::{alone, threads_named};
use crate::support::sentinels::{Service, is_master};
use redis_dlock::processor::LockProcessor;
use redis_dlock::{DLockConfig, DLockGenerator, DistributedReentrantLock, RedisLockProcessor};
use rustix::process::Signal;
use std::time::Duration;

/// So long that neither a probe (lease/6) nor an extension comes within the time of a test.
const LEASE: Duration = Duration::from_secs(3600);

fn lock_of(generator: &DLockGenerator) -> DistributedReentrantLock {
    generator.generate_with(DLockConfig::new("SENTINEL", "failover").with_lease(LEASE)).unwrap()
}

/// How many connections of ours a server has. A Sentinel that demotes it ends its connections, that of the question, too.
fn connections(service: &Service, port: u16) -> usize {
    let server = service.servers.iter().find(|server| server.port() == port).unwrap();
    let mut clients = None;
    eventually("the server tells its clients", || {
        clients = server.ask::<String>(&["CLIENT", "LIST"]);
        clients.is_some()
    });
    clients.unwrap().lines().filter(|line| line.contains("name=redis-dlock ")).count()
}

/// A hold that every replica has survives its master's death, and so do the waiters.
#[test]
fn a_killed_master_is_left_for_the_new_one() {
    let mut service = Service::start();
    let [holder, waiter] = [(); 2].map(|()| connect_patiently(&service.url()));
    let guard = lock_of(&holder).lock_owned().unwrap();
    let first = guard.fencing_token();
    let old = service.named_by(0);
    let waits = queue_by(&lock_of(&waiter), |lock| lock.lock().map(|guard| guard.fencing_token()));
    service.wait_for_replicas(old);
    service.on(old).kill();
    let new = service.wait_for_another_master(old);
    assert!(guard.is_valid());
    // The key is still its own on the new master.
    eventually("the new master is followed", || guard.ensure_valid().is_ok() && connections(&service, new) > 0);
    guard.unlock().unwrap();
    let second = waits.join().unwrap();
    assert!(second > first, "{second} after {first}");
}

/// The old master says `OK` for ten seconds more.
#[test]
fn a_planned_failover_is_followed_while_the_old_master_still_takes_writes() {
    planned(&mut Service::start(), 0, false);
}

/// The Sentinel that is asked last leads the failover: it names the old master, with the new epoch, after the others name the new one.
#[test]
fn nor_does_the_sentinel_that_leads_a_failover_lead_back() {
    planned(&mut Service::start(), 2, false);
}

/// A user who may not ask who the server is.
#[test]
fn a_planned_failover_is_followed_also_without_the_right_to_ask_who_the_server_is() {
    planned(&mut Service::start(), 1, true);
}

fn planned(service: &mut Service, leader: usize, without_info: bool) {
    let mut url = service.url();
    if without_info {
        for server in &service.servers {
            server.run::<()>(&["ACL", "SETUSER", "dlock", "on", ">pw", "~*", "&*", "+@all", "-info"]);
        }
        url = url.replace("//", "//dlock:pw@");
    }
    let generator = DLockGenerator::connect(&url).unwrap();
    let lock = lock_of(&generator);
    lock.lock().unwrap().unlock().unwrap();
    let old = service.named_by(0);
    assert!(connections(service, old) > 0);
    // A release that the new master misses would leave the lock to its lease.
    service.wait_for_replicas(old);
    service.sentinels[leader].run::<String>(&["SENTINEL", "FAILOVER", "dlock"]).unwrap();
    let new = service.wait_for_another_master(old);
    // Nobody asks for a lock: the client notices by itself.
    eventually("the client leaves the old master", || connections(service, old) == 0);
    assert!(is_master(service.on(old)), "the old master was left only when it ended the connections itself");
    // Until the old one is demoted, and a while after that, nothing leads back.
    eventually("the old master is demoted", || {
        let guard = lock.lock().unwrap();
        assert!(service.on(new).run::<bool>(&["EXISTS", lock.key()]));
        assert_eq!(connections(service, old), 0);
        guard.unlock().unwrap();
        // Each connection is a new question to the Sentinels.
        service.on(new).run::<usize>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        std::thread::sleep(Duration::from_millis(50));
        !is_master(service.on(old))
    });
    lock.lock().unwrap().unlock().unwrap();
}

#[test]
fn a_master_that_stood_still_and_goes_on_is_not_taken_back() {
    let mut service = Service::start();
    let generator = connect_patiently(&service.url());
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
    let new = service.wait_for_another_master(old);
    let guard = lock.try_lock_for(LONG).unwrap().expect("free");
    assert!(guard.fencing_token() > token);
    service.on(old).signal(Signal::CONT);
    eventually("it answers again", || is_master(service.on(old)));
    // Connections that were begun while it stood still are accepted only now, and then found to have ended.
    eventually("it sees that they have ended", || connections(&service, old) == 0);
    // It is a master by its own words, and nobody goes back to it, although each connection is made anew.
    for n in 0..30 {
        guard.ensure_valid().unwrap();
        assert_eq!(connections(&service, old), 0);
        service.on(new).run::<usize>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        let other = generator.generate("SENTINEL", format!("woken-{n}")).unwrap();
        other.lock().unwrap().unlock().unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    guard.unlock().unwrap();
}

/// An empty one has none of the locks: the holder is told long before its lease is extended.
#[test]
fn a_hold_that_the_new_master_does_not_know_is_told_as_lost() {
    let mut service = Service::start();
    let generator = connect_patiently(&service.url());
    let lock = lock_of(&generator);
    let old = service.named_by(0);
    // From here on the replicas get nothing. (What they have is nothing.)
    for server in service.servers.iter().filter(|server| server.port() != old) {
        server.run::<()>(&["CLIENT", "PAUSE", "5000", "ALL"]);
    }
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    service.on(old).kill();
    // No probe is due for ten minutes: the new master is asked because it is another one.
    lost.recv_timeout(crate::support::crew::HANG).expect("told of the loss");
    assert!(!guard.is_valid());
    drop(guard);
    lock.try_lock_for(LONG).unwrap().expect("free").unlock().unwrap();
}

/// Two are enough for a failover, and for a client: also for one that connects only now, and is told of the one that is missing first.
#[test]
fn a_sentinel_that_hangs_or_is_dead_is_passed_over() {
    for is_dead in [false, true] {
        let mut service = Service::start();
        let early = connect_patiently(&service.url());
        lock_of(&early).lock().unwrap().unlock().unwrap();
        if is_dead {
            service.sentinels[0].kill();
        } else {
            service.sentinels[0].signal(Signal::STOP);
        }
        let late = connect_patiently(&service.url());
        lock_of(&late).lock().unwrap().unlock().unwrap();
        let old = service.named_by(1);
        service.wait_for_replicas(old);
        service.sentinels[1].run::<String>(&["SENTINEL", "FAILOVER", "dlock"]).unwrap();
        let new = service.wait_for_another_master(old);
        eventually("the clients leave the old master", || connections(&service, old) == 0);
        for generator in [&early, &late] {
            let lock = lock_of(generator);
            let guard = lock.lock().unwrap();
            assert!(service.on(new).run::<bool>(&["EXISTS", lock.key()]));
            guard.unlock().unwrap();
        }
    }
}

/// Also after a failover, after which every connection is a new one.
#[test]
fn there_is_one_more_thread_and_it_ends_with_the_client() {
    alone("it::sentinel::failover::there_is_one_more_thread_and_it_ends_with_the_client", || {
        let service = Service::start();
        let watches = || threads_named("dlock-watch");
        let generator = connect_patiently(&service.url());
        let lock_some = || {
            let lock = |n: u32| generator.generate("SENTINEL", n.to_string()).unwrap();
            (0..8).for_each(|n| lock(n).lock().unwrap().unlock().unwrap());
        };
        lock_some();
        // A thread takes its name when it first runs.
        eventually("it has begun", || watches() > 0);
        assert_eq!(watches(), 1);
        let old = service.named_by(0);
        service.wait_for_replicas(old);
        service.sentinels[0].run::<String>(&["SENTINEL", "FAILOVER", "dlock"]).unwrap();
        service.wait_for_another_master(old);
        eventually("the client leaves the old master", || connections(&service, old) == 0);
        lock_some();
        assert_eq!(watches(), 1);
        generator.close();
        drop(generator);
        eventually("it ends", || watches() == 0);
    });
}

/// Scripts see who listens, at the old master and at the new one.
#[test]
fn who_listens_is_seen_before_and_after_a_failover() {
    alone("it::sentinel::failover::who_listens_is_seen_before_and_after_a_failover", || {
        let mut service = Service::start();
        let clients = [(); 2].map(|()| connect_patiently(&service.url()));
        let hand_over = || {
            let guard = lock_of(&clients[0]).lock_owned().unwrap();
            let waiter = queue_by(&lock_of(&clients[1]), |lock| lock.lock().unwrap().unlock().unwrap());
            guard.unlock().unwrap();
            waiter.join();
        };
        hand_over();
        let old = service.named_by(0);
        service.wait_for_replicas(old);
        service.on(old).kill();
        let new = service.wait_for_another_master(old);
        eventually("the new master is followed", || {
            clients.iter().all(|client| lock_of(client).inspect().is_ok()) && connections(&service, new) > 0
        });
        hand_over();
        let looks: u64 = {
            let stats: String = service.on(new).run(&["INFO", "commandstats"]);
            let of = |line: &str| line.strip_prefix("cmdstat_pubsub|numsub:calls=")?.split(',').next()?.parse().ok();
            stats.lines().find_map(of).unwrap_or(0)
        };
        assert!(looks > 0, "scripts have looked");
    });
}

/// A lock that does not set when it is extended outlives a failover, as long as the Sentinels say that one takes.
#[test]
fn the_sentinels_say_for_how_long_the_store_may_be_away_unless_the_program_does() {
    let service = Service::start();
    let outage = |store: RedisLockProcessor| store.limits().outage;
    let builder = |url: &str| RedisLockProcessor::builder(url).unwrap();
    // The kit's time until a master is down, and two seconds.
    assert_eq!(outage(builder(&service.url()).connect().unwrap()), Duration::from_millis(500 + 2000));
    let set = Duration::from_secs(7);
    assert_eq!(outage(builder(&service.url()).failover_within(set).connect().unwrap()), set);
    let plain = service.servers[0].url();
    assert_eq!(outage(builder(&plain).connect().unwrap()), Duration::ZERO);
    assert_eq!(outage(builder(&plain).failover_within(set).connect().unwrap()), set);
}
