//! What becomes of a lock between processes while the server refuses one command, and after it.

use super::commands;
use crate::support::crew::{Member, eventually, spawn};
use crate::support::{LONG, RedisServer};
use parking_lot::Mutex;
use redis_dlock::{DLockConfig, DLockGenerator, DistributedReentrantLock, Error, RedisLockProcessor};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Waiters ask again after a tenth and then after each sixth of it. Longer than [`eventually`] waits: nobody may wait for its end.
const LEASE: Duration = Duration::from_secs(30);

/// How long a command is refused.
const REFUSED: Duration = Duration::from_millis(60);

/// What the threads of a test have seen.
#[derive(Default)]
struct Seen {
    inside: AtomicBool,
    overlaps: AtomicU64,
    holds: [AtomicU64; 4],
    losses: Mutex<Vec<String>>,
    over: AtomicBool,
}

fn client(server: &RedisServer, user: &str, seen: &Arc<Seen>) -> DLockGenerator {
    let url = server.url().replace("//", &format!("//{user}:p@"));
    let losses = Arc::clone(seen);
    DLockGenerator::builder()
        .on_lost(move |loss| losses.losses.lock().push(loss.to_string()))
        .build(RedisLockProcessor::connect(&url).unwrap())
        .unwrap()
}

/// A thread that locks and unlocks until it is told to stop.
fn worker(lock: DistributedReentrantLock, seen: &Arc<Seen>, place: usize) -> Member<()> {
    let seen = Arc::clone(seen);
    spawn(move || {
        while !seen.over.load(Ordering::SeqCst) {
            match lock.lock() {
                Ok(guard) => {
                    if seen.inside.swap(true, Ordering::SeqCst) {
                        seen.overlaps.fetch_add(1, Ordering::SeqCst);
                    }
                    seen.inside.store(false, Ordering::SeqCst);
                    seen.holds[place].fetch_add(1, Ordering::SeqCst);
                    if let Err(Error::LeaseLost(loss)) = guard.unlock() {
                        seen.losses.lock().push(loss.to_string());
                    }
                }
                Err(_) => thread::sleep(Duration::from_millis(2)),
            }
        }
    })
}

/// One lock, two processes with two threads each, and a command that is refused for a while.
fn refuse(server: &RedisServer, command: &str) {
    let user = format!("without-{command}");
    let set = |sign: &str| {
        let right = format!("{sign}{command}");
        server.run::<()>(&["ACL", "SETUSER", &user, "on", ">p", "~*", "&*", "+@all", &right]);
    };
    set("+");
    let seen = Arc::new(Seen::default());
    let clients = [(); 2].map(|()| client(server, &user, &seen));
    let lock =
        |place: usize| clients[place % 2].generate_with(DLockConfig::new("DENIED", command).with_lease(LEASE)).unwrap();
    let workers = [0, 1, 2, 3].map(|place| worker(lock(place), &seen, place));
    let all_have = |more: u64| {
        let wanted = seen.holds.each_ref().map(|holds| holds.load(Ordering::SeqCst) + more);
        eventually(command, || {
            seen.holds.iter().zip(wanted).all(|(holds, wanted)| holds.load(Ordering::SeqCst) >= wanted)
        });
    };
    all_have(3);
    set("-");
    thread::sleep(REFUSED);
    set("+");
    all_have(2);
    seen.over.store(true, Ordering::SeqCst);
    workers.into_iter().for_each(Member::join);
    assert_eq!(*seen.losses.lock(), [""; 0], "{command}: a lease was lost");
    assert_eq!(seen.overlaps.load(Ordering::SeqCst), 0, "{command}: two were inside");
    clients.iter().for_each(DLockGenerator::close);
    let free = lock_is_free(server, command);
    assert!(free, "{command}: held or waited for by nobody");
}

/// Whether nothing is left of the lock, now or soon: the last clean-up may be under way.
fn lock_is_free(server: &RedisServer, target: &str) -> bool {
    let end = Instant::now() + LONG;
    loop {
        let held: Vec<String> = server.run(&["KEYS", &format!("DLOCK*DENIED_{target}")]);
        if held.is_empty() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Shows: G3, L1.
#[test]
fn a_command_that_is_refused_for_a_while_costs_no_lease_and_no_loss() {
    let server = Arc::new(RedisServer::start());
    let tries: Vec<_> = commands()
        .into_iter()
        .map(|command| {
            let server = Arc::clone(&server);
            spawn(move || refuse(&server, &command))
        })
        .collect();
    tries.into_iter().for_each(Member::join);
}
