//! The lock on a consensus store: what users rely on, where no server fails.

use crate::consensus::{ConsensusStore, Consul, Etcd, Look, Quorum};
use crate::fresh::Fresh;
use crate::support::crew::{Member, eventually, spawn};
use dlock_conformance::Store;
use parking_lot::Mutex;
use redis_dlock::port::{Claim, Message, Operations};
use redis_dlock::{DLockConfig, DLockGenerator, DistributedReentrantLock, LockProcessor};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

on_each_store!(
    a_hold_outlives_its_lease_many_times,
    thousands_of_holds_inside_a_process_cost_a_number_for_each_thousand,
    leases_that_the_store_does_not_keep_are_refused_by_name,
    an_inbox_outlives_its_connections,
    a_message_that_was_missed_is_told_as_a_change,
    a_client_that_closes_leaves_no_inbox,
    an_entry_tells_people_who_holds_or_waits_since_when_and_why,
);

/// Far longer than any of these tests.
const LONG: Duration = Duration::from_secs(120);

fn lock(generator: &DLockGenerator, lease: Duration) -> DistributedReentrantLock {
    generator.generate_with(DLockConfig::new("STORES", "x").with_lease(lease)).unwrap()
}

fn client<V: ConsensusStore>(store: &Fresh<V>) -> DLockGenerator {
    DLockGenerator::new(store.processor()).unwrap()
}

/// Shows: G3.
fn a_hold_outlives_its_lease_many_times<V: ConsensusStore>() {
    let store = Fresh::<V>::start();
    let lock = lock(&client(&store), V::LEASE);
    let guard = lock.lock().unwrap();
    std::thread::sleep(4 * V::longest(V::LEASE));
    assert!(guard.is_valid());
    guard.unlock().unwrap();
}

/// Threads of one process pass the lock on without the store, for longer than one number lasts.
///
/// Shows: G7.
fn thousands_of_holds_inside_a_process_cost_a_number_for_each_thousand<V: ConsensusStore>() {
    const HOLDS: usize = 3000;
    let store = Fresh::<V>::start();
    let client = client(&store);
    let held = lock(&client, LONG);
    let guard = held.lock().unwrap();
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let crew: Vec<_> = (0..3)
        .map(|_| {
            let (lock, tokens) = (held.clone(), Arc::clone(&tokens));
            spawn(move || {
                while tokens.lock().len() < HOLDS {
                    let guard = lock.lock().unwrap();
                    tokens.lock().push(guard.fencing_token());
                    guard.unlock().unwrap();
                }
            })
        })
        .collect();
    eventually("all wait", || held.queue_length() == 3);
    guard.unlock().unwrap();
    crew.into_iter().for_each(Member::join);
    let tokens = tokens.lock();
    assert!(tokens.len() >= HOLDS && tokens.is_sorted_by(|a, b| a < b));
}

fn leases_that_the_store_does_not_keep_are_refused_by_name<V: ConsensusStore>() {
    let store = Fresh::<V>::start();
    let shortest = store.processor().limits().shortest_lease;
    let config = DLockConfig::new("STORES", "x").with_lease(shortest - Duration::from_millis(1));
    let refused = client(&store).generate_with(config).unwrap_err().to_string();
    assert!(refused.contains(&format!("{shortest:?}")), "{refused}");
}

/// Connections end after a while, so that one that has died silently is noticed. The inbox goes on with another one.
fn an_inbox_outlives_its_connections<V: ConsensusStore>() {
    let store = Fresh::<V>::start();
    let processor = store.processor();
    let queue = processor.queue().unwrap();
    let holder = Claim::new("k", "h-1-c0ffee", "h-1-c0ffee-1", LONG);
    let waiter = Claim::new("k", "h-2-c0ffee", "h-2-c0ffee-1", LONG);
    let mut inbox = queue.open_inbox(waiter.client, LONG).unwrap();
    processor.acquire(&holder, LONG).unwrap();
    processor.join(&waiter, LONG).unwrap();
    assert_eq!(inbox.next(Duration::from_secs(40)).unwrap(), None);
    processor.release(&holder, LONG).unwrap();
    let heard = inbox.next(LONG).unwrap();
    assert!(matches!(&heard, Some(Message::Granted { locker, .. }) if *locker == waiter.locker), "{heard:?}");
    processor.release(&waiter, LONG).unwrap();
}

