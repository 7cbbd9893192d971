//! `replica_acks`: a lock counts when replicas have it. A master with two replicas; the faults are stopped replicas, and a promoted one.

mod late;
mod own_write;

use crate::acl;
use crate::support::commands::Commands;
use crate::support::crew::{Member, eventually, queue_by, spawn, spawn_with};
use crate::support::sentinels::{Plan, Service};
use crate::support::time::Time;
use crate::support::watched::{Kind, Watched, When};
use crate::support::{LONG, Proxy, RedisServer, cause, journal};
use redis_dlock::{
    BackendFailure, DLockConfig, DLockGenerator, DistributedReentrantLock, Error, LockProcessor, LossCause,
    RedisBuilder, RedisLockProcessor,
};
use rustix::process::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How long the server waits for acknowledgements.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long an answer may take: far longer than a busy machine keeps a server off its cores.
const IO_TIMEOUT: Duration = Duration::from_secs(3);

/// So long that no extension, probe or poll comes within a test.
const LEASE: Duration = Duration::from_secs(3600);

fn replicated(replicas: usize) -> Service {
    Service::start_as(&Plan { replicas, sentinels: 0, ..Plan::default() })
}

fn builder(url: &str, acks: u32) -> RedisBuilder {
    builder_with(url, acks, PATIENCE)
}

fn builder_with(url: &str, acks: u32, timeout: Duration) -> RedisBuilder {
    let builder = RedisLockProcessor::builder(url).unwrap().connect_timeout(LONG).io_timeout(IO_TIMEOUT);
    builder.replica_acks(acks, timeout)
}

fn generator(url: &str, acks: u32) -> DLockGenerator {
    DLockGenerator::new(builder(url, acks).connect().unwrap()).unwrap()
}

/// A client that writes nothing but its locks.
fn counted(url: &str, acks: u32) -> DLockGenerator {
    DLockGenerator::builder().client_record(false).build(builder(url, acks).connect().unwrap()).unwrap()
}

fn lock_of(generator: &DLockGenerator, target: &str) -> DistributedReentrantLock {
    generator.generate_with(DLockConfig::new("ACKS", target).with_lease(LEASE)).unwrap()
}

fn signal_replicas(service: &Service, signal: Signal) {
    service.servers[1..].iter().for_each(|replica| replica.signal(signal));
}

fn value(server: &RedisServer, key: &str) -> Option<String> {
    server.run(&["GET", key])
}

/// How many connections the server has accepted so far.
fn connections(server: &RedisServer) -> u64 {
    server.stat("total_connections_received")
}

#[track_caller]
fn failure<T>(result: Result<T, Error>) -> BackendFailure {
    match result {
        Err(Error::Backend { failure, .. }) => failure,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("no error"),
    }
}

/// Whoever begins a hold finds it on every replica that is to acknowledge, whichever way it came: a plain attempt, a script, a message
/// from another process, or a thread of its own process.
#[test]
fn a_hold_that_begins_is_on_the_replicas() {
    let service = replicated(2);
    let url = service.servers[0].url();
    let [one, other] = [(); 2].map(|()| generator(&url, 2));
    let replicas: Vec<_> = service.servers[1..].iter().map(RedisServer::connection).collect();
    let replicas = Arc::new(parking_lot::Mutex::new(replicas));
    let members: Vec<_> = [one.clone(), one, other]
        .into_iter()
        .map(|generator| {
            let (lock, replicas) = (lock_of(&generator, "replicated"), Arc::clone(&replicas));
            spawn(move || {
                let mut last = 0;
                for _ in 0..100 {
                    let guard = lock.lock().unwrap();
                    let locker = lock.holder().unwrap().unwrap().locker;
                    for replica in replicas.lock().iter_mut() {
                        let there: Option<String> = redis::cmd("GET").arg(lock.key()).query(replica).unwrap();
                        assert_eq!(there.as_deref(), Some(locker.as_str()));
                    }
                    assert!(guard.fencing_token() > last);
                    last = guard.fencing_token();
                    guard.unlock().unwrap();
                }
            })
        })
        .collect();
    members.into_iter().for_each(|member| member.join());
}

#[test]
fn a_write_has_one_wait_at_most_and_a_release_none() {
    let service = replicated(1);
    let master = &service.servers[0];
    for acks in [0, 1] {
        let generator = counted(&master.url(), acks);
        let lock = lock_of(&generator, "counted");
        drop(lock.lock().unwrap());
        Commands::forget(master);
        for _ in 0..100 {
            lock.lock().unwrap().unlock().unwrap();
        }
        let calls = Commands::of(master);
        // Each attempt that got the key ends by one. If its number comes too late to be trusted, it is undone, and made again.
        assert_eq!(calls.count("wait"), u64::from(acks) * calls.count("del"), "{calls:?}");
        // Once a second a script takes the lock in place of a plain attempt, and may move the fence to the clock.
        let scripts = calls.count("evalsha") - 100;
        assert!((100..=100 + scripts).contains(&calls.count("set")), "{calls:?}");
    }
}

