//! Waiters that were killed are passed over inside the releaser's script call: they cost nobody anything. They keep their places for a
//! second, and are dropped after it.

use super::actor::Actor;
use super::scene::{HOUR, client, holder, inboxes, lock, process, queue, start};
use crate::support::RedisServer;
use crate::support::commands::Commands;
use crate::support::crew::eventually;
use redis_dlock::DistributedReentrantLock;
use std::thread;
use std::time::Duration;

/// Lets a thread of each client of an actor wait; they stand in the queue one after another, behind `before`.
fn wait(server: &RedisServer, actor: &mut Actor, clients: usize, before: usize) {
    for client in 0..clients {
        actor.lock(&format!("waiter{client}"), client, HOUR);
        eventually("it stands in the queue", || queue(server).len() == before + client + 1);
    }
}

/// Kills processes, and waits until the server has seen that their sockets are closed.
fn kill<'a>(server: &RedisServer, actors: impl IntoIterator<Item = &'a mut Actor>, survivors: usize) {
    actors.into_iter().for_each(Actor::kill);
    eventually("only the living hear", || inboxes(server) == survivors);
}

/// Lets the time of those that were passed over end, and the lock be given away. The time of some may begin with that.
fn forget_the_dead(server: &RedisServer, lock: &DistributedReentrantLock) {
    for _ in 0..2 {
        server.outlast_the_unheard();
        lock.lock().unwrap().unlock().unwrap();
    }
    assert_eq!((holder(server), queue(server)), (None, Vec::new()));
}

/// Shows: G7, G10, L1.
#[test]
fn killed_waiters_before_and_behind_the_living_are_passed_over_in_one_script_call_each_time() {
    let server = start();
    let here = client(&server.url());
    let here = lock(&here, HOUR);
    let guard = here.lock().unwrap();
    let [mut dead, mut first, mut more_dead, mut second] = [(); 4].map(|()| Actor::start(&server.url()));
    wait(&server, &mut dead, 3, 0);
    wait(&server, &mut first, 1, 3);
    wait(&server, &mut more_dead, 2, 4);
    wait(&server, &mut second, 1, 6);
    kill(&server, [&mut dead, &mut more_dead], 2);
    assert_eq!(queue(&server).len(), 7, "nobody has looked at them yet");

    Commands::forget(&server);
    let token = guard.fencing_token();
    guard.unlock().unwrap();
    let held = first.held("waiter0");
    assert!(held.valid && held.token > token);
    let calls = Commands::of(&server);
    assert_eq!((calls.count("evalsha"), calls.count("eval")), (1, 0), "{calls:?}");
    assert_eq!(queue(&server).len(), 6, "those before it keep their places");

    Commands::forget(&server);
    first.unlock("waiter0");
    let next = second.held("waiter0");
    assert!(next.valid && next.token > held.token);
    let calls = Commands::of(&server);
    assert_eq!((calls.count("evalsha"), calls.count("eval")), (1, 0), "{calls:?}");
    second.unlock("waiter0");
    assert_eq!(holder(&server), None);
    forget_the_dead(&server, &here);
}

/// Shows: G10, L1.
#[test]
fn a_hundred_killed_waiters_in_a_row_are_passed_over_in_one_script_call_and_in_none_after_a_second() {
    const PROCESSES: usize = 4;
    const CLIENTS: usize = 25;
    const DEAD: u64 = (PROCESSES * CLIENTS) as u64;
    let server = start();
    let here = client(&server.url());
    let here = lock(&here, HOUR);
    let guard = here.lock().unwrap();
    let mut dead: Vec<_> = (0..PROCESSES).map(|_| Actor::start(&server.url())).collect();
    for actor in &mut dead {
        for client in 0..CLIENTS {
            actor.lock(&format!("waiter{client}"), client, HOUR);
        }
    }
    eventually("a hundred stand in the queue", || queue(&server).len() == PROCESSES * CLIENTS);
    let mut alive = Actor::start(&server.url());
    wait(&server, &mut alive, 4, PROCESSES * CLIENTS);
    kill(&server, &mut dead, 4);
    let entries = queue(&server);
    assert_eq!(entries.len(), 104);
    assert!(entries[..100].iter().all(|locker| process(locker) != alive.pid()), "they stand before it");

    let mut guard = Some(guard);
    let mut hand_over = |to: usize, looks: u64| {
        Commands::forget(&server);
        match guard.take() {
            Some(guard) => guard.unlock().unwrap(),
            None => drop(alive.unlock(&format!("waiter{}", to - 1))),
        }
        assert!(alive.held(&format!("waiter{to}")).valid);
        let calls = Commands::of(&server);
        assert_eq!((calls.count("evalsha"), calls.count("eval")), (1, 0), "{to}: {calls:?}");
        assert_eq!((calls.count("pubsub|numsub"), calls.count("publish")), (looks, 1), "{to}: {calls:?}");
    };
    hand_over(0, DEAD + 1);
    hand_over(1, DEAD + 1);
    // On a slow machine their second is over already.
    let are_dropped = queue(&server).len() == 2;
    server.outlast_the_unheard();
    hand_over(2, if are_dropped { 1 } else { DEAD + 1 });
    assert_eq!(queue(&server).len(), 1);
    hand_over(3, 1);
    assert_eq!(queue(&server), [""; 0]);
    alive.unlock("waiter3");
    assert_eq!(holder(&server), None);
}

/// Shows: L1.
#[test]
fn when_all_waiters_were_killed_the_next_thread_at_home_gets_the_lock_in_the_same_call() {
    let server = start();
    let here = client(&server.url());
    let here = lock(&here, HOUR);
    let guard = here.lock().unwrap();
    let mut home = Actor::start(&server.url());
    let mut dead = Actor::start(&server.url());
    home.lock("first", 0, HOUR);
    eventually("it stands in the queue", || queue(&server).len() == 1);
    home.lock("second", 0, HOUR);
    wait(&server, &mut dead, 2, 1);
    eventually("the second thread waits", || home.waiting(0) == 2);
    guard.unlock().unwrap();
    // With its grant it was told that others wait. After so long it passes the lock on no more: those come first.
    home.held("first");
    thread::sleep(Duration::from_millis(30));
    kill(&server, [&mut dead], 1);
    Commands::forget(&server);
    home.unlock("first");
    home.held("second");
    let calls = Commands::of(&server);
    assert_eq!((calls.count("evalsha"), calls.count("pubsub|numsub")), (1, 2), "{calls:?}");
    assert_eq!(queue(&server).len(), 2, "they may come back");
    home.unlock("second");
    assert_eq!(holder(&server), None);
    forget_the_dead(&server, &here);
}