/// Messages that come one at a time are told each. Of those that come at once, a store may tell the last alone, and then says so.
fn a_message_that_was_missed_is_told_as_a_change<V: ConsensusStore>() {
    const AT_ONCE: usize = 40;
    const ROUNDS: usize = 5;
    const SOON: Duration = Duration::from_secs(1);
    let store = Fresh::<V>::start();
    let (holder, waiter) = (&store.processor(), store.processor());
    let queue = waiter.queue().unwrap();
    let mut inbox = queue.open_inbox("h-2-c0ffee", LONG).unwrap();
    let names: Vec<_> =
        (0..AT_ONCE).map(|n| (format!("k{n}"), format!("h-1-c0ffee-{n}"), format!("h-2-c0ffee-{n}"))).collect();
    let held = &|n: usize| Claim::new(&names[n].0, "h-1-c0ffee", &names[n].1, LONG);
    let waits = |n: usize| Claim::new(&names[n].0, "h-2-c0ffee", &names[n].2, LONG);
    let prepare = |n: usize| {
        holder.acquire(&held(n), LONG).unwrap();
        waiter.join(&waits(n), LONG).unwrap();
    };
    for (n, (_, _, locker_of_n)) in names.iter().enumerate() {
        prepare(n);
        holder.release(&held(n), LONG).unwrap();
        let heard = inbox.next(LONG).unwrap();
        assert!(matches!(&heard, Some(Message::Granted { locker, .. }) if locker == locker_of_n), "{heard:?}");
        waiter.release(&waits(n), LONG).unwrap();
    }
    // Consul coalesces some of so many sooner or later, and etcd none.
    let mut is_ever_missed = false;
    for _ in 0..ROUNDS {
        (0..AT_ONCE).for_each(prepare);
        std::thread::scope(|scope| {
            for n in 0..AT_ONCE {
                scope.spawn(move || drop(holder.release(&held(n), LONG).unwrap()));
            }
        });
        let (mut told, mut is_missed) = (0, false);
        // All were written, so whatever is told comes soon.
        while let Some(heard) = inbox.next(SOON).unwrap() {
            match heard {
                Message::Granted { .. } => told += 1,
                Message::Changed { key: None } => is_missed = true,
                other => panic!("{other:?}"),
            }
            if told == AT_ONCE {
                break;
            }
        }
        assert_eq!(told < AT_ONCE, is_missed, "{told} of {AT_ONCE}");
        (0..AT_ONCE).for_each(|n| drop(waiter.release(&waits(n), LONG).unwrap()));
        is_ever_missed |= is_missed;
        if is_ever_missed {
            break;
        }
    }
    assert_eq!(is_ever_missed, V::NAME == "Consul");
}

fn a_client_that_closes_leaves_no_inbox<V: ConsensusStore>() {
    let store = Fresh::<V>::start();
    let (holder, waiter) = (client(&store), client(&store));
    let guarded = lock(&holder, LONG);
    let guard = guarded.lock().unwrap();
    let waiting = lock(&waiter, LONG);
    let waits = spawn(move || waiting.lock().unwrap().unlock().unwrap());
    let processor = store.processor();
    eventually("it waits in the store", || processor.inspect(guarded.key(), LONG).unwrap().waiting == 1);
    guard.unlock().unwrap();
    waits.join();
    let root = store.lock("").split('/').next().unwrap().to_owned() + "/";
    assert_ne!(store.servers.list(&root), [""; 0], "there is an inbox");
    waiter.close();
    holder.close();
    eventually("no inbox is left", || store.servers.list(&root).is_empty());
}

