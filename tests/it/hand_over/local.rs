//! Threads of one process pass the lock on among themselves, and the server hears nothing of it; when another process waits,
//! one call gives it the lock and stands this one in the queue again.

use super::actor::{Actor, Contest};
use super::scene::{HOUR, KEY, builder, client, config, holder, lock, queue, start};
use crate::support::RedisServer;
use crate::support::commands::Commands;
use crate::support::crew::{Member, eventually, spawn, spawn_with};
use crate::support::history::{Hold, exclusive};
use crate::support::monitor::Monitor;
use crate::support::watched::{Kind, Watch, Watched, When};
use parking_lot::Mutex;
use redis_dlock::{Clock, DLockGenerator, DistributedReentrantLock, RedisLockProcessor, SystemClock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// A client in this process that listens already, and what it asks of the server.
fn watched(server: &RedisServer) -> (DLockGenerator, Arc<Watch>) {
    let (processor, watch) = Watched::new(Arc::new(RedisLockProcessor::connect(&server.url()).unwrap()));
    let client = builder().build(processor).unwrap();
    // Whoever begins to listen takes others to wait, for it may have missed the word.
    let lock = client.generate("HAND", "first").unwrap();
    let guard = lock.lock().unwrap();
    let waiter = spawn_with(&lock, |other| drop(other.lock().unwrap()));
    eventually("it listens", || watch.listening() == 1);
    guard.unlock().unwrap();
    waiter.join();
    (client, watch)
}

/// Holds in a row, each passed on to a thread that waits.
#[derive(Default)]
struct Chain {
    tokens: Mutex<Vec<u64>>,
    /// Threads that want no more.
    gone: AtomicUsize,
}

impl Chain {
    const THREADS: usize = 4;
    const HOLDS: usize = 3000;

    fn work(&self, lock: &DistributedReentrantLock) {
        while self.tokens.lock().len() < Self::HOLDS {
            let guard = lock.lock().unwrap();
            let holds = {
                let mut tokens = self.tokens.lock();
                tokens.push(guard.fencing_token());
                tokens.len()
            };
            // Somebody is to take it on; at last all who still want it.
            let is_wanted = || match holds {
                ..Self::HOLDS => lock.queue_length() > 0,
                _ => lock.queue_length() + self.gone.load(Ordering::SeqCst) == Self::THREADS - 1,
            };
            while !is_wanted() {
                thread::yield_now();
            }
            guard.unlock().unwrap();
        }
        self.gone.fetch_add(1, Ordering::SeqCst);
    }
}

/// Shows: G7.
#[test]
fn three_thousand_holds_inside_a_process_are_one_command_for_numbers() {
    let server = start();
    let (here, _) = watched(&server);
    let lock = lock(&here, HOUR);
    let chain = Arc::new(Chain::default());
    let guard = lock.lock().unwrap();
    chain.tokens.lock().push(guard.fencing_token());
    let member = |_| {
        let (lock, chain) = (lock.clone(), Arc::clone(&chain));
        spawn(move || chain.work(&lock))
    };
    let crew: Vec<_> = (0..Chain::THREADS).map(member).collect();
    eventually("all wait", || lock.queue_length() == Chain::THREADS);
    Commands::forget(&server);
    guard.unlock().unwrap();
    crew.into_iter().for_each(Member::join);
    let calls = Commands::of(&server);
    let tokens = chain.tokens.lock();
    assert!(tokens.len() >= Chain::HOLDS && tokens.is_sorted_by(|a, b| a < b), "{} tokens that rise", tokens.len());
    assert_eq!(tokens[1023], tokens[0] + 1023, "a number is good for 1024 holds");
    // One for numbers, which are enough for the other holds, and the release at the end. Numbers are asked for twice if the client's
    // last answer is more than a second old, as on a busy machine: then the first command reserves one number, and proves the fence.
    let for_numbers = calls.count("pexpire");
    assert!((1..=2).contains(&for_numbers), "{calls:?}");
    assert_eq!((calls.count("evalsha"), calls.count("del")), (for_numbers + 1, 1), "{calls:?}");
    assert_eq!(holder(&server), None);
}

/// Shows: G1, G8, G10, L4.
#[test]
fn a_process_that_waits_is_served_after_so_many_more_holds_and_by_one_command() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 60;
    let server = start();
    let (here, watch) = watched(&server);
    let lock = lock(&here, HOUR);
    let mut other = Actor::start(&server.url());
    let guard = lock.lock().unwrap();
    let (book, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let crew: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (lock, book, is_over) = (lock.clone(), Arc::clone(&book), Arc::clone(&is_over));
            spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let asked = SystemClock.now();
                    let guard = lock.lock().unwrap();
                    let (begin, token) = (SystemClock.now(), guard.fencing_token());
                    thread::sleep(Duration::from_micros(200));
                    book.lock().push(Hold { process: 0, thread, token, asked, begin, end: SystemClock.now() });
                    guard.unlock().unwrap();
                }
            })
        })
        .collect();
    eventually("all threads wait", || lock.queue_length() == THREADS);
    other.contend(&Contest { clients: 1, threads: 1, rounds: ROUNDS, lease: HOUR, hold: Duration::from_micros(200) });
    eventually("the other process waits", || queue(&server).len() == 1);
    Commands::forget(&server);
    let asked_before = watch.count();
    guard.unlock().unwrap();
    other.finish();
    let theirs = other.holds(1);
    let calls = Commands::of(&server);
    let asked = watch.calls()[asked_before..].to_vec();
    is_over.store(true, Ordering::SeqCst);
    crew.into_iter().for_each(Member::join);

    // Its first acquire came before. Each of its holds is that, its release, and one command of this process. This one may
    // have fetched numbers, if the other was slow to ask again.
    let of = |kind| asked.iter().filter(|call| call.kind == kind).count();
    assert_eq!((of(Kind::Release), of(Kind::Question)), (ROUNDS, 0), "{asked:?}");
    assert_eq!(calls.count("evalsha"), (3 * ROUNDS - 1 + of(Kind::Extend)) as u64, "{calls:?}");

    let ours = book.lock().clone();
    let mut between: Vec<_> = theirs
        .iter()
        .skip(1)
        .map(|hold| ours.iter().filter(|mine| hold.asked < mine.begin && mine.begin < hold.begin).count())
        .collect();
    between.sort_unstable();
    eprintln!("holds here between the asking and the hold of the other process: {between:?}");
    exclusive([theirs, ours].concat());
    // 16 passes when it is heard that somebody waits; what happens on the way there is not counted by anybody.
    assert!(between[between.len() / 2] <= 18, "{between:?}");
}

