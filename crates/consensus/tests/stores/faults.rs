//! The lock on a consensus store, while servers and holders fail.

use crate::consensus::{ConsensusStore, Consul, Etcd, counted};
use crate::support::crew::{Member, eventually, spawn};
use crate::support::lab::STALL;
use crate::support::process::Killed;
use crate::support::process::signal;
use crate::support::stalls::on_a_running_machine;
use crossbeam_channel::unbounded;
use redis_dlock::port::{Claim, Operations};
use redis_dlock::{
    BackendFailure, DLockConfig, DLockGenerator, DLockGuard, DistributedReentrantLock, Error, Hold, LossCause,
};
use rustix::process::Signal;
use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

on_each_store!(
    a_killed_process_keeps_nobody_out_for_long,
    a_lock_delay_keeps_others_out_for_longer_after_a_death_alone,
    a_stopped_process_has_lost_its_lock_when_it_goes_on,
    a_holder_is_told_by_its_own_deadline_while_no_server_answers,
    a_waiter_that_is_killed_and_given_the_lock_is_passed_over_while_its_session_lives,
    a_waiter_that_stands_still_and_is_given_the_lock_loses_its_turn_and_no_hold,
    an_attempt_without_an_answer_leaves_no_lock,
    a_client_closes_while_its_inbox_opens_without_an_answer,
    a_lock_survives_a_restart_of_the_only_server,
    a_lock_survives_the_death_and_the_stop_of_the_leader_of_three_servers,
    a_server_that_hangs_costs_no_lease_while_the_others_answer,
);

const LONG: Duration = Duration::from_secs(60);

/// The URL on which a process of this test holds the lock until it is killed.
const HOLDER: &str = "DLOCK_TEST_HOLDER";

/// Longer than a dead holder keeps others out without it.
const DELAY: Duration = Duration::from_secs(6);

/// A lock with a lock-delay.
fn delayed<V: ConsensusStore>(url: &str) -> DistributedReentrantLock {
    let config = DLockConfig::new("STORES", "delayed").with_lease(V::LEASE).with_lock_delay(DELAY);
    DLockGenerator::new(V::processor(url)).unwrap().generate_with(config).unwrap()
}

fn lock<V: ConsensusStore>(url: &str, lease: Duration) -> DistributedReentrantLock {
    let generator = DLockGenerator::new(V::processor(url)).unwrap();
    generator.generate_with(DLockConfig::new("STORES", "x").with_lease(lease)).unwrap()
}

/// So many locks of one client that several requests renew their leases.
fn many<V: ConsensusStore>(url: &str) -> Vec<DistributedReentrantLock> {
    let generator = DLockGenerator::new(V::processor(url)).unwrap();
    let config = |n: u32| DLockConfig::new("MANY", n.to_string()).with_lease(V::LONG_LEASE);
    (0..150).map(|n| generator.generate_with(config(n)).unwrap()).collect()
}

/// The URL on which a process of this test waits for the lock.
const WAITER: &str = "DLOCK_TEST_WAITER";

/// The lease of that process, which no other one has, and how long its session lives without a renewal.
const WAITING: Duration = Duration::from_secs(12);
const WAITING_LIFE: Duration = Duration::from_secs(15);

/// A process that waits for the lock.
struct Waiter(Killed, BufReader<ChildStdout>);

impl Waiter {
    fn start(url: &str) -> Self {
        Self::of("waits", WAITER, url)
    }

    /// A process that plays a function of this file, which finds the URL in a variable.
    fn of(does: &str, variable: &str, url: &str) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([&format!("faults::{does}_until_it_is_killed"), "--exact", "--nocapture"]);
        let mut process = command.env(variable, url).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self(Killed(process), lines)
    }

    /// Waits until it holds.
    fn holds(&mut self) {
        assert!(self.1.by_ref().lines().map_while(Result::ok).any(|line| line.contains("it holds")));
    }
}

/// Says that this process holds, and waits for its end.
fn hold_for_good() {
    std::io::stdout().write_all(b"it holds\n").unwrap();
    std::thread::sleep(Duration::from_secs(600));
}

/// What the process of a [`Waiter`] does.
#[test]
fn waits_until_it_is_killed() {
    if let Ok(url) = env::var(WAITER) {
        let lock = if url.starts_with("etcd") { lock::<Etcd>(&url, WAITING) } else { lock::<Consul>(&url, WAITING) };
        let _guard = lock.lock().unwrap();
        hold_for_good();
    }
}