/// Two generators have a clone of one store each.
fn the_last_clone_closes_it(processor: impl LockProcessor + Clone) {
    let [first, last] = [(); 2].map(|()| DLockGenerator::new(processor.clone()).unwrap());
    drop(processor);
    drop(first.generate("STORES", "y").unwrap().lock().unwrap());
    let held = lock(&last, LONG);
    let guard = held.lock().unwrap();
    first.close();
    drop(first);
    guard.ensure_valid().unwrap();
    guard.unlock().unwrap();
    drop(held.lock().unwrap());
}

#[test]
fn the_last_clone_of_a_store_on_etcd_closes_it() {
    let store = Fresh::<Etcd>::start();
    the_last_clone_closes_it(dlock_consensus::EtcdLockProcessor::new(&store.servers.url("clones")).unwrap());
}

#[test]
fn the_last_clone_of_a_store_on_consul_closes_it() {
    let store = Fresh::<Consul>::start();
    the_last_clone_closes_it(dlock_consensus::ConsulLockProcessor::new(&store.servers.url("clones")).unwrap());
}

fn shows_no_secret(processor: impl LockProcessor) {
    let shown = format!("{processor:?}");
    assert!(!shown.contains("sesame"), "{shown}");
    let failed = DLockGenerator::new(processor).unwrap().generate("STORES", "x").unwrap().lock().unwrap_err();
    assert!(!format!("{failed} {failed:?}").contains("sesame"), "{failed:?}");
    assert!(failed.to_string().contains("127.0.0.1:1"), "{failed}");
}

#[test]
fn nothing_of_a_password_of_etcd_is_shown() {
    shows_no_secret(dlock_consensus::EtcdLockProcessor::new("etcd://me:sesame@127.0.0.1:1").unwrap());
}

#[test]
fn nothing_of_a_token_of_consul_is_shown() {
    shows_no_secret(dlock_consensus::ConsulLockProcessor::new("consul://sesame@127.0.0.1:1").unwrap());
}

/// Whoever looks at the entries in the store's own tools, reads this.
fn an_entry_tells_people_who_holds_or_waits_since_when_and_why<V: ConsensusStore>() {
    let store = Fresh::<V>::start();
    let lock = |why: &str| {
        let config = DLockConfig::new("STORES", "x").with_lease(LONG).with_reason(why);
        client(&store).generate_with(config).unwrap()
    };
    let entry = |path: &str| -> Value {
        let Some(Look::Held { value, .. }) = store.servers.look_at(path)() else { panic!("{path} is not there") };
        serde_json::from_str(&value).unwrap()
    };
    let when = |entry: &Value| humantime::parse_rfc3339(entry["when"].as_str().unwrap()).unwrap();
    let asked = SystemTime::now() - Duration::from_millis(2);
    let (first, second) = (lock("the nightly batch"), lock("a repair"));
    let guard = first.lock().unwrap();
    let path = store.lock(first.key());
    let holder = entry(&path);
    assert_eq!(holder["why"], "the nightly batch");
    assert!(holder["who"].as_str().unwrap().starts_with(holder["process"].as_str().unwrap()), "{holder}");
    assert!((asked..=SystemTime::now()).contains(&when(&holder)), "{holder}");

    let other = second.clone();
    let (is_inside, inside) = crossbeam_channel::bounded(0);
    let (leave, leaves) = crossbeam_channel::bounded::<()>(0);
    let waits = spawn(move || {
        let guard = other.lock().unwrap();
        is_inside.send(()).unwrap();
        leaves.recv().unwrap_err();
        guard.unlock().unwrap();
    });
    let queue = path.replace("/.lock", "/.wait/");
    let mut waiters = Vec::new();
    eventually("it waits", || {
        waiters = store.servers.list(&queue);
        waiters.len() == 1
    });
    let waiter = entry(&waiters[0]);
    assert_eq!(waiter["why"], "a repair");
    std::thread::sleep(Duration::from_millis(2));
    guard.unlock().unwrap();
    inside.recv().unwrap();
    let holder = entry(&path);
    assert_eq!((&holder["who"], &holder["why"]), (&waiter["who"], &waiter["why"]));
    assert!(when(&holder) > when(&waiter), "it holds since it was given the lock: {waiter}, {holder}");
    drop(leave);
    waits.join();
}
