//! Nobody wakes who is not given the lock: while it goes round among others, the threads that wait for it sleep, and so do
//! the listeners of their clients.
//!
//! The operating system counts how often a thread goes to sleep; one that is woken in vain goes to sleep once more.

use super::actor::Actor;
use super::scene::{HOUR, client, lock, queue, start};
use crate::support::RedisServer;
use crate::support::commands::Commands;
use crate::support::crew::eventually;
use crate::support::process::{Task, tasks};
use std::thread;
use std::time::Duration;

/// Long enough for whoever is woken to go to sleep again.
const A_WHILE: Duration = Duration::from_millis(20);

/// The thread of that name in an actor.
fn task(actor: &Actor, name: &str) -> Task {
    tasks(actor.pid()).into_iter().find(|task| task.name == name).unwrap()
}

fn listeners(actor: &Actor) -> Vec<Task> {
    tasks(actor.pid()).into_iter().filter(|task| task.name == "dlock-listen").collect()
}

/// How often each of them has gone to sleep, once all are quiet.
fn sleeps(tasks: &[Task]) -> Vec<u64> {
    let count = || tasks.iter().map(Task::sleeps).collect::<Vec<_>>();
    let mut last = count();
    eventually("all are quiet", || {
        thread::sleep(A_WHILE);
        let before = std::mem::replace(&mut last, count());
        before == last
    });
    last
}

/// How much more often than before. `None` if a listener may have asked for a sign of life meanwhile.
fn woken(server: &RedisServer, tasks: &[Task], work: impl FnOnce()) -> Option<Vec<u64>> {
    let pings = || Commands::of(server).count("ping");
    // Whatever is counted as a sleep stands between the two counts of signs of life.
    let (pings_before, before) = (pings(), sleeps(tasks));
    work();
    let after = sleeps(tasks);
    (pings() == pings_before).then(|| after.iter().zip(before).map(|(after, before)| after - before).collect())
}

#[test]
fn a_hand_over_between_clients_wakes_the_thread_and_the_listener_that_it_is_for_and_no_other() {
    const CLIENTS: usize = 8;
    let server = start();
    let here = client(&server.url());
    let here = lock(&here, HOUR);
    let mut guard = Some(here.lock().unwrap());
    let mut actors = [(); 2].map(|()| Actor::start(&server.url()));
    // In each client a thread waits first, and another one behind it.
    let (mut first, mut behind, mut ears) = (Vec::new(), Vec::new(), Vec::new());
    for place in 0..CLIENTS {
        let (actor, client) = (&mut actors[place % 2], place / 2);
        let others = listeners(actor);
        actor.lock(&format!("first{place}"), client, HOUR);
        eventually("it stands in the queue", || queue(&server).len() == place + 1);
        actor.lock(&format!("behind{place}"), client, HOUR);
        eventually("both wait", || actor.waiting(client) == 2);
        first.push(task(actor, &format!("first{place}")));
        behind.push(task(actor, &format!("behind{place}")));
        // A thread that a listener starts, to connect, has its name for a moment.
        let mut new = Vec::new();
        eventually("a listener each", || {
            new = listeners(actor).into_iter().filter(|ear| !others.contains(ear)).collect();
            new.len() == 1
        });
        ears.append(&mut new);
    }

    let mut seen = 0;
    for place in 0..CLIENTS {
        let others = [&first[place + 1..], &behind, &ears[..place], &ears[place + 1..]].concat();
        let woken = woken(&server, &others, || {
            let slept = sleeps(&ears[place..=place])[0];
            match guard.take() {
                Some(guard) => guard.unlock().unwrap(),
                // It has had the lock for more than 10 ms, so the thread behind the first has to wait for its client's next turn.
                None => drop(actors[(place - 1) % 2].unlock(&format!("first{}", place - 1))),
            }
            actors[place % 2].held(&format!("first{place}"));
            eventually("its listener has heard of it, and sleeps again", || ears[place].sleeps() > slept);
        });
        let Some(woken) = woken else { continue };
        seen += 1;
        assert_eq!(woken, vec![0; others.len()], "{place}: {others:?}");
    }
    assert!(seen > CLIENTS / 2, "too many signs of life");
}

#[test]
fn a_hold_that_is_passed_on_inside_a_process_wakes_the_thread_that_it_is_for_and_no_other() {
    const THREADS: usize = 8;
    let server = start();
    let mut actor = Actor::start(&server.url());
    actor.lock("waiter0", 0, HOUR);
    actor.held("waiter0");
    for place in 1..THREADS {
        actor.lock(&format!("waiter{place}"), 0, HOUR);
        eventually("it waits", || actor.waiting(0) == place);
    }
    let threads: Vec<_> = (0..THREADS).map(|place| task(&actor, &format!("waiter{place}"))).collect();
    let workers: Vec<_> = tasks(actor.pid()).into_iter().filter(|task| task.name.starts_with("dlock-")).collect();
    let mut seen = 0;
    for place in 1..THREADS {
        let tasks = [&threads[place + 1..], &workers].concat();
        let woken = woken(&server, &tasks, || {
            actor.unlock(&format!("waiter{}", place - 1));
            actor.held(&format!("waiter{place}"));
        });
        let Some(woken) = woken else { continue };
        seen += 1;
        assert_eq!(woken, vec![0; tasks.len()], "{place}: {tasks:?}");
    }
    assert!(seen > THREADS / 2, "too many signs of life");
}