/// Has a process wait for the lock, strikes it, and gives the lock to it. Returns the process and the hold of the one behind it, which began half
/// a lease later at most, and while the session of the process lived.
fn behind_a_waiter_that<V: ConsensusStore>(servers: &V, strike: Signal) -> (Waiter, Hold) {
    let url = servers.url("a");
    let (held, behind) = (lock::<V>(&url, LONG), lock::<V>(&url, WAITING - WAITING / 4));
    let processor = V::processor(&url);
    let waiting = |count| processor.inspect(held.key(), LONG).unwrap().waiting == count;
    let guard = held.lock().unwrap();
    let waiter = Waiter::start(&url);
    eventually("the process waits", || waiting(1));
    let member = spawn(move || behind.hold().unwrap());
    eventually("both wait", || waiting(2));
    signal(&waiter.0.0, strike);
    guard.unlock().unwrap();
    let given = Instant::now();
    let hold = member.join();
    assert!(servers.session_lives().contains(&WAITING_LIFE), "its session has ended, so nobody has passed it over");
    let leases = given.elapsed().div_duration_f64(WAITING);
    let figure = format!("{}: it kept others out for {leases:.2} of its lease\n", V::NAME);
    std::io::stdout().write_all(figure.as_bytes()).unwrap();
    // Half a lease, and the time of the requests. Who waited for the end of a lease would read one and more.
    assert!(leases <= 0.8, "{figure}");
    (waiter, hold)
}

/// A process that holds the lock, and that with a lock-delay.
fn holder(url: &str) -> Killed {
    let mut process = Waiter::of("holds", HOLDER, url);
    process.holds();
    process.0
}

/// What the process of a [`holder`] does. It does nothing in the process of the tests.
#[test]
fn holds_until_it_is_killed() {
    if let Ok(url) = env::var(HOLDER) {
        let locks = if url.starts_with("etcd") {
            [lock::<Etcd>(&url, Etcd::LEASE), delayed::<Etcd>(&url)]
        } else {
            [lock::<Consul>(&url, Consul::LEASE), delayed::<Consul>(&url)]
        };
        let _guards = locks.each_ref().map(|lock| lock.lock().unwrap());
        hold_for_good();
    }
}

/// Shows: G4, L3.
fn a_killed_process_keeps_nobody_out_for_long<V: ConsensusStore>() {
    let servers = V::start(1);
    let url = servers.url("a");
    let holder = holder(&url);
    let lock = lock::<V>(&url, V::LEASE);
    assert!(lock.try_lock().unwrap().is_none());
    drop(holder);
    lock.lock().unwrap().unlock().unwrap();
}

/// Shows: G4, L3.
fn a_lock_delay_keeps_others_out_for_longer_after_a_death_alone<V: ConsensusStore>() {
    let servers = V::start(1);
    let url = servers.url("a");
    let holder = holder(&url);
    let (inside, order) = unbounded();
    let locks = [lock::<V>(&url, V::LEASE), delayed::<V>(&url)];
    let waiters: Vec<_> = locks
        .iter()
        .cloned()
        .enumerate()
        .map(|(place, lock)| {
            let inside = inside.clone();
            spawn(move || {
                let guard = lock.lock().unwrap();
                inside.send(place).unwrap();
                guard.unlock().unwrap();
            })
        })
        .collect();
    let processor = V::processor(&url);
    let waiting = |lock: &DistributedReentrantLock| processor.inspect(lock.key(), LONG).unwrap().waiting == 1;
    eventually("both wait in the store", || locks.iter().all(waiting));
    drop(holder);
    waiters.into_iter().for_each(Member::join);
    assert_eq!([order.recv().unwrap(), order.recv().unwrap()], [0, 1]);
    // After an orderly release nobody waits for it.
    let [first, second] = [(); 2].map(|()| delayed::<V>(&url));
    first.lock().unwrap().unlock().unwrap();
    second.try_lock().unwrap().expect("it is free").unlock().unwrap();
}

/// Shows: G1, G4, G5.
fn a_stopped_process_has_lost_its_lock_when_it_goes_on<V: ConsensusStore>() {
    let servers = V::start(1);
    let url = servers.url("a");
    let holder = holder(&url);
    let other = lock::<V>(&url, V::LEASE);
    signal(&holder.0, Signal::STOP);
    let guard = other.lock().unwrap();
    signal(&holder.0, Signal::CONT);
    // The requests that it sends now are of a session that has ended.
    std::thread::sleep(2 * V::LEASE);
    assert!(guard.is_valid());
    guard.unlock().unwrap();
}

