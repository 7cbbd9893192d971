//! The way of a call: what it costs while nodes fail or answer strangely, and what is certain when it ends.

use super::{LEASE, accepted, generator, store, target_on};
use crate::support::cluster::{Cluster, Plan, slot_of};
use crate::support::commands::Commands;
use crate::support::crew::{eventually, spawn, spawn_with};
use crate::support::proxy::Way;
use crate::support::watched::{Kind, Watched};
use crate::support::{LONG, claim};
use redis_dlock::processor::{Limit, LockProcessor, Operations, Posting, ReleaseDone, Request};
use redis_dlock::{AcquireOutcome, BackendFailure, DLockConfig, DLockGenerator, Error, RedisLockProcessor};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn networked() -> Cluster {
    Cluster::start_as(&Plan { replicas: 0, networked: true, ..Plan::default() })
}

/// Makes a user who may do all but this, on all nodes, and returns the URL of a node for it.
fn user(cluster: &Cluster, without: &[&str]) -> String {
    for node in 0..cluster.nodes.len() {
        let words = ["ACL", "SETUSER", "dlock", "on", ">PASSWORD", "~*", "&*", "+@all"];
        cluster.run::<()>(node, &[&words[..], without].concat());
    }
    cluster.url(0).replace("//", "//dlock:PASSWORD@")
}

/// How many connections that user has at a node: for calls, and to listen.
fn connections(cluster: &Cluster, node: usize) -> [usize; 2] {
    let list: String = cluster.run(node, &["CLIENT", "LIST"]);
    let of_user: Vec<_> = list.lines().filter(|line| line.contains(" user=dlock ")).collect();
    let listens = |line: &&&str| !line.contains(" ssub=0 ");
    let listening = of_user.iter().filter(listens).count();
    [of_user.len() - listening, listening]
}

/// Several locks are taken on three masters, or none is kept, and all go back in one batch.
/// Shows: G1.
#[test]
fn several_locks_are_taken_on_all_masters_or_on_none() {
    let cluster = Cluster::start_as(&Plan { replicas: 0, ..Plan::default() });
    let (store, watch) = Watched::new(Arc::new(store(&cluster)));
    let (client, other) = (DLockGenerator::new(store).unwrap(), generator(&cluster));
    let mut configs = [0, 1, 2].map(|node| DLockConfig::new("CLUSTER", target_on(&cluster, node)).with_lease(LEASE));
    // They are taken in this order.
    configs.sort_by_key(|config| config.unique_key().to_owned());
    let held = || cluster.keys("DLOCK_CLUSTER_*");
    let last = other.generate_with(configs[2].clone()).unwrap();
    let elsewhere = last.lock().unwrap();
    assert!(client.try_lock_all(configs.clone()).unwrap().is_none());
    eventually("none is kept", || held() == [last.key()]);
    assert_eq!(watch.count_of(Kind::Release), 2);
    elsewhere.unlock().unwrap();
    let all = client.lock_all(configs.clone(), LONG).unwrap().expect("all are free");
    assert_eq!(held(), configs.each_ref().map(|config| config.unique_key().to_owned()));
    all.unlock().unwrap();
    assert_eq!(held(), [""; 0]);
    let releases = watch.calls_of(Kind::Release);
    assert_eq!(releases.iter().skip(2).map(|call| call.trip).collect::<HashSet<_>>().len(), 1, "{releases:?}");
    assert_eq!(releases.len(), 5);
}

