//! Processes that take several locks at once, each another choice of them: none waits for ever, no two are inside, and none starves.

use crate::support::RedisServer;
use crate::support::crew::{HANG, eventually};
use crate::support::dice::{Dice, seed};
use crate::support::history::{Hold, exclusive, jain};
use crate::support::lab::connect;
use crate::support::worker::{self, Worker};
use redis_dlock::{Clock, DLockConfig, SystemClock};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const PROCESSES: usize = 8;

/// How many locks there are, and how many of them a process takes at a time.
const LOCKS: usize = 12;
const TAKEN: usize = 4;

/// How often they take some, all together.
const ROUNDS: usize = 800;

fn config(lock: usize) -> DLockConfig {
    DLockConfig::new("SEVERAL", lock.to_string()).with_lease(Duration::from_secs(30))
}

/// Some of the locks, in any order.
fn choice(dice: &mut Dice) -> [usize; TAKEN] {
    let mut locks: Vec<_> = (0..LOCKS).collect();
    std::array::from_fn(|_| {
        let last = locks.len() as u64 - 1;
        locks.swap_remove(usize::try_from(dice.up_to(last)).unwrap())
    })
}

#[test]
#[ignore = "the worker process of the test beside it: it takes locks until it is told to end"]
fn process() {
    let Some(settings) = worker::settings() else { return };
    let words: Vec<_> = settings.split(' ').collect();
    let [url, process, seed] = words[..] else { panic!("{settings}") };
    let (process, seed): (usize, u64) = (process.parse().unwrap(), seed.parse().unwrap());
    let (generator, mut dice) = (connect(url), Dice::new(seed ^ (process as u64) << 32));
    let (count, is_over, mut holds) = (AtomicUsize::new(0), AtomicBool::new(false), Vec::new());
    let mut work = || {
        while !is_over.load(Ordering::SeqCst) {
            let choice = choice(&mut dice);
            let asked = SystemClock.now();
            let guards = generator.lock_all(choice.map(config), HANG).unwrap().expect("nobody waits so long");
            let begin = SystemClock.now();
            thread::sleep(Duration::from_micros(dice.up_to(1000)));
            let (tokens, is_dropped): (Vec<_>, _) = (guards.fencing_tokens().collect(), dice.up_to(1) == 0);
            guards.ensure_valid().unwrap();
            let end = SystemClock.now();
            if is_dropped {
                drop(guards);
            } else {
                guards.unlock().unwrap();
            }
            let hold = |(lock, token)| (lock, Hold { process, thread: 0, token, asked, begin, end });
            holds.extend(choice.into_iter().zip(tokens).map(hold));
            count.fetch_add(1, Ordering::SeqCst);
        }
    };
    let mut orders = worker::orders();
    worker::answer("ready");
    assert_eq!(orders.next().as_deref(), Some("begin"));
    thread::scope(|scope| {
        scope.spawn(&mut work);
        for order in orders.by_ref() {
            match &*order {
                "count" => worker::answer(&format!("count {}", count.load(Ordering::SeqCst))),
                "finish" => break,
                other => panic!("{other}"),
            }
        }
        is_over.store(true, Ordering::SeqCst);
    });
    generator.close();
    for (lock, hold) in holds {
        worker::answer(&format!("hold {lock} {hold}"));
    }
    worker::answer("finished");
}

/// Shows: G1, G7, G8, L1, L2.
#[test]
fn eight_processes_take_four_of_twelve_locks_again_and_again() {
    let (server, seed) = (RedisServer::start(), seed());
    let start = |process| Worker::start("several_processes::process", &format!("{} {process} {seed}", server.url()));
    let mut workers: Vec<_> = (0..PROCESSES).map(start).collect();
    workers.iter_mut().for_each(|worker| drop(worker.answer_about("ready")));
    workers.iter_mut().for_each(|worker| worker.tell("begin"));
    let mut counts = || {
        workers.iter_mut().for_each(|worker| worker.tell("count"));
        workers.iter_mut().map(|worker| worker.answer_about("count").parse().unwrap()).collect::<Vec<u64>>()
    };
    // On a busy machine, a process may need seconds for its connections. Until its inbox is open, it has no place in a queue.
    let mut first = Vec::new();
    eventually("each has begun", || {
        first = counts();
        first.iter().all(|count| *count >= 10)
    });
    let (mut shares, mut rounds) = (Vec::new(), 0);
    while rounds < ROUNDS as u64 {
        let before = rounds;
        eventually("further rounds", || {
            shares = counts().iter().zip(&first).map(|(count, first)| count - first).collect::<Vec<_>>();
            rounds = shares.iter().sum();
            rounds > before
        });
    }
    workers.iter_mut().for_each(|worker| worker.tell("finish"));
    let mut holds: Vec<Vec<Hold>> = vec![Vec::new(); LOCKS];
    for worker in &mut workers {
        loop {
            let answer = worker.answer();
            let Some(hold) = answer.strip_prefix("hold ") else { break assert_eq!(answer, "finished") };
            let (lock, hold) = hold.split_once(' ').unwrap();
            holds[lock.parse::<usize>().unwrap()].push(hold.parse().unwrap());
        }
    }
    let fairness = jain(&shares);
    eprintln!("{shares:?} rounds, Jain's index {fairness:.4}, seed {seed}");
    assert!(fairness >= 0.95, "{shares:?}");
    let counts: Vec<_> = holds.into_iter().map(|holds| exclusive(holds).len()).collect();
    assert!(counts.iter().all(|count| *count > 0) && counts.iter().sum::<usize>() >= ROUNDS * TAKEN, "{counts:?}");
    let left: Vec<String> = server.run(&["KEYS", "*"]);
    assert!(left.iter().all(|key| key.contains("fence")), "{left:?}");
}