/// Shows: G5.
fn a_holder_is_told_by_its_own_deadline_while_no_server_answers<V: ConsensusStore>() {
    let mut servers = V::start(1);
    let lock = lock::<V>(&servers.url("a"), V::LEASE);
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    servers.servers()[0].signal(Signal::STOP);
    lost.recv_timeout(LONG).expect("told of the loss");
    assert!(matches!(guard.loss(), Some(loss) if loss.cause == LossCause::Deadline));
    servers.servers()[0].signal(Signal::CONT);
    assert!(guard.unlock().is_err());
    lock.lock().unwrap().unlock().unwrap();
}

/// Its session would keep the others out for more than a lease.
///
/// Shows: L1.
fn a_waiter_that_is_killed_and_given_the_lock_is_passed_over_while_its_session_lives<V: ConsensusStore>() {
    on_a_running_machine(STALL, || {
        let servers = V::start(1);
        behind_a_waiter_that(&servers, Signal::KILL).1.release().unwrap();
    });
}

/// It takes itself for no holder when it goes on, and has the lock in the end.
///
/// Shows: G1, L1.
fn a_waiter_that_stands_still_and_is_given_the_lock_loses_its_turn_and_no_hold<V: ConsensusStore>() {
    on_a_running_machine(STALL, || {
        let servers = V::start(1);
        let (mut waiter, hold) = behind_a_waiter_that(&servers, Signal::STOP);
        signal(&waiter.0.0, Signal::CONT);
        let processor = V::processor(&servers.url("a"));
        let key = lock::<V>(&servers.url("a"), LONG).key().to_owned();
        eventually("it waits anew", || processor.inspect(&key, LONG).unwrap().waiting == 1);
        assert!(hold.is_valid());
        hold.release().unwrap();
        waiter.holds();
    });
}

/// A request that had no answer may be executed later. The end of its session is its end, too.
///
/// Shows: L1, L4.
fn an_attempt_without_an_answer_leaves_no_lock<V: ConsensusStore>() {
    let mut servers = V::start(1);
    let url = servers.url("a");
    let first = lock::<V>(&url, LONG);
    // So that there is a connection and a session.
    first.lock().unwrap().unlock().unwrap();
    servers.servers()[0].signal(Signal::STOP);
    let failed = first.try_lock_for(Duration::from_millis(500)).unwrap_err();
    assert!(matches!(failed, Error::Backend { failure: BackendFailure::Unknown, .. }), "{failed}");
    servers.servers()[0].signal(Signal::CONT);
    // Its lease is a minute long, and nobody waits for that.
    let other = lock::<V>(&url, LONG);
    other.try_lock_for(LONG / 4).unwrap().expect("the lock is free").unlock().unwrap();
}

/// Shows: L6.
fn a_client_closes_while_its_inbox_opens_without_an_answer<V: ConsensusStore>() {
    let (servers, counter, url) = counted::<V>("a");
    let ((begins, begun), (answer, no_answer)) = (unbounded(), unbounded::<()>());
    counter.before(if V::NAME == Etcd::NAME { "/v3/watch" } else { "/v1/kv/a/.inbox/" }, move || {
        begins.send(()).unwrap();
        no_answer.recv().unwrap_err();
    });
    let _hold = lock::<V>(&servers.url("a"), LONG).hold().unwrap();
    let generator = DLockGenerator::new(V::processor(&url)).unwrap();
    let waits = generator.generate_with(DLockConfig::new("STORES", "x").with_lease(LONG)).unwrap();
    let waiter = spawn(move || waits.lock().map(drop));
    begun.recv().unwrap();
    spawn(move || generator.close()).join();
    assert!(matches!(waiter.join(), Err(Error::ShutDown)));
    drop(answer);
}

/// etcd checks its quota when it takes a transaction, and again when it executes it. Then it has the same error for what it has executed.
///
/// Shows: L1, S6.
#[test]
fn an_attempt_at_an_etcd_that_is_out_of_space_leaves_no_lock() {
    let (_servers, counter, url) = counted::<Etcd>("a");
    let processor = Etcd::processor(&url);
    let body = r#"{"error":"etcdserver: mvcc: database space exceeded","code":8}"#;
    let head = format!("HTTP/1.1 429 Too Many Requests\r\ncontent-length: {}\r\n\r\n", body.len());
    counter.answer("/v3/kv/txn", head + body);
    let claim = Claim::new("k", "h-1-ff", "h-1-ff-1", LONG);
    let failed = processor.acquire(&claim, LONG).unwrap_err();
    assert!(failed.to_string().contains("space exceeded"), "{failed}");
    let holder = || processor.inspect("k", LONG).unwrap().holder;
    assert_eq!(holder().as_deref(), Some(claim.locker));
    assert!(matches!(failed, Error::Backend { failure: BackendFailure::Unknown, .. }), "{failed}");
    processor.settle(&claim, LONG).unwrap();
    assert_eq!(holder(), None);
}

