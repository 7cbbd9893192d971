//! A worker process: clients, and threads of them that wait for the lock and hold it, as they are told.
//!
//! Clients are made as they are named. Their clock is ahead by what a file says, so it can be moved while the process is stopped. Threads that sleep do
//! not notice.
//!
//! | order | does | answers |
//! |---|---|---|
//! | `lock NAME CLIENT LEASE TARGET` | starts a thread that locks with this lease (ms) | `NAME held TOKEN BEGIN VALID REMAINING` |
//! | `unlock NAME` | lets it unlock | `NAME free END OUTCOME` |
//! | `waiting CLIENT` | counts the threads that wait in a client | `waiting N` |
//! | `contend CLIENTS THREADS ROUNDS LEASE HOLD` | starts so many threads in each client that lock with this lease (ms), hold (µs) and unlock in a loop, for ever if `ROUNDS` is 0 | |
//! | `count` | counts the holds of all those threads | `count N` |
//! | `finish` | ends loops without end, and waits for all | `hold …` for each hold that was valid at its end, then `finished` |

use super::scene::{self, HOUR};
use crate::support::history::Hold;
use crate::support::worker;
use crossbeam_channel::{Receiver, Sender, bounded};
use redis_dlock::{Clock, DLockConfig, DLockGenerator, DistributedReentrantLock, Error, Moment, SystemClock};
use std::collections::HashMap;
use std::env;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The variable that names the file of the clock.
pub(super) const CLOCK: &str = "DLOCK_TEST_CLOCK";

#[test]
#[ignore = "the worker process of the tests beside it"]
fn play() {
    let Some(url) = worker::settings() else { return };
    let clock = Arc::new(FastClock(File::open(env::var(CLOCK).unwrap()).unwrap()));
    let mut stage = Stage {
        url,
        clients: Vec::new(),
        threads: HashMap::new(),
        contenders: Vec::new(),
        contest: Arc::default(),
        clock,
    };
    for order in worker::orders() {
        let words: Vec<_> = order.split(' ').collect();
        stage.follow(&words);
    }
}

struct Stage {
    url: String,
    clients: Vec<DLockGenerator>,
    /// By name: how to let a thread unlock.
    threads: HashMap<String, Sender<()>>,
    contenders: Vec<JoinHandle<Vec<Hold>>>,
    contest: Arc<Contest>,
    clock: Arc<FastClock>,
}

/// The system's clock, ahead of itself by the nanoseconds in the file. Times that are told to the test are the system's.
#[derive(Debug)]
struct FastClock(File);

impl Clock for FastClock {
    fn now(&self) -> Moment {
        let mut ahead = [0; 8];
        self.0.read_exact_at(&mut ahead, 0).unwrap();
        SystemClock.now() + Duration::from_nanos(u64::from_ne_bytes(ahead))
    }
}

#[derive(Default)]
struct Contest {
    is_over: AtomicBool,
    holds: AtomicUsize,
}

impl Stage {
    fn follow(&mut self, words: &[&str]) {
        match *words {
            ["lock", name, client, lease, target] => {
                let client: usize = client.parse().unwrap();
                self.make(client + 1);
                let lease = Duration::from_millis(lease.parse().unwrap());
                let config = DLockConfig::new(scene::TYPE, target).with_lease(lease);
                let lock = self.clients[client].generate_with(config).unwrap();
                self.lock(name.to_owned(), lock);
            }
            ["unlock", name] => self.threads[name].send(()).unwrap(),
            ["waiting", client] => {
                let lock = scene::lock(&self.clients[client.parse::<usize>().unwrap()], HOUR);
                worker::answer(&format!("waiting {}", lock.queue_length()));
            }
            ["contend", clients, threads, rounds, lease, hold] => {
                let [clients, threads, rounds] = [clients, threads, rounds].map(|number| number.parse().unwrap());
                let lease = Duration::from_millis(lease.parse().unwrap());
                self.make(clients);
                for thread in 0..clients * threads {
                    let lock = scene::lock(&self.clients[thread / threads], lease);
                    let (contest, hold) = (Arc::clone(&self.contest), Duration::from_micros(hold.parse().unwrap()));
                    let work = move || contend(&lock, &contest, thread, rounds, hold);
                    self.contenders.push(thread::spawn(work));
                }
            }
            ["count"] => worker::answer(&format!("count {}", self.contest.holds.load(Ordering::SeqCst))),
            ["finish"] => {
                self.contest.is_over.store(true, Ordering::SeqCst);
                for hold in self.contenders.drain(..).flat_map(|contender| contender.join().unwrap()) {
                    worker::answer(&format!("hold {hold}"));
                }
                worker::answer("finished");
            }
            _ => panic!("{words:?}"),
        }
    }

    fn make(&mut self, clients: usize) {
        while self.clients.len() < clients {
            let clock = Arc::clone(&self.clock);
            self.clients.push(scene::builder().clock(clock).build(scene::processor(&self.url)).unwrap());
        }
    }

    fn lock(&mut self, name: String, lock: DistributedReentrantLock) {
        let (unlock, told) = bounded(1);
        self.threads.insert(name.clone(), unlock);
        let work = {
            let name = name.clone();
            move || hold(&name, &lock, &told)
        };
        // By its name its wake-ups are found.
        thread::Builder::new().name(name).spawn(work).unwrap();
    }
}

fn hold(name: &str, lock: &DistributedReentrantLock, told: &Receiver<()>) {
    let guard = lock.lock().unwrap();
    let begin = SystemClock.now().as_nanos();
    let (valid, remaining) = (guard.is_valid(), guard.remaining().as_millis());
    worker::answer(&format!("{name} held {} {begin} {valid} {remaining}", guard.fencing_token()));
    if told.recv().is_err() {
        return;
    }
    let end = SystemClock.now().as_nanos();
    let outcome = guard.unlock().map_or_else(|error| error.to_string(), |()| "fine".to_owned());
    worker::answer(&format!("{name} free {end} {outcome}"));
}

fn contend(
    lock: &DistributedReentrantLock,
    contest: &Contest,
    thread: usize,
    rounds: usize,
    hold: Duration,
) -> Vec<Hold> {
    let mut holds = Vec::new();
    while if rounds == 0 { !contest.is_over.load(Ordering::SeqCst) } else { holds.len() < rounds } {
        let asked = SystemClock.now();
        let guard = lock.lock().unwrap();
        let (begin, token) = (SystemClock.now(), guard.fencing_token());
        contest.holds.fetch_add(1, Ordering::SeqCst);
        if !hold.is_zero() {
            thread::sleep(hold);
        }
        let end = SystemClock.now();
        // Who is stopped may have lost it, and may say nothing of a hold then.
        if guard.is_valid() {
            holds.push(Hold { process: 0, thread, token, asked, begin, end });
        }
        match guard.unlock() {
            Ok(()) | Err(Error::LeaseLost(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
    holds
}