/// Those that come while the server confirms earlier ones.
#[test]
fn the_calls_of_many_threads_are_confirmed_together() {
    let service = replicated(1);
    let master = &service.servers[0];
    let store = builder_with(&master.url(), 1, LONG / 2).io_timeout(LONG).connect().unwrap();
    let generator = DLockGenerator::builder().client_record(false).build(store).unwrap();
    let locks: Vec<_> = (0..64).map(|n| lock_of(&generator, &n.to_string())).collect();
    let use_all = || {
        let lock = |lock: &DistributedReentrantLock| spawn_with(lock, |lock| lock.lock().unwrap().unlock().unwrap());
        locks.iter().map(lock).collect::<Vec<_>>()
    };
    // This opens the connections: calls that wait for a connection go out together anyway.
    use_all().into_iter().for_each(Member::join);
    signal_replicas(&service, Signal::STOP);
    Commands::forget(master);
    let members = use_all();
    thread::sleep(PATIENCE * 5);
    signal_replicas(&service, Signal::CONT);
    members.into_iter().for_each(Member::join);
    // One for those that came first on each connection, and one for all others. A thread that comes late may have its own.
    let waits = Commands::of(master).count("wait");
    assert!(waits < 32, "{waits} waits for 64 locks");
}

#[test]
fn an_attempt_that_is_not_acknowledged_is_undone_and_fails_by_name() {
    journal::keep();
    let service = replicated(2);
    let master = &service.servers[0];
    let generator = generator(&master.url(), 2);
    let busy = lock_of(&generator, "held-before").lock_owned().unwrap();
    let [plain, script] = ["plain", "script"].map(|target| lock_of(&generator, target));
    // The next attempt at this key is by script: it was busy a moment ago.
    let rival = DLockGenerator::connect(&master.url()).unwrap();
    let held = lock_of(&rival, "script").lock_owned().unwrap();
    assert!(script.try_lock().unwrap().is_none());
    held.unlock().unwrap();
    // One of two replicas is not enough.
    service.servers[1].signal(Signal::STOP);
    for lock in [&plain, &script] {
        assert_eq!(failure(lock.try_lock()), BackendFailure::Unacknowledged, "{}", lock.key());
        assert_eq!(value(master, lock.key()), None, "{}", lock.key());
        assert_eq!(failure(lock.try_lock_for(PATIENCE * 5)), BackendFailure::Unacknowledged, "{}", lock.key());
        eventually("it is undone", || value(master, lock.key()).is_none());
    }
    let error = plain.try_lock().err().unwrap();
    assert!(error.is_transient(), "{error}");
    for says in ["1 of 2 replicas", "bring back those that are away"] {
        assert!(error.to_string().contains(says), "{error}");
    }
    // What is somebody else's is no matter of replicas.
    assert!(lock_of(&rival, "held-before").try_lock().unwrap().is_none());
    let other = self::generator(&master.url(), 2);
    assert!(lock_of(&other, "held-before").try_lock().unwrap().is_none());
    // Who waits without a limit goes on trying.
    let went_on = Arc::new(AtomicBool::new(false));
    let waits = [plain, script].map(|lock| {
        let went_on = Arc::clone(&went_on);
        spawn(move || {
            let guard = lock.lock().unwrap();
            assert!(went_on.load(Ordering::SeqCst));
            guard.unlock().unwrap();
        })
    });
    for key in ["DLOCK_ACKS_plain", "DLOCK_ACKS_script"] {
        eventually("a warning", || journal::warnings(key).iter().any(|line| line.contains("1 of 2 replicas")));
    }
    went_on.store(true, Ordering::SeqCst);
    service.servers[1].signal(Signal::CONT);
    waits.into_iter().for_each(|waiter| waiter.join());
    busy.unlock().unwrap();
}

