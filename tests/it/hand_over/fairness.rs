//! Processes and threads that want the lock all the time get it equally often, and one thread among many does not starve.

use super::actor::{Actor, Contest};
use super::scene::{HOUR, KEY, client, lock, queue, start};
use crate::support::RedisServer;
use crate::support::crew::eventually;
use crate::support::history::{Hold, exclusive, jain, runs};
use crate::support::monitor::{Executed, Monitor};
use std::collections::HashMap;
use std::time::Duration;

/// The default of `with_local_passes`.
const LOCAL_PASSES: usize = 16;

/// Lets processes of so many threads each contend for at least so many holds. The holds while all of them wanted the lock,
/// in order.
fn contend(server: &RedisServer, threads: &[usize], hold: Duration, holds: usize) -> Vec<Hold> {
    let mut actors: Vec<_> = threads.iter().map(|_| Actor::start(&server.url())).collect();
    let here = client(&server.url());
    let guard = lock(&here, HOUR);
    let guard = guard.lock().unwrap();
    for (actor, &threads) in actors.iter_mut().zip(threads) {
        actor.contend(&Contest { clients: 1, threads, rounds: 0, lease: HOUR, hold });
    }
    eventually("all threads wait", || {
        let waiting: Vec<_> = actors.iter_mut().map(|actor| actor.waiting(0)).collect();
        waiting == threads && queue(server).len() == threads.len()
    });
    guard.unlock().unwrap();
    eventually("so many holds", || actors.iter_mut().map(Actor::count).sum::<usize>() >= holds);
    actors.iter_mut().for_each(Actor::finish);
    let all: Vec<_> = (0..).zip(&mut actors).flat_map(|(process, actor)| actor.holds(process)).collect();
    let all = exclusive(all);
    assert!(all.len() >= holds);
    all.into_iter().take(holds).collect()
}

/// How often each of `0..number` is among them.
fn shares(holds: &[Hold], number: usize, whose: impl Fn(&Hold) -> usize) -> Vec<u64> {
    let mut shares = vec![0; number];
    holds.iter().for_each(|hold| shares[whose(hold)] += 1);
    shares
}

/// Shows: G8, L4.
#[test]
fn four_processes_of_sixteen_threads_get_like_shares_in_short_turns() {
    const PROCESSES: usize = 4;
    const THREADS: usize = 16;
    let server = start();
    let holds = contend(&server, &[THREADS; PROCESSES], Duration::ZERO, 4800);
    let by_process = shares(&holds, PROCESSES, |hold| hold.process);
    let by_thread = shares(&holds, PROCESSES * THREADS, |hold| hold.process * THREADS + hold.thread);
    let (processes, threads) = (jain(&by_process), jain(&by_thread));
    let runs = runs(&holds);
    let longest = *runs.iter().max().unwrap();
    eprintln!(
        "{} holds in {} turns, the longest of {longest}; Jain's index over processes {processes:.4}, over threads {threads:.4}; \
         {by_process:?}, {by_thread:?}",
        holds.len(),
        runs.len(),
    );
    assert!(processes >= 0.95, "{processes}: {by_process:?}");
    assert!(threads >= 0.9, "{threads}: {by_thread:?}");
    assert!(longest <= LOCAL_PASSES + 1, "{longest}: {runs:?}");
}

/// Shows: G8, L4.
#[test]
fn long_holds_end_a_turn_after_ten_milliseconds() {
    let server = start();
    let hold = Duration::from_millis(3);
    let holds = contend(&server, &[8, 1, 1, 1], hold, 140);
    let turns: Vec<_> = holds.chunk_by(|a, b| a.process == b.process).collect();
    let mut longest: Vec<_> = turns.iter().filter(|turn| turn[0].process == 0).map(|turn| turn.len()).collect();
    longest.sort_unstable();
    eprintln!("holds of 3 ms in a turn: {longest:?}");
    // Those that begin at 0, 3, 6 and 9 ms. Now and then nobody else waits when a turn begins; then it is told later.
    assert!(longest[longest.len() * 9 / 10] <= 4, "{longest:?}");
}

/// How many tenures of others began between the end of the script that put a locker into the queue and its own tenure.
fn turns_before(executed: &[Executed]) -> Vec<usize> {
    let mut tenures = 0;
    let (mut pushed, mut waiting, mut before) = (None, HashMap::new(), Vec::new());
    for done in executed {
        match &*done.words.iter().map(String::as_str).collect::<Vec<_>>() {
            _ if !done.by_script => waiting.extend(pushed.take().map(|locker| (locker, tenures))),
            // A script that hands the key over as well does that after this.
            ["rpush", _, entry] => pushed = Some(entry.split_once(' ').unwrap().1.to_owned()),
            ["set", KEY, locker, "PX", _, ..] => {
                before.extend(waiting.remove(*locker).map(|since| tenures - since));
                tenures += 1;
            }
            _ => {}
        }
    }
    before
}

/// Shows: G8.
#[test]
fn single_threads_beside_a_process_of_sixty_four_wait_for_a_turn_of_each_other_process() {
    const PROCESSES: usize = 4;
    let server = start();
    let monitor = Monitor::start(&server);
    let holds = contend(&server, &[64, 1, 1, 1], Duration::from_micros(500), 1000);
    let mut before = turns_before(&monitor.stop(&server));
    // All processes waited for a fifth one at first.
    before.drain(..PROCESSES);
    // As the server has it: whoever stands in the queue waits for the holder, whose tenure has begun, and for those before it.
    let most = before.iter().max().copied().unwrap();
    assert!(before.len() > 100 && most <= PROCESSES - 2, "{most}: {before:?}");

    // As the threads have it, from the asking on: turns of others that end in between.
    let turns: Vec<_> = holds.chunk_by(|a, b| a.process == b.process).collect();
    let mut waits: Vec<_> = turns
        .iter()
        .enumerate()
        .filter(|(_, turn)| turn[0].process > 0)
        .map(|(place, turn)| {
            turns[..place].iter().rev().take_while(|other| other.last().unwrap().end > turn[0].asked).count()
        })
        .collect();
    waits.sort_unstable();
    let at = |part: usize| waits[(waits.len() - 1) * part / 100];
    let by_process = shares(&holds, PROCESSES, |hold| hold.process);
    eprintln!(
        "{} tenures, {most} others at the most from standing in the queue on; {} waits of single threads, turns of others from \
         asking on: median {}, 95 % {}, most {}; {by_process:?}",
        before.len(),
        waits.len(),
        at(50),
        at(95),
        at(100),
    );
    assert!(at(90) < PROCESSES, "{waits:?}");
    let singles = *by_process[1..].iter().min().unwrap();
    assert!(
        singles as usize * PROCESSES * 2 > turns.len(),
        "each single thread has its part of the turns: {by_process:?}"
    );
}
