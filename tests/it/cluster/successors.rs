//! Clients that wait at a server which another one succeeds: what they try meanwhile, and when they hear again.

use super::{Client, Queued, lock, store, target_on};
use crate::support::LONG;
use crate::support::cluster::{Cluster, Node, Plan, Seen, slot_of};
use crate::support::crew::{answered, eventually, slowly, spawn};
use crate::support::stalls::played_again;
use redis_dlock::RedisLockProcessor;
use redis_dlock::processor::LockProcessor;
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Counts the connections to the port of a server that is gone, and ends each at once.
struct Listener {
    port: u16,
    accepted: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Listener {
    fn on(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let (accepted, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, over) = (Arc::clone(&accepted), Arc::clone(&is_over));
        let thread = thread::spawn(move || {
            for connection in listener.incoming() {
                drop(connection);
                if over.load(Ordering::SeqCst) {
                    return;
                }
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { port, accepted, is_over, thread }
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    fn end(self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = std::net::TcpStream::connect(("127.0.0.1", self.port));
        self.thread.join().unwrap();
    }
}

/// The time by a node's clock.
fn clock_of(cluster: &Cluster, node: usize) -> Duration {
    let (seconds, micros): (u64, u64) = cluster.run(node, &["TIME"]);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// Shows: L1.
#[test]
fn many_slots_of_a_dead_master_are_tried_as_one() {
    let args = ["--cluster-require-full-coverage", "no"].map(str::to_owned).to_vec();
    let mut cluster = Cluster::start_as(&Plan { replicas: 0, args, ..Plan::steady() });
    let keys: Vec<_> = cluster.keys_on(0, |n| format!("DLOCK_CLUSTER_d{n}")).take(400).collect();
    let slots: BTreeSet<_> = keys.iter().map(|key| slot_of(key)).collect();
    assert!(slots.len() > 300);
    let store = store(&cluster);
    let queue = store.queue().unwrap();
    let mut inbox = queue.open_inbox("e", LONG).unwrap();
    let breaker = inbox.breaker();
    let listens = spawn(move || while inbox.next(Duration::from_secs(1)).is_ok() {});
    keys.iter().for_each(|key| drop(queue.get_ready_to_hear("e", key, Duration::ZERO)));
    let hears = |key: &str| queue.hears("e", key);
    eventually("all are heard", || keys.iter().all(|key| hears(key)));
    cluster.nodes[0].kill();
    let listener = Listener::on(cluster.nodes[0].port());
    eventually("the client tries the dead node", || listener.accepted() > 0);
    thread::sleep(Duration::from_millis(1500));
    let tries = listener.accepted();
    // Pauses from 10 ms to 1 s for all of them together, and those who ask for a map. With pauses of its own for each slot there would be
    // several for each.
    assert!((3..40).contains(&tries), "{tries} connections for {} slots", slots.len());
    listener.end();
    cluster.nodes[0].restart();
    eventually("all are heard again", || keys.iter().all(|key| hears(key)));
    cluster.assert_hears("e", &keys, hears);
    breaker.cut();
    listens.join();
}

/// Who holds the lock gives it back before all have subscribed at the new master: one of them gets it, and the others keep their places. They
/// keep them for a second, by the new master's clock. Where all have subscribed only later, the machine may have been too busy: then three of four
/// further plays must be in time.
fn a_release_just_after_a_promotion(goes: impl Fn(&mut Cluster)) {
    let is_in_time = || all_hear_in_time(&goes);
    assert!(is_in_time() || (0..4).filter(|_| is_in_time()).count() >= 3, "all hear again only when places are lost");
}

/// Plays it once. Returns whether all heard again in time.
fn all_hear_in_time(goes: &impl Fn(&mut Cluster)) -> bool {
    const WAITERS: usize = 5;
    // For so long, and a little more, the new master waits for those whom it does not hear.
    const KEPT: Duration = Duration::from_millis(1100);
    let mut cluster = Cluster::start_as(&Plan::steady());
    let target = target_on(&cluster, 0);
    let holder = Client::of(&cluster);
    let guard = lock(&holder.generator, &target).lock_owned().unwrap();
    let key = [guard.lock().key().to_owned()];
    let clients: Arc<[_]> = (0..WAITERS).map(|_| Client::of(&cluster)).collect();
    let (is_first, all, of) = (Arc::new(AtomicBool::new(true)), Arc::clone(&clients), key[0].clone());
    let meanwhile = move || {
        if is_first.swap(false, Ordering::SeqCst) {
            thread::sleep(KEPT);
            eventually("all hear again", || all.iter().all(|client| client.queue().hears(&client.id, &of)));
        }
    };
    let queued = Queued::of(&target, &clients, meanwhile);
    cluster.wait_for_replicas(0);
    goes(&mut cluster);
    cluster.run::<()>(3, &["CLUSTER", "FAILOVER", "TAKEOVER"]);
    guard.unlock().unwrap();
    let released_at = clock_of(&cluster, 3);
    eventually("all are subscribed at the new master", || {
        clients.iter().all(|client| cluster.unsubscribed(&client.id, &key).is_empty())
    });
    let after = clock_of(&cluster, 3) - released_at;
    let mut order = queued.all_served();
    if after >= Duration::from_secs(1) {
        played_again(&format!("all heard again only after {after:?}"));
        return false;
    }
    let first = order.remove(0);
    let others: Vec<_> = (0..WAITERS).filter(|n| *n != first).collect();
    assert_eq!(order, others, "after {first}");
    clients
        .iter()
        .for_each(|client| cluster.assert_hears(&client.id, &key, |key| client.queue().hears(&client.id, key)));
    true
}

/// Shows: G10, L1.
#[test]
fn a_release_just_after_the_successor_of_a_killed_master_costs_no_waiter_its_place() {
    a_release_just_after_a_promotion(|cluster| {
        cluster.nodes[0].kill();
        // Meanwhile the clients try the dead master, with ever longer pauses.
        thread::sleep(Duration::from_millis(600));
    });
}

/// Shows: G10, L1.
#[test]
fn a_release_just_after_the_successor_of_a_stopped_master_costs_no_waiter_its_place() {
    a_release_just_after_a_promotion(|cluster| {
        cluster.nodes[0].stop();
        // Meanwhile the clients, which only wait, must notice that.
        thread::sleep(Duration::from_secs(2));
    });
}

/// A replica takes a master's place and its address, as behind a service name. The master lives on, and the connections to it stay, but for
/// those that end just before. A user who may not ask who a server is cannot tell them apart.
fn another_server_takes_over_the_address(ends: impl FnOnce(&Node)) {
    let cluster = Cluster::start_as(&Plan { networked: true, ..Plan::default() });
    for node in 0..cluster.nodes.len() {
        let words = ["ACL", "SETUSER", "dlock", "on", ">PASSWORD", "~*", "&*", "+@all", "-info"];
        cluster.run::<()>(node, &words);
    }
    let url = cluster.url(0).replace("//", "//dlock:PASSWORD@");
    let client = |url: &str| Client::with(RedisLockProcessor::connect(url).unwrap());
    let (holder, waiting) = (client(&url), client(&url));
    let target = target_on(&cluster, 1);
    let guard = lock(&holder.generator, &target).lock_owned().unwrap();
    let waits = lock(&waiting.generator, &target);
    let waiter = spawn(move || waits.lock_owned().unwrap().unlock().unwrap());
    let seen = || answered(|| lock(&holder.generator, &target).inspect());
    eventually("it waits in the store's queue", || seen().waiting == 1);
    let way = cluster.nodes[1].way.as_ref().unwrap();
    let heir = 4;
    assert_eq!(cluster.master_of(heir), Some(1));
    way.lead_new_to(cluster.nodes[heir].server().port());
    let port = way.port().to_string();
    cluster.run::<()>(heir, &["CONFIG", "SET", "cluster-announce-port", &port]);
    slowly("all name the heir by that address", || {
        let id = cluster.nodes[heir].id();
        let is_there = |seen: &Seen| seen.id == id && seen.port == way.port();
        cluster.nodes.iter().all(|node| node.view().is_some_and(|view| view.iter().any(is_there)))
    });
    ends(&cluster.nodes[1]);
    cluster.fail_over_to(heir);
    assert!(cluster.nodes[1].is_up());
    let key = lock(&holder.generator, &target).key().to_owned();
    eventually("the waiter is subscribed at the new owner", || {
        cluster.unsubscribed(&waiting.id, std::slice::from_ref(&key)).is_empty()
            && waiting.queue().hears(&waiting.id, &key)
    });
    assert_eq!(seen().waiting, 1, "its place in the queue is kept");
    guard.unlock().unwrap();
    waiter.join();
}

/// What the client asks next is redirected by the old master.
/// Shows: L1.
#[test]
fn a_waiter_hears_again_when_another_server_takes_over_the_address() {
    another_server_takes_over_the_address(|_| {});
}

/// What the client asks next goes on a new connection, to the new master. The old one says nothing but that it has ended the subscription.
/// Shows: L1.
#[test]
fn a_waiter_hears_again_at_another_server_that_answers_all_its_questions() {
    another_server_takes_over_the_address(|old| old.run::<()>(&["CLIENT", "KILL", "TYPE", "normal"]));
}