#[test]
fn an_extension_that_is_not_acknowledged_moves_no_deadline() {
    let service = replicated(1);
    let master = &service.servers[0];
    let time = Time::by_hand(Arc::default());
    let store = time.keep_up(Arc::new(builder(&master.url(), 1).connect().unwrap()));
    let (store, seen) = Watched::by(time.clone(), store);
    let lock = lock_of(&time.builder().build(store).unwrap(), "extended");
    let guard = time.during(|| lock.lock_owned().unwrap());
    let lost = guard.lost();
    let deadline = || time.now() + guard.remaining();
    // With acknowledgements it moves.
    let before = deadline();
    time.until("the deadline has moved", || deadline() > before);
    signal_replicas(&service, Signal::STOP);
    Commands::forget(master);
    let before = deadline();
    let extended = seen.stop_next(Kind::Extend, When::Coming);
    extended.wait_till_due();
    assert_eq!(Commands::of(master).count("pexpire"), 1, "the server itself has extended it");
    extended.open();
    // It is tried again when the answer has been looked at.
    seen.wait_for_more(Kind::Extend, 1);
    assert_eq!(deadline(), before);
    time.jump(guard.remaining());
    lost.recv_timeout(LONG).expect("told of the loss");
    assert_eq!(cause(guard.ensure_valid()), LossCause::Deadline);
    signal_replicas(&service, Signal::CONT);
    drop(guard);
}

/// A release of somebody who does not ask for acknowledgements grants the lock by a message.
#[test]
fn a_grant_that_is_heard_counts_when_it_is_acknowledged() {
    let service = replicated(1);
    let master = &service.servers[0];
    let [holder, waiter] = [0, 1].map(|acks| generator(&master.url(), acks));
    for _ in 0..3 {
        let held = lock_of(&holder, "handed-over").lock_owned().unwrap();
        let went_on = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&went_on);
        let waits = queue_by(&lock_of(&waiter, "handed-over"), move |lock| {
            let guard = lock.lock().unwrap();
            let is_in_time = told.load(Ordering::SeqCst);
            guard.unlock().unwrap();
            is_in_time
        });
        signal_replicas(&service, Signal::STOP);
        held.unlock().unwrap();
        thread::sleep(PATIENCE * 3);
        went_on.store(true, Ordering::SeqCst);
        signal_replicas(&service, Signal::CONT);
        assert!(waits.join(), "the hold began while nobody but the master knew of it");
    }
}

/// A timed call fails by name even if it was given the lock, and keeps nothing.
#[test]
fn a_grant_that_is_heard_and_not_acknowledged_is_given_back() {
    let service = replicated(1);
    let master = &service.servers[0];
    let [holder, waiter] = [0, 1].map(|acks| generator(&master.url(), acks));
    let held = lock_of(&holder, "given-back").lock_owned().unwrap();
    let waits = queue_by(&lock_of(&waiter, "given-back"), |lock| failure(lock.try_lock_for(PATIENCE * 20)));
    signal_replicas(&service, Signal::STOP);
    held.unlock().unwrap();
    assert_eq!(waits.join(), BackendFailure::Unacknowledged);
    eventually("it is given back", || value(master, "DLOCK_ACKS_given-back").is_none());
    signal_replicas(&service, Signal::CONT);
}

/// A hold outlives the loss of the master, if every replica has it.
#[test]
fn a_hold_survives_the_promotion_of_a_replica_that_acknowledged_it() {
    let mut service = replicated(2);
    let proxy = Proxy::to(service.servers[0].port(), Duration::ZERO);
    let generator = generator(&proxy.url(), 2);
    let lock = lock_of(&generator, "promoted");
    let guard = lock.lock_owned().unwrap();
    service.servers[0].kill();
    let promoted = &service.servers[2];
    promoted.run::<()>(&["REPLICAOF", "NO", "ONE"]);
    service.servers[1].run::<()>(&["REPLICAOF", "127.0.0.1", &promoted.port().to_string()]);
    proxy.lead_to(promoted.port());
    proxy.reset();
    eventually("the store answers", || lock.holder().is_ok_and(|holder| holder.is_some()));
    assert!(guard.is_valid());
    let after = self::generator(&promoted.url(), 0);
    assert!(lock_of(&after, "promoted").try_lock().unwrap().is_none());
    let token = guard.fencing_token();
    guard.unlock().unwrap();
    let next = lock_of(&after, "promoted").lock_owned().unwrap();
    assert!(next.fencing_token() > token, "{} after {token}", next.fencing_token());
}

/// While replicas are missing, each answer takes its time. However many threads ask, that is no reason to give a connection up.
#[test]
fn missing_replicas_cost_no_connection() {
    let service = replicated(1);
    let master = &service.servers[0];
    let generator = generator(&master.url(), 1);
    // If each had a `WAIT` of its own, those of one connection would take twice as long as an answer may take.
    let locks: Vec<_> = (0..256).map(|n| lock_of(&generator, &n.to_string())).collect();
    signal_replicas(&service, Signal::STOP);
    let before = connections(master);
    let members: Vec<_> = locks
        .into_iter()
        .map(|lock| {
            spawn(move || {
                for _ in 0..5 {
                    let outcome = lock.try_lock();
                    assert_eq!(failure(outcome), BackendFailure::Unacknowledged);
                }
            })
        })
        .collect();
    members.into_iter().for_each(|member| member.join());
    let keys: Vec<String> = master.run(&["KEYS", "DLOCK_ACKS_*"]);
    assert_eq!(keys, Vec::<String>::new());
    // The other three of the callers, the one of renewals, and those of the test.
    let opened = connections(master) - before;
    assert!(opened <= 8, "{opened} connections");
    signal_replicas(&service, Signal::CONT);
}