/// Shows: G7, G11, L2.
#[test]
fn a_release_with_a_next_locker_whose_reply_is_lost_hands_over_once() {
    let server = start();
    let (here, watch) = watched(&server);
    let here = here.generate_with(config(HOUR).with_local_passes(0)).unwrap();
    let first = client(&server.url());
    let first = lock(&first, HOUR);
    let mut other = Actor::start(&server.url());
    let guard = first.lock().unwrap();
    // Two threads here, the other process behind them.
    let crew = [1, 2].map(|place| {
        let (lock, (tell, told)) = (here.clone(), crossbeam_channel::bounded(0));
        let member = spawn(move || {
            let guard = lock.lock().unwrap();
            told.recv().unwrap();
            (guard.fencing_token(), guard.unlock())
        });
        eventually("it waits", || here.queue_length() == place && queue(&server).len() == 1);
        (member, tell)
    });
    other.lock("waiter", 0, HOUR);
    eventually("the other process waits", || queue(&server).len() == 2);
    let monitor = Monitor::start(&server);
    guard.unlock().unwrap();
    let [(one, end_one), (two, end_two)] = crew;
    eventually("the first thread has it", || here.queue_length() == 1);
    watch.lose_next_answer(Kind::Release);
    let poll = watch.stop_next(Kind::Poll, When::Coming);
    end_one.send(()).unwrap();
    let held = other.held("waiter");
    let (token, outcome) = one.join();
    assert!(outcome.is_ok(), "it was released, whatever was heard of it: {outcome:?}");
    assert!(held.valid && held.token > token);
    assert_eq!(queue(&server).len(), 1, "this process waits once");
    // It asks for the place of its next locker. An answer that told of the grant before the message does would have that grant released twice.
    poll.wait();
    poll.open();
    other.unlock("waiter");
    end_two.send(()).unwrap();
    let (last, outcome) = two.join();
    assert!(outcome.is_ok() && last > held.token, "{outcome:?}");
    assert_eq!((holder(&server), queue(&server)), (None, Vec::new()));

    let releases = watch.calls_of(Kind::Release).into_iter().filter(|call| call.key == KEY);
    let releases: Vec<_> = releases.map(|call| call.locker).collect();
    assert_eq!(releases.len(), 3, "{releases:?}");
    assert!(releases[0] == releases[1] && releases[1] != releases[2], "the lost one twice: {releases:?}");
    let executed = monitor.stop(&server);
    let by_scripts: Vec<_> = executed
        .iter()
        .filter(|done| done.by_script)
        .map(|done| done.words.iter().map(String::as_str).collect())
        .collect();
    let given = by_scripts.iter().filter(|words: &&Vec<_>| words.starts_with(&["set", KEY])).count();
    let queued = by_scripts.iter().filter(|words| words.starts_with(&["rpush"])).count();
    assert_eq!((given, queued), (3, 1), "to the first thread, the other process and the second thread: {by_scripts:?}");
}