/// Shows: G1, G2.
fn a_lock_survives_a_restart_of_the_only_server<V: ConsensusStore>() {
    let mut servers = V::start(1);
    let url = servers.url("a");
    let lock = lock::<V>(&url, Duration::from_secs(20));
    let guard = lock.lock().unwrap();
    let token = guard.fencing_token();
    servers.servers()[0].kill();
    servers.servers()[0].restart();
    let processor = V::processor(&url);
    let found = processor.inspect(lock.key(), LONG).unwrap();
    assert!(found.holder.is_some());
    assert!(guard.is_valid());
    guard.unlock().unwrap();
    let guard = lock.lock().unwrap();
    assert!(guard.fencing_token() > token);
    guard.unlock().unwrap();
}

/// Shows: G1, G2, G3, G8.
fn a_lock_survives_the_death_and_the_stop_of_the_leader_of_three_servers<V: ConsensusStore>() {
    let mut servers = V::start(3);
    let url = servers.url("a");
    let (held, other) = (lock::<V>(&url, V::LONG_LEASE), lock::<V>(&url, V::LONG_LEASE));
    let many = many::<V>(&url);
    let guards: Vec<_> = many.iter().map(|lock| lock.lock().unwrap()).collect();
    let mut last = 0;
    for is_killed in [true, false] {
        let guard = held.lock().unwrap();
        assert!(guard.fencing_token() > last);
        last = guard.fencing_token();
        let waiting = other.clone();
        let waiter = spawn(move || {
            let guard = waiting.lock().unwrap();
            let token = guard.fencing_token();
            guard.unlock().unwrap();
            token
        });
        let processor = V::processor(&url);
        eventually("it waits in the store", || {
            processor.inspect(held.key(), LONG).is_ok_and(|found| found.waiting == 1)
        });
        let leader = servers.leader();
        if is_killed {
            servers.servers()[leader].kill();
            let killed = Instant::now();
            // A server may hold a request for the dead one for seconds.
            let limit = Duration::from_millis(500);
            let written = || processor.acquire(&Claim::new("k", "h-1-ff", "h-1-ff-1", V::LONG_LEASE), limit).is_ok();
            eventually("another leader writes", written);
            let figure = format!("{}: another leader wrote after {:.1} s\n", V::NAME, killed.elapsed().as_secs_f64());
            std::io::stdout().write_all(figure.as_bytes()).unwrap();
        } else {
            servers.servers()[leader].signal(Signal::STOP);
        }
        // For longer than the lease: it is renewed by the next leader.
        std::thread::sleep(V::LONG_LEASE + V::LONG_LEASE / 2);
        assert!(guard.is_valid(), "{:?}", guard.loss());
        assert!(guards.iter().all(DLockGuard::is_valid));
        guard.unlock().unwrap();
        let token = waiter.join();
        assert!(token > last);
        last = token;
        if is_killed {
            servers.servers()[leader].restart();
        } else {
            servers.servers()[leader].signal(Signal::CONT);
        }
    }
}

/// The server that a client asks first hangs. Its renewals reach the others in time.
///
/// Shows: G3.
fn a_server_that_hangs_costs_no_lease_while_the_others_answer<V: ConsensusStore>() {
    let mut servers = V::start(3);
    let follower = (servers.leader() + 1) % 3;
    let mut ports = servers.ports();
    ports.rotate_left(follower);
    let url = servers.url_by(&ports, "a");
    let lock = lock::<V>(&url, V::LONG_LEASE);
    let many = many::<V>(&url);
    let guards: Vec<_> = many.iter().map(|lock| lock.lock().unwrap()).collect();
    for _ in 0..2 {
        let guard = lock.lock().unwrap();
        servers.servers()[follower].signal(Signal::STOP);
        std::thread::sleep(V::LONG_LEASE + V::LONG_LEASE / 2);
        assert!(guard.is_valid(), "{:?}", guard.loss());
        assert!(guards.iter().all(DLockGuard::is_valid));
        guard.unlock().unwrap();
        servers.servers()[follower].signal(Signal::CONT);
    }
}