/// The node that a call is sent to with `ASKING` owns the slot when the call arrives. It executes the call whether or not `ASKING` is allowed.
/// Shows: S1.
#[test]
fn a_call_that_was_executed_is_not_taken_for_one_that_was_denied() {
    let cluster = networked();
    let url = user(&cluster, &["-asking"]);
    let store = RedisLockProcessor::connect(&url).unwrap();
    let keys = [0, 1].map(|node| format!("DLOCK_CLUSTER_{}", target_on(&cluster, node)));
    // The target knows the script, and its connection is open.
    store.acquire(&claim(&keys[1], "a-0", LEASE), LONG).unwrap();
    let mut migration = cluster.migration(slot_of(&keys[0]), 1);
    migration.begin();
    cluster.nodes[1].way.as_ref().unwrap().delay(Way::ToServer, Duration::from_millis(500));
    let acquires = spawn_with(&keys[0], move |key| (store.acquire(&claim(key, "a-1", LEASE), LONG), store));
    thread::sleep(Duration::from_millis(150));
    migration.finish();
    let (taken, store) = acquires.join();
    assert!(matches!(taken, Ok(AcquireOutcome::Acquired(_))), "{taken:?}");
    assert_eq!(store.inspect(&keys[0], LONG).unwrap().holder.as_deref(), Some("a-1"));
    let refused: Vec<redis::Value> = cluster.run(1, &["ACL", "LOG"]);
    assert!(!refused.is_empty(), "the call came behind an ASKING that was refused");
}

/// Without the slot the node redirects the call, and the missing right is named.
#[test]
fn a_missing_right_to_ask_is_named() {
    let cluster = Cluster::start_as(&Plan { replicas: 0, ..Plan::default() });
    let store = RedisLockProcessor::connect(&user(&cluster, &["-asking"])).unwrap();
    let key = format!("DLOCK_CLUSTER_{}", target_on(&cluster, 0));
    let mut migration = cluster.migration(slot_of(&key), 1);
    migration.begin();
    let denied = store.acquire(&claim(&key, "a-1", LEASE), LONG).unwrap_err();
    assert!(matches!(&denied, Error::Denied { message, .. } if message.contains("asking")), "{denied}");
    migration.finish();
}

/// The name of a node leads to another one for a while. Every call is sent back to where it came from.
#[test]
fn a_name_that_leads_astray_costs_few_connections() {
    let cluster = networked();
    let store = Arc::new(store(&cluster));
    let key = format!("DLOCK_CLUSTER_{}", target_on(&cluster, 1));
    store.acquire(&claim(&key, "a-0", LEASE), LONG).unwrap();
    let way = cluster.nodes[1].way.as_ref().unwrap();
    let before = way.connections();
    way.lead_to(cluster.nodes[2].server().port());
    let until = Instant::now() + Duration::from_secs(3);
    let callers: Vec<_> = (0..32)
        .map(|n| {
            let (store, key) = (Arc::clone(&store), key.clone());
            spawn(move || {
                let locker = format!("a-{n}");
                while Instant::now() < until {
                    let _ = store.extend(&claim(&key, &locker, LEASE), Duration::from_millis(30));
                }
            })
        })
        .collect();
    callers.into_iter().for_each(|caller| caller.join());
    let connects = way.connections() - before;
    // Thirty times in these three seconds the node is made anew, with up to four connections.
    assert!(connects < 150, "{connects} connections");
    way.lead_to(cluster.nodes[1].server().port());
    eventually("the node answers again", || store.inspect(&key, LONG).is_ok());
    assert_eq!(store.inspect(&key, LONG).unwrap().holder.as_deref(), Some("a-0"));
}

