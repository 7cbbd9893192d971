//! When a holder dies, the first in the queue gets the lock as soon as anybody asks after the end of the lease, and then the
//! second, and so on.

use super::actor::Actor;
use super::scene::{HOUR, KEY, holder, process, queue, start};
use crate::support::RedisServer;
use crate::support::crew::eventually;
use crate::support::monitor::{Executed, Monitor};
use std::time::Duration;

/// What the dead holder leaves.
const LEASE: Duration = Duration::from_millis(1500);

/// A holder, and three processes that wait in the queue in this order.
fn scene(server: &RedisServer) -> (Actor, [Actor; 3]) {
    let [mut dying, mut first, mut second, mut third] = [(); 4].map(|()| Actor::start(&server.url()));
    dying.lock("holder", 0, LEASE);
    dying.held("holder");
    for (place, actor) in [&mut first, &mut second, &mut third].into_iter().enumerate() {
        actor.lock("waiter", 0, HOUR);
        eventually("it stands in the queue", || queue(server).len() == place + 1);
    }
    (dying, [first, second, third])
}

/// Each gets the lock when the one before it unlocks.
fn in_order(server: &RedisServer, actors: &mut [Actor; 3]) {
    let mut token = 0;
    for actor in actors {
        let held = actor.held("waiter");
        assert!(held.valid && held.token > token);
        token = held.token;
        assert_eq!(process(&holder(server).unwrap()), actor.pid());
        actor.unlock("waiter");
    }
    assert_eq!((holder(server), queue(server)), (None, Vec::new()));
}

/// Shows: G4, G8.
#[test]
fn the_first_poll_after_the_end_of_a_dead_holders_lease_gives_the_lock_to_the_first_in_the_queue() {
    let server = start();
    let (mut dying, mut waiting) = scene(&server);
    let monitor = Monitor::start(&server);
    dying.kill();
    let end: i64 = server.run(&["PEXPIRETIME", KEY]);
    assert!(end > 0, "the key outlives its holder");
    let first = queue(&server)[0].clone();
    eventually("the lock is given away", || holder(&server).as_ref() == Some(&first));
    let executed = monitor.stop(&server);

    let given = words(&["set", KEY, &first]);
    let given = executed.iter().position(|done| done.by_script && done.words.starts_with(&given)).unwrap();
    let polls: Vec<_> = executed[..given].iter().filter(|done| is_poll(done)).collect();
    // Nobody would ask again within the hour, so whoever asked has watched the lease.
    let late = polls.iter().filter(|poll| poll.at / 1000 >= end.unsigned_abs()).count();
    assert_eq!(late, 1, "questions after the end {end}: {polls:?}");
    in_order(&server, &mut waiting);
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// A poll of a locker that waits: no other script looks for a place in the queue.
fn is_poll(done: &Executed) -> bool {
    done.by_script && done.words[0] == "lpos"
}

/// Shows: G4, G8.
#[test]
fn whoever_asks_after_a_dead_holder_the_first_in_the_queue_gets_the_lock() {
    let server = start();
    let (mut dying, mut waiting) = scene(&server);
    // Only the last one can ask; those before it live, but do not run.
    waiting[0].stop();
    waiting[1].stop();
    dying.kill();
    eventually("the third has asked", || holder(&server).is_some_and(|locker| process(&locker) != dying.pid()));
    assert_eq!(process(&holder(&server).unwrap()), waiting[0].pid());
    let order: Vec<_> = queue(&server).iter().map(|locker| process(locker)).collect();
    assert_eq!(order, [waiting[1].pid(), waiting[2].pid()]);
    waiting[0].go_on();
    waiting[1].go_on();
    in_order(&server, &mut waiting);
}
