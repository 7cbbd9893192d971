//! Beside `consul lock`, on one key.

use crate::consensus::{ConsensusStore, Consul, Counter, Look, Quorum, counted_url, program};
use crate::support::crew::{eventually, spawn};
use redis_dlock::port::Operations;
use redis_dlock::{BreakOutcome, DLockConfig, DLockGenerator, DistributedReentrantLock, LockProcessor};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Runs a command under the lock of `consul lock`.
fn consul_lock(servers: &Consul, arguments: &[&str], command: &str) -> Child {
    Command::new(program::<Consul>())
        .args(["lock", &format!("-http-addr={}", servers.address())])
        .args(arguments)
        .args(["team/DLOCK_BESIDE_x", command])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The same, once it has the lock. Also what its command says first.
fn inside(servers: &Consul, command: &str) -> (Child, String) {
    let mut other = consul_lock(servers, &[], &format!("{command}; exec sleep 100"));
    let mut told = String::new();
    BufReader::new(other.stdout.as_mut().unwrap()).read_line(&mut told).unwrap();
    (other, told.trim_end().to_owned())
}

/// It ends its command when it is told to, and gives the lock back.
fn end(mut other: Child) {
    kill_process(Pid::from_child(&other), Signal::TERM).unwrap();
    other.wait().unwrap();
}

fn lock(url: &str) -> DistributedReentrantLock {
    let generator = DLockGenerator::new(Consul::processor(url)).unwrap();
    generator.generate_with(DLockConfig::new("BESIDE", "x").with_lease(Duration::from_secs(10))).unwrap()
}

/// Shows: G1.
#[test]
fn consul_lock_and_this_crate_exclude_each_other() {
    let servers = Consul::start(1);
    let lock = lock(&servers.url("team"));
    for _ in 0..2 {
        let guard = lock.lock().unwrap();
        let mut other = consul_lock(&servers, &["-try=1s"], "true");
        assert!(!other.wait().unwrap().success(), "it does not get the lock");
        guard.unlock().unwrap();

        let (other, _) = inside(&servers, "echo inside");
        assert!(lock.try_lock().unwrap().is_none());
        let waiting = lock.clone();
        let waiter = std::thread::spawn(move || waiting.lock().unwrap().unlock().unwrap());
        end(other);
        waiter.join().unwrap();
    }
}

/// All of them write the same into the entry: nothing.
#[test]
fn a_break_hits_the_consul_lock_that_was_seen_and_no_later_one() {
    let servers = Consul::start(1);
    let generator = DLockGenerator::new(Consul::processor(&servers.url("team"))).unwrap();
    let lock = generator.generate("BESIDE", "x").unwrap();
    let begins = || {
        let (other, _) = inside(&servers, "echo inside");
        (other, lock.holder().unwrap().unwrap().locker)
    };
    let (first, seen) = begins();
    end(first);
    let (second, next) = begins();
    let break_lock = |locker: &str| generator.break_lock("BESIDE", "x", locker, "it hangs").unwrap();
    assert_eq!(break_lock(&seen), BreakOutcome::NotHeldBy { holder: Some(next.clone()) });
    assert_eq!(break_lock(&next), BreakOutcome::Broken { next: None, waiting: 0 });
    end(second);
}

/// The session of a program of Go asks that nobody gets the lock for 15 s after the session's end: the lock-delay. An attempt is told no
/// meanwhile, and waiters keep their places.
///
/// Shows: G1, L1.
#[test]
fn who_comes_after_a_killed_consul_lock_waits_for_its_lock_delay() {
    /// The requests of an attempt: a session, the transaction, the queue. It does not try again and again.
    const MOST: u64 = 8;
    let servers = Consul::start(1);
    let counter = Counter::to(servers.address());
    let (mut other, child) = inside(&servers, "echo $$");
    let url = servers.url("team");
    let (first, second) = (lock(&url), lock(&url));
    let look = servers.look_at(&format!("team/{}/.lock", first.key()));
    let Some(Look::Held { session, .. }) = look() else { panic!("nobody holds the lock") };
    let is_inside = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = first.lock().unwrap();
            is_inside.store(true, Ordering::SeqCst);
            guard.unlock().unwrap();
        });
        let processor = Consul::processor(&url);
        let inspect = || processor.inspect(first.key(), processor.limits().command).unwrap();
        eventually("it waits in the store", || inspect().waiting == 1);
        other.kill().unwrap();
        other.wait().unwrap();
        kill_process(Pid::from_raw(child.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
        // As the servers do some time after the death of the program.
        servers.end_session(&session);

        let counted = lock(&counted_url(&servers, &counter, "team"));
        let before = counter.requests();
        assert!(counted.try_lock().unwrap().is_none());
        assert!(counter.requests() - before <= MOST, "{} requests", counter.requests() - before);
        assert!(second.try_lock_for(Duration::from_millis(200)).unwrap().is_none());
        let seen = inspect();
        assert!(seen.holder.is_none() && !is_inside.load(Ordering::SeqCst), "{seen:?}: the delay is not over");
        eventually("only the first waits", || inspect().waiting <= 1);
        waiter.join().unwrap();
    });
    // Nobody waits now, and the key is free: no delay is left of our own holds.
    let third = spawn(move || second.try_lock().unwrap().map(|guard| guard.unlock().unwrap()));
    assert_eq!(third.join(), Some(()));
}
