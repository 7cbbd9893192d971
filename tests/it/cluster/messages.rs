//! What clients hear, and what that costs.

use super::{LEASE, generator, lock, store, target_on};
use crate::support::cluster::{Cluster, slot_of};
use crate::support::crew::{HANG, eventually, spawn};
use crate::support::{LONG, claim};
use redis_dlock::processor::{Inbox, LockProcessor, Message, Operations, WaitQueue};
use redis_dlock::{DLockConfig, RedisLockProcessor};
use std::thread;
use std::time::Duration;

fn queue(store: &RedisLockProcessor) -> &dyn WaitQueue {
    store.queue().unwrap()
}

/// Two clients that hand one lock to and fro.
/// Shows: G10.
#[test]
fn a_hand_over_is_one_message_in_the_locks_slot() {
    let cluster = Cluster::start();
    let target = target_on(&cluster, 1);
    let clients = [generator(&cluster), generator(&cluster)];
    let turns = 50;
    let play = |n: usize| {
        let config = DLockConfig::new("CLUSTER", target.clone()).with_lease(LEASE).with_local_passes(0);
        let lock = clients[n].generate_with(config).unwrap();
        for _ in 0..turns {
            let guard = lock.lock().unwrap();
            thread::sleep(Duration::from_millis(1));
            guard.unlock().unwrap();
        }
    };
    thread::scope(|scope| [0, 1].map(|n| scope.spawn(move || play(n))).map(|player| player.join().unwrap()));
    assert_eq!((cluster.calls("publish"), cluster.published_on_the_bus()), (0, 0));
    assert!(cluster.calls("spublish") >= turns, "{}", cluster.calls("spublish"));
    // One slot, two clients.
    assert_eq!(cluster.calls("ssubscribe"), 2);
}

/// Reads an inbox on a thread of its own, and returns what it hears except `Changed`.
fn listen(mut inbox: Box<dyn Inbox>) -> crossbeam_channel::Receiver<Message> {
    let (sender, heard) = crossbeam_channel::unbounded();
    thread::spawn(move || {
        while let Ok(message) = inbox.next(Duration::from_millis(100)) {
            match message {
                Some(Message::Changed { .. } | Message::ChangedAmong { .. }) | None => {}
                Some(message) => drop(sender.send(message)),
            }
        }
    });
    heard
}

/// A client hears in a slot from when it has got ready until the slot moves, and again after that, without anybody's asking.
#[test]
fn a_slot_that_moves_is_heard_again() {
    let cluster = Cluster::start();
    let store = store(&cluster);
    let key = format!("DLOCK_CLUSTER_{}", target_on(&cluster, 0));
    let queue = queue(&store);
    let inbox = queue.open_inbox("b", LONG).unwrap();
    let breaker = inbox.breaker();
    let heard = listen(inbox);
    assert!(!queue.hears("b", &key));
    assert!(queue.get_ready_to_hear("nobody", &key, LONG).is_err());
    queue.get_ready_to_hear("b", &key, LONG).unwrap();
    assert!(queue.hears("b", &key) && !queue.hears("c", &key));
    let other = format!("DLOCK_CLUSTER_{}", target_on(&cluster, 1));
    assert!(!queue.hears("b", &other), "a slot of another node");
    for (turn, to) in [1, 2, 0].into_iter().enumerate() {
        cluster.move_slot(slot_of(&key), to);
        let channel_of = |node: usize| cluster.run::<Vec<String>>(node, &["PUBSUB", "SHARDCHANNELS", "*"]).len();
        eventually("the new owner knows of the subscription", || channel_of(to) == 1);
        eventually("it is heard", || queue.hears("b", &key));
        let lockers = [format!("a-{turn}"), format!("b-{turn}")];
        let [held, waits] = lockers.each_ref().map(|locker| claim(&key, locker, LEASE));
        store.acquire(&held, LONG).unwrap();
        store.join(&waits, LONG).unwrap();
        store.release(&held, LONG).unwrap();
        match heard.recv_timeout(HANG).unwrap() {
            Message::Granted { locker, .. } => assert_eq!(locker, lockers[1]),
            other => panic!("{other:?}"),
        }
        store.release(&waits, LONG).unwrap();
    }
    breaker.cut();
    eventually("the inbox is closed", || !queue.hears("b", &key));
}

/// A client that waits in many slots has one listening connection to each master.
#[test]
fn many_slots_are_heard_on_one_connection_a_master() {
    let cluster = Cluster::start();
    let holder = generator(&cluster);
    let waiter = generator(&cluster);
    let targets: Vec<_> = (0..60).map(|n| format!("many{n}")).collect();
    let guards: Vec<_> = targets.iter().map(|target| lock(&holder, target).lock_owned().unwrap()).collect();
    let waits: Vec<_> = targets
        .iter()
        .map(|target| {
            let lock = lock(&waiter, target);
            spawn(move || lock.lock_owned().unwrap().unlock().unwrap())
        })
        .collect();
    let waiting = |target: &String| lock(&holder, target).inspect().unwrap().waiting == 1;
    eventually("all wait in the store's queues", || targets.iter().all(waiting));
    for master in 0..3 {
        let list: String = cluster.run(master, &["CLIENT", "LIST"]);
        let listening = list.lines().filter(|line| line.contains("name=redis-dlock ") && !line.contains(" ssub=0 "));
        // The holder may listen, too.
        assert!((1..=2).contains(&listening.count()), "{list}");
    }
    guards.into_iter().for_each(|guard| guard.unlock().unwrap());
    waits.into_iter().for_each(|waiter| waiter.join());
}