/// Nor is it where others release what they hold, and where callers leave before they have an answer, and come again.
#[test]
fn nor_do_releases_and_callers_that_leave() {
    let service = replicated(1);
    let master = &service.servers[0];
    let generator = generator(&master.url(), 1);
    let [impatient, patient] = ["impatient", "patient"].map(|target| lock_of(&generator, target));
    let held: Vec<_> = (0..400).map(|n| lock_of(&generator, &format!("held-{n}")).lock_owned().unwrap()).collect();
    signal_replicas(&service, Signal::STOP);
    let before = connections(master);
    let is_over = Arc::new(AtomicBool::new(false));
    let attempts: Vec<_> = (0..8)
        .map(|n| {
            let (lock, is_over) = (lock_of(&generator, &n.to_string()), Arc::clone(&is_over));
            spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    assert_eq!(failure(lock.try_lock()), BackendFailure::Unacknowledged);
                }
            })
        })
        .collect();
    for guard in held {
        drop(guard);
        assert!(!matches!(impatient.try_lock_for(PATIENCE / 20), Ok(Some(_))));
        thread::sleep(PATIENCE / 20);
    }
    is_over.store(true, Ordering::SeqCst);
    attempts.into_iter().for_each(|attempt| attempt.join());
    assert_eq!(failure(patient.try_lock()), BackendFailure::Unacknowledged);
    let opened = connections(master) - before;
    assert!(opened <= 8, "{opened} connections");
    eventually("nothing is left", || master.run::<Vec<String>>(&["KEYS", "DLOCK_ACKS_*"]).is_empty());
    signal_replicas(&service, Signal::CONT);
}

#[test]
fn the_right_to_wait_is_needed_and_enough() {
    let service = replicated(1);
    let master = &service.servers[0];
    let url = master.url().replace("//", "//dlock:PASSWORD@");
    let rules = acl::rules();
    master.run::<()>(&rules.iter().map(String::as_str).collect::<Vec<_>>());
    let denied = builder(&url, 1).connect();
    assert!(matches!(denied, Err(Error::Denied { .. })), "{denied:?}");
    // Without being asked for, it is not used.
    generator(&url, 0);
    master.run::<()>(&["ACL", "SETUSER", "dlock", "+wait"]);
    let generator = generator(&url, 1);
    let lock = lock_of(&generator, "rights");
    for _ in 0..3 {
        lock.lock().unwrap().unlock().unwrap();
    }
    // A right that is withdrawn later: the attempt is undone, and so is the grant of a lock that somebody waits for.
    let holder = DLockGenerator::connect(&master.url()).unwrap();
    let held = lock_of(&holder, "rights-to-wait").lock_owned().unwrap();
    let waits = queue_by(&lock_of(&generator, "rights-to-wait"), |lock| lock.lock().err().unwrap());
    master.run::<()>(&["ACL", "SETUSER", "dlock", "-wait"]);
    held.unlock().unwrap();
    for error in [lock.try_lock().err().unwrap(), waits.join()] {
        assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    }
    assert_eq!(value(master, lock.key()), None);
    eventually("it is given back", || value(master, "DLOCK_ACKS_rights-to-wait").is_none());
}

#[test]
fn times_that_cannot_be_kept_are_refused() {
    let builder = |timeout| {
        let builder = RedisLockProcessor::builder("redis://127.0.0.1:1").unwrap().io_timeout(Duration::from_secs(1));
        builder.replica_acks(1, timeout).build()
    };
    for timeout in [Duration::ZERO, Duration::from_micros(999), Duration::from_millis(501), Duration::MAX] {
        let error = builder(timeout).err().unwrap();
        assert!(matches!(&error, Error::InvalidConfig { .. }), "{error:?}");
        assert!(
            error.to_string().contains("replica_acks") && error.to_string().contains("half of io_timeout"),
            "{error}"
        );
    }
    for timeout in [Duration::from_millis(1), Duration::from_millis(500)] {
        let store = builder(timeout).unwrap();
        assert!(store.limits().extends_heard_grants);
    }
    let builder = RedisLockProcessor::builder("redis://127.0.0.1:1").unwrap();
    assert!(!builder.replica_acks(0, Duration::ZERO).build().unwrap().limits().extends_heard_grants);
}