/// Callers that are redirected when the store is closed open nothing any more.
#[test]
fn nothing_is_opened_after_the_closing() {
    let cluster = networked();
    let store = Arc::new(RedisLockProcessor::connect(&user(&cluster, &[])).unwrap());
    let key = format!("DLOCK_CLUSTER_{}", target_on(&cluster, 1));
    store.acquire(&claim(&key, "a-0", LEASE), LONG).unwrap();
    cluster.nodes[1].way.as_ref().unwrap().lead_to(cluster.nodes[2].server().port());
    let callers: Vec<_> = (0..16)
        .map(|n| {
            let (store, key) = (Arc::clone(&store), key.clone());
            spawn(move || {
                let locker = format!("a-{n}");
                while !matches!(store.extend(&claim(&key, &locker, LEASE), LONG), Err(Error::ShutDown)) {}
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(500));
    // Of several pointers only the last one closes.
    (*store).close();
    callers.into_iter().for_each(|caller| caller.join());
    eventually("all connections have ended", || (0..3).all(|node| connections(&cluster, node) == [0, 0]));
    let refused = store.extend(&claim(&key, "a-0", LEASE), LONG);
    assert!(matches!(refused, Err(Error::ShutDown)), "{refused:?}");
}

/// A node that does not answer is not waited for by those who need no answer.
#[test]
fn nothing_is_posted_to_a_node_that_is_silent() {
    let args = ["--cluster-require-full-coverage", "no"].map(str::to_owned).to_vec();
    let plan = Plan { replicas: 0, node_timeout_ms: 60_000, args, ..Plan::default() };
    let mut cluster = Cluster::start_as(&plan);
    let store = store(&cluster);
    let key = format!("DLOCK_CLUSTER_{}", target_on(&cluster, 1));
    let held = claim(&key, "a-0", LEASE);
    // The node is known to have the scripts.
    for _ in 0..2 {
        store.acquire(&held, LONG).unwrap();
        store.release(&held, LONG).unwrap();
    }
    store.acquire(&held, LONG).unwrap();
    let post = |held| {
        let (sender, answers) = crossbeam_channel::unbounded();
        let done: ReleaseDone = Box::new(move |answer| sender.send(answer).unwrap());
        store.posting().unwrap().post_release(held, LONG, done);
        answers
    };
    assert!(!store.posting().unwrap().keeps_back(), "each goes to its node at once, and may wait for a connect");
    cluster.nodes[1].stop();
    let missed = store.run(&[Request::Extend(held)], Limit::Attempt(Duration::from_millis(300)));
    assert!(missed[0].is_err(), "{missed:?}");
    assert!(store.keeps_waiting(&key));
    let answer = post(&held).try_recv().expect("told before the poster goes on");
    assert!(matches!(answer, Err(Error::Backend { failure: BackendFailure::NotExecuted, .. })), "{answer:?}");
    cluster.nodes[1].go_on();
    eventually("it answers again", || store.probe(&held, LONG).is_ok());
    assert!(!store.keeps_waiting(&key));
    let answers = post(&held);
    eventually("the release is answered", || {
        Posting::collect(store.posting().unwrap());
        answers.try_recv().is_ok_and(|answer| answer.is_ok())
    });
}

/// The program's address map panics where the answer to a posted release is read.
/// Shows: L2.
#[test]
fn an_address_map_that_panics_costs_no_release() {
    let cluster = Cluster::start_as(&Plan { replicas: 0, ..Plan::default() });
    let panics = Arc::new(AtomicBool::new(false));
    let armed = Arc::clone(&panics);
    let map = move |host: &str, port| {
        assert!(!armed.swap(false, Ordering::SeqCst), "as the test wants it");
        (host.to_owned(), port)
    };
    let store = RedisLockProcessor::builder(&cluster.url_of_seeds(&[0])).unwrap().address_map(map).connect().unwrap();
    let generator = DLockGenerator::new(store).unwrap();
    let target = target_on(&cluster, 0);
    let lock = generator.generate_with(DLockConfig::new("CLUSTER", &target).with_lease(LEASE)).unwrap();
    // The node is known to have the script.
    lock.lock().unwrap().unlock().unwrap();
    let guard = lock.lock().unwrap();
    cluster.move_slot(slot_of(lock.key()), 1);
    panics.store(true, Ordering::SeqCst);
    drop(guard);
    let seen = super::lock(&super::generator(&cluster), &target);
    eventually("the lock is free", || !seen.is_locked().unwrap());
    assert!(!panics.load(Ordering::SeqCst), "it has panicked");
}

/// Many clients ask for the map while a master is gone.
#[test]
fn an_outage_opens_no_connections_to_the_others() {
    let args = ["--cluster-require-full-coverage", "no"].map(str::to_owned).to_vec();
    let mut cluster = Cluster::start_as(&Plan { replicas: 0, args, ..Plan::default() });
    let keys = [0, 1, 2].map(|node| format!("DLOCK_CLUSTER_{}", target_on(&cluster, node)));
    let stores: Vec<_> = (0..10).map(|_| store(&cluster)).collect();
    for store in &stores {
        keys.iter().for_each(|key| drop(store.acquire(&claim(key, "a-0", LEASE), LONG).unwrap()));
    }
    let mut admins = [1, 2].map(|node| cluster.connection(node));
    let mut asked = |cluster: &Cluster| {
        let connects: u64 = admins.iter_mut().map(accepted).sum();
        let maps: u64 =
            [1, 2].map(|node| Commands::of(cluster.nodes[node].server()).count("cluster|slots")).iter().sum();
        (connects, maps)
    };
    cluster.nodes[0].kill();
    let before = asked(&cluster);
    let until = Instant::now() + Duration::from_secs(4);
    thread::scope(|scope| {
        for store in &stores {
            let keys = &keys;
            scope.spawn(move || {
                while Instant::now() < until {
                    let missed = store.extend(&claim(&keys[0], "a-0", LEASE), Duration::from_millis(100));
                    assert!(missed.is_err(), "{missed:?}");
                    thread::sleep(Duration::from_millis(5));
                }
            });
        }
    });
    let after = asked(&cluster);
    // The kit has connected to count.
    let connects = after.0 - before.0 - 2;
    assert!(connects <= stores.len() as u64, "{connects} connections");
    let maps = (after.1 - before.1) / stores.len() as u64;
    assert!((4..=40).contains(&maps), "each client has asked {maps} times in four seconds");
}

/// Callers share at most four connections to a node, one of which is for renewals, and a client listens on one more.
#[test]
fn a_node_has_at_most_four_connections_and_one_to_listen() {
    let cluster = Cluster::start_as(&Plan { replicas: 0, ..Plan::default() });
    let generator = DLockGenerator::connect(&user(&cluster, &[])).unwrap();
    let targets: Vec<_> = (0..3).map(|node| target_on(&cluster, node)).collect();
    let until = Instant::now() + Duration::from_secs(2);
    let mut most = [0; 3];
    thread::scope(|scope| {
        for n in 0..24 {
            let (generator, targets) = (&generator, &targets);
            scope.spawn(move || {
                let target = format!("{{{}}}{}", targets[n % 3], n % 6);
                // Renewals are due, too.
                let config = DLockConfig::new("CLUSTER", &target).with_lease(Duration::from_millis(900));
                let lock = generator.generate_with(config).unwrap();
                while Instant::now() < until {
                    let guard = lock.lock().unwrap();
                    thread::sleep(Duration::from_millis(1));
                    let _ = guard.unlock();
                }
                let guard = lock.lock().unwrap();
                thread::sleep(Duration::from_secs(1));
                // A busy machine may end the lease.
                let _ = guard.unlock();
            });
        }
        while Instant::now() < until + Duration::from_millis(1500) {
            for (node, most) in most.iter_mut().enumerate() {
                // A node may count one for a moment that was given up, and replaced.
                eventually("four connections for calls, and one to listen", || {
                    let [calls, listens] = connections(&cluster, node);
                    let are_few = calls <= 4 && listens <= 1;
                    *most = if are_few { calls.max(*most) } else { *most };
                    are_few
                });
            }
        }
    });
    assert!(most.iter().all(|most| *most >= 2), "opened on demand: {most:?}");
}

/// A call whose caller has left is not sent when its obstacle is gone.
/// Shows: S1.
#[test]
fn nothing_is_sent_for_a_caller_that_has_left() {
    let cluster = Cluster::start_as(&Plan { replicas: 0, ..Plan::default() });
    let store = store(&cluster);
    let key = format!("DLOCK_CLUSTER_{}", target_on(&cluster, 2));
    // The fence stays behind while the slot moves, and so every call is answered TRYAGAIN.
    store.acquire(&claim(&key, "a-0", LEASE), LONG).unwrap();
    store.release(&claim(&key, "a-0", LEASE), LONG).unwrap();
    let mut migration = cluster.migration(slot_of(&key), 0);
    migration.begin();
    for n in 1..=5 {
        let locker = format!("a-{n}");
        let left = store.acquire(&claim(&key, &locker, LEASE), Duration::from_millis(60));
        assert!(matches!(left, Err(Error::Backend { failure: BackendFailure::NotExecuted, .. })), "{left:?}");
    }
    migration.finish();
    let executed = || ["evalsha", "eval"].map(|command| cluster.calls(command));
    let before = executed();
    thread::sleep(Duration::from_millis(500));
    assert_eq!(executed(), before);
    assert_eq!(store.inspect(&key, LONG).unwrap().holder, None);
}
