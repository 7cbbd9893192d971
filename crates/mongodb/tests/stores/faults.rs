//! What the store knows of a command when servers, networks and majorities fail.

use crate::fresh::Fresh;
use crate::proxy::{Fault, Proxy};
use crate::server::Server;
use crate::support::crew::{Member, eventually, spawn};
use crate::support::journal;
use dlock_conformance::Store;
use dlock_mongodb::MongoLockProcessor;
use parking_lot::Mutex;
use redis_dlock::port::{AcquireOutcome, Claim, Grant, LockProcessor, Operations, PollOutcome};
use redis_dlock::{BackendFailure, DLockConfig, DLockGenerator, DistributedReentrantLock, Error};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);

/// The driver looks again at once whether a server is the primary, as it would hear of an election.
const AT_ONCE: &str = "directConnection=true&serverMonitoringMode=poll&heartbeatFrequencyMS=500";

/// The command of every operation.
const OPERATION: &str = "findAndModify";

/// A database, and a way to it by a proxy.
struct Scene {
    store: Fresh,
    proxy: Proxy,
}

impl Scene {
    /// `None` on a server that the tests have not started: its hosts are not the proxy.
    fn start() -> Option<Self> {
        let store = Fresh::on(Arc::new(Server::start()));
        let proxy = Proxy::to(store.server.port()?);
        Some(Self { store, proxy })
    }

    fn processor(&self) -> MongoLockProcessor {
        let (port, name) = (self.proxy.port, self.store.database_name());
        MongoLockProcessor::new(&format!("mongodb://127.0.0.1:{port}/{name}?{AT_ONCE}")).unwrap()
    }

    fn lock(&self, lease: Duration) -> DistributedReentrantLock {
        let generator = DLockGenerator::new(self.processor()).unwrap();
        generator.generate_with(DLockConfig::new("MONGO", "x").with_lease(lease)).unwrap()
    }

    /// A processor that has connected, and whose next operations meet the fault.
    fn under(&self, fault: Fault) -> MongoLockProcessor {
        let processor = self.processor();
        processor.probe(&claim(0), LONG).unwrap();
        self.proxy.set(OPERATION, 1, fault);
        processor
    }
}

fn claim(n: usize) -> Claim<'static> {
    const LOCKERS: [&str; 3] = ["h-1-c0ffee-0", "h-1-c0ffee-1", "h-1-c0ffee-2"];
    Claim::new("k", "h-1-c0ffee", LOCKERS[n], LONG)
}

fn failure<T: std::fmt::Debug>(result: Result<T, Error>) -> BackendFailure {
    match result {
        Err(Error::Backend { failure, .. }) => failure,
        other => panic!("{other:?}"),
    }
}

fn polled(processor: &impl LockProcessor) -> Grant {
    match processor.poll(&claim(1), LONG).unwrap() {
        PollOutcome::Acquired(grant) => grant,
        other => panic!("{other:?}"),
    }
}

/// What a majority has not acknowledged does not count, and nothing is sent twice by the driver, whatever the URL says.
#[test]
fn each_operation_waits_for_a_majority_and_is_not_repeated() {
    let Some(scene) = Scene::start() else { return };
    let (port, name) = (scene.proxy.port, scene.store.database_name());
    let url =
        format!("mongodb://127.0.0.1:{port}/{name}?{AT_ONCE}&w=1&retryWrites=true&readPreference=secondaryPreferred");
    let processor = MongoLockProcessor::new(&url).unwrap();
    processor.acquire(&claim(1), LONG).unwrap();
    let sent = scene.proxy.last(OPERATION).unwrap();
    assert_eq!(sent.get_document("writeConcern").unwrap().get_str("w").unwrap(), "majority", "{sent}");
    assert!(!sent.contains_key("txnNumber"), "{sent}");
    processor.inspect("k", LONG).unwrap();
    let sent = scene.proxy.last("aggregate").unwrap();
    assert_eq!(sent.get_document("readConcern").unwrap().get_str("level").unwrap(), "majority", "{sent}");
    assert!(
        sent.get_document("$readPreference")
            .map_or(true, |of| of.get_str("mode").is_ok_and(|mode| mode.starts_with("primary"))),
        "{sent}"
    );
    processor.release(&claim(1), LONG).unwrap();
}

/// A poll finds what was done.
///
/// Shows: G1, G2, S6.
#[test]
fn each_failure_says_whether_the_command_may_have_been_executed() {
    use BackendFailure::{NotExecuted, Unknown};
    let Some(scene) = Scene::start() else { return };
    let refused: fn(i32) -> Fault = Fault::Refused;
    let rows = [
        ("the server is not the primary", refused, &[10107, 13435, 10058][..], NotExecuted, false),
        ("the primary steps down after it", Fault::Interrupted, &[189, 91, 11600, 11602], Unknown, true),
        ("the primary steps down before it", refused, &[189, 91, 11600, 11602], Unknown, false),
        ("no majority has confirmed it", Fault::Unconfirmed, &[64, 100], Unknown, true),
    ];
    for (why, fault, codes, expected, is_executed) in rows {
        for fault in codes.iter().map(|code| fault(*code)) {
            let processor = scene.under(fault);
            assert_eq!(failure(processor.acquire(&claim(1), LONG)), expected, "{why}: {fault:?}");
            assert_eq!(scene.proxy.fired(), 1, "{why}: {fault:?}");
            match processor.poll(&claim(1), LONG).unwrap() {
                PollOutcome::Acquired(_) if is_executed => {}
                PollOutcome::Gone if !is_executed => {}
                other => panic!("{why}: {fault:?}: {other:?}"),
            }
            scene.proxy.set(OPERATION, 1, fault);
            assert_eq!(failure(processor.probe(&claim(1), LONG)), expected, "{why}: {fault:?}");
            processor.release(&claim(1), LONG).unwrap();
        }
    }
}

/// Nothing is sent twice, so what a lost reply has told is told by a poll.
///
/// Shows: G2.
#[test]
fn a_lost_reply_is_unknown_and_the_command_is_not_repeated() {
    let Some(scene) = Scene::start() else { return };
    let processor = scene.under(Fault::Lost);
    assert_eq!(failure(processor.acquire(&claim(1), LONG)), BackendFailure::Unknown);
    let number = polled(&processor).number;
    scene.proxy.set(OPERATION, 1, Fault::Lost);
    assert_eq!(failure(processor.hand_over(&claim(1), &claim(2), LONG)), BackendFailure::Unknown);
    let next = processor.poll(&claim(2), LONG).unwrap();
    assert!(matches!(next, PollOutcome::Acquired(grant) if grant.number > number), "{next:?}");
    assert_eq!(processor.poll(&claim(1), LONG).unwrap(), PollOutcome::Gone);
}

#[test]
fn a_denial_is_told_as_one_and_has_done_nothing() {
    let Some(scene) = Scene::start() else { return };
    for code in [13, 18, 8000] {
        let processor = scene.under(Fault::Refused(code));
        let denied = processor.acquire(&claim(1), LONG);
        assert!(matches!(denied, Err(Error::Denied { .. })), "{code}: {denied:?}");
        assert_eq!(processor.poll(&claim(1), LONG).unwrap(), PollOutcome::Gone);
    }
}

/// A server that is silent costs a caller its limit, and no more.
#[test]
fn a_limit_ends_and_the_command_may_have_been_executed() {
    let Some(scene) = Scene::start() else { return };
    let limit = Duration::from_millis(300);
    let processor = scene.under(Fault::Held);
    let begin = Instant::now();
    assert_eq!(failure(processor.acquire(&claim(1), limit)), BackendFailure::Unknown);
    assert!(begin.elapsed() >= limit && begin.elapsed() < LONG);
    assert_eq!(failure(processor.probe(&claim(1), Duration::ZERO)), BackendFailure::NotExecuted);
    // The next command goes by another connection.
    polled(&processor);
    scene.proxy.heal();
}

#[test]
fn without_a_server_nothing_is_executed_and_the_error_says_so() {
    for (url, host) in [
        ("mongodb://me:sesame@127.0.0.1:1/?directConnection=true", "127.0.0.1:1"),
        ("mongodb+srv://me:sesame@host.example.invalid/jobs", "host.example.invalid"),
    ] {
        let processor = MongoLockProcessor::new(url).unwrap();
        let shown = format!("{processor:?}");
        let error = processor.acquire(&claim(1), LONG).unwrap_err();
        assert!(matches!(error, Error::Backend { failure: BackendFailure::NotExecuted, .. }), "{error:?}");
        assert!(error.to_string().contains(host), "{error}");
        assert!(!format!("{shown} {error} {error:?}").contains("sesame"), "{shown} {error:?}");
        assert!(!processor.has_answered());
        assert_eq!(failure(processor.acquire(&claim(1), Duration::from_millis(50))), BackendFailure::NotExecuted);
    }
}

/// Another program's document has the key's name.
#[test]
fn a_document_that_is_no_lock_is_left_alone() {
    use mongodb::bson::doc;
    let store = Fresh::start();
    let processor = store.processor();
    for document in [doc! { "_id": "k" }, doc! { "_id": "k", "state": 2, "ts": "later", "who": 7 }] {
        let locks = store.collection("locks");
        store.admin(async { locks.replace_one(doc! { "_id": "k" }, &document).upsert(true).await });
        let refused = processor.acquire(&claim(1), LONG);
        assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
        assert_eq!(processor.poll(&claim(1), LONG).unwrap(), PollOutcome::Gone);
        processor.release(&claim(1), LONG).unwrap();
        assert_eq!(store.admin(async { locks.find_one(doc! {}).await }), Some(document));
    }
}

/// A waiter gets the lock soon, although the stream that would tell it has broken: the driver resumes it, or the client opens another one and
/// asks.
///
/// Shows: L1.
#[test]
fn a_stream_that_is_cut_costs_no_waiter_its_turn() {
    let Some(scene) = Scene::start() else { return };
    let (holder, waiter) = (scene.lock(LONG * 3), scene.lock(LONG * 3));
    for _ in 0..3 {
        let guard = holder.lock().unwrap();
        let lock = waiter.clone();
        let waits = spawn(move || lock.lock().unwrap().unlock().unwrap());
        let processor = scene.processor();
        eventually("it waits in the store", || processor.inspect(holder.key(), LONG).unwrap().waiting == 1);
        eventually("it listens", || scene.proxy.cut_streams() > 0);
        guard.unlock().unwrap();
        waits.join();
    }
}

#[test]
fn a_client_that_waits_for_ten_locks_has_one_stream() {
    let Some(scene) = Scene::start() else { return };
    let ten = |processor| {
        let generator = DLockGenerator::new(processor).unwrap();
        let config = |n: u32| DLockConfig::new("MONGO", n.to_string()).with_lease(LONG * 3);
        (0..10).map(|n| generator.generate_with(config(n)).unwrap()).collect::<Vec<_>>()
    };
    // Not by the proxy.
    let looking = scene.store.processor();
    let held = ten(Arc::clone(&looking));
    let guards: Vec<_> = held.iter().map(|lock| lock.lock().unwrap()).collect();
    let waits = |lock: DistributedReentrantLock| spawn(move || lock.lock().unwrap().unlock().unwrap());
    let waiting: Vec<_> = ten(Arc::new(scene.processor())).into_iter().map(waits).collect();
    eventually("all wait in the store", || {
        held.iter().all(|lock| looking.inspect(lock.key(), LONG).unwrap().waiting == 1)
    });
    let mut streams = 0;
    eventually("it listens", || {
        streams = scene.proxy.cut_streams();
        streams > 0
    });
    assert_eq!(streams, 1);
    guards.into_iter().for_each(|guard| guard.unlock().unwrap());
    waiting.into_iter().for_each(Member::join);
}

/// A single server has no change streams. Its clients wait in the queue all the same, and poll.
///
/// Shows: G8, L1.
#[test]
fn without_change_streams_the_lock_is_handed_over_in_order_by_polls() {
    let Some(scene) = Scene::start() else { return };
    scene.proxy.set("aggregate", usize::MAX, Fault::Refused(40573));
    let lease = Duration::from_secs(2);
    let holder = scene.lock(lease);
    let guard = holder.lock().unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let looking = scene.store.processor();
    let wait = |n: u64| {
        let (lock, order) = (scene.lock(lease), Arc::clone(&order));
        let member = spawn(move || {
            let guard = lock.lock().unwrap();
            order.lock().push(n);
            guard.unlock().unwrap();
        });
        eventually("it waits in the store", || looking.inspect(holder.key(), LONG).unwrap().waiting == n);
        member
    };
    let waiters = [wait(1), wait(2), wait(3)];
    assert!(scene.proxy.fired() >= 3);
    guard.unlock().unwrap();
    waiters.into_iter().for_each(Member::join);
    assert_eq!(*order.lock(), [1, 2, 3]);
}

/// An election: for two seconds no server is the primary.
///
/// Shows: G1, G3, L1.
#[test]
fn a_hold_outlives_an_election_and_a_waiter_gets_the_lock_afterwards() {
    let Some(scene) = Scene::start() else { return };
    let (holder, waiter) = (scene.lock(LONG), scene.lock(LONG));
    let guard = holder.lock().unwrap();
    scene.proxy.set(OPERATION, usize::MAX, Fault::Refused(10107));
    let waits = spawn(move || waiter.lock().is_ok_and(|guard| guard.unlock().is_ok()));
    std::thread::sleep(Duration::from_secs(2));
    scene.proxy.heal();
    assert!(guard.is_valid());
    guard.unlock().unwrap();
    // The store had not answered the waiter yet when it asked, so its call may have failed instead of waiting.
    waits.join();
    let after = scene.lock(LONG);
    after.lock().unwrap().unlock().unwrap();
    assert_eq!(scene.store.leftovers(), [""; 0]);
}

/// Shows: G1, G2, L1, L2.
#[test]
fn threads_exclude_one_another_while_replies_are_lost() {
    const ROUNDS: usize = 15;
    let Some(scene) = Scene::start() else { return };
    let lease = Duration::from_secs(3);
    let locks = [scene.lock(lease), scene.lock(lease), scene.lock(lease)];
    // The store has answered each client.
    locks.iter().for_each(|lock| lock.lock().unwrap().unlock().unwrap());
    let book = Arc::new(Mutex::new(Vec::new()));
    let members: Vec<_> = locks
        .iter()
        .map(|lock| {
            let (lock, book) = (lock.clone(), Arc::clone(&book));
            spawn(move || {
                for _ in 0..ROUNDS {
                    let Ok(guard) = lock.lock() else { continue };
                    if guard.is_valid() {
                        book.try_lock().expect("nobody else is inside").push(guard.fencing_token());
                    }
                    // What became of it is settled in the background.
                    let _ = guard.unlock();
                }
            })
        })
        .collect();
    for fault in [Fault::Lost, Fault::Interrupted(11602), Fault::Unconfirmed(64), Fault::Refused(10107)].repeat(4) {
        scene.proxy.set(OPERATION, 1, fault);
        std::thread::sleep(Duration::from_millis(100));
    }
    scene.proxy.heal();
    members.into_iter().for_each(Member::join);
    let tokens = book.lock();
    assert!(!tokens.is_empty() && tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    drop(tokens);
    eventually("nothing is left", || scene.store.leftovers().is_empty());
}

/// A second acquire of a key whose document is being inserted at that moment.
#[test]
fn many_first_acquires_of_one_key_have_one_winner() {
    let store = Fresh::start();
    for n in 0..20 {
        let key = format!("k{n}");
        let lockers: Vec<_> = (0..8).map(|n| format!("h-{n}-c0ffee-1")).collect();
        let processor = &store.processor();
        let won = std::thread::scope(|scope| {
            let ask = |locker: &'_ String| {
                let claim = Claim::new(&key, "h-0-c0ffee", locker, LONG);
                matches!(processor.acquire(&claim, LONG).unwrap(), AcquireOutcome::Acquired(_))
            };
            let asking: Vec<_> = lockers.iter().map(|locker| scope.spawn(move || ask(locker))).collect();
            asking.into_iter().map(|asking| usize::from(asking.join().unwrap())).sum::<usize>()
        });
        assert_eq!(won, 1, "{key}");
    }
}

/// After a failover the next primary's clock may be behind: leases last longer, numbers rise all the same, and the log says it.
///
/// Shows: S2.
#[test]
fn a_clock_that_is_behind_that_of_the_server_before_is_warned_of() {
    use mongodb::bson::doc;
    journal::keep();
    let store = Fresh::start();
    let processor = store.processor();
    let claim = Claim::new("behind", "h-1-c0ffee", "h-1-c0ffee-1", LONG);
    let AcquireOutcome::Acquired(grant) = processor.acquire(&claim, LONG).unwrap() else { panic!("it is free") };
    let ahead = doc! {
        "at": { "$toDate": { "$add": [{ "$toLong": "$$NOW" }, 5000] } },
        "ts": { "$add": ["$ts", 5_000_000_i64] },
    };
    let locks = store.collection("locks");
    store.admin(async { locks.update_one(doc! { "_id": "behind" }, vec![doc! { "$set": ahead }]).await });
    processor.release(&claim, LONG).unwrap();
    assert_eq!(journal::warnings("behind").len(), 1, "{:?}", journal::warnings("behind"));
    let next = Claim::new("behind", "h-1-c0ffee", "h-1-c0ffee-2", LONG);
    let AcquireOutcome::Acquired(next_grant) = processor.acquire(&next, LONG).unwrap() else { panic!("it is free") };
    assert!(next_grant.number > grant.number + 5_000_000);
    assert_eq!(journal::warnings("behind").len(), 1);
    processor.release(&next, LONG).unwrap();
}

/// An extension or a poll whose `$$NOW` is earlier than that of one that was executed before: it has waited in the server.
///
/// Shows: G1, S1.
#[test]
fn a_late_extension_or_poll_shortens_no_lease() {
    use mongodb::bson::doc;
    let store = Fresh::start();
    let processor = store.processor();
    processor.acquire(&claim(1), LONG).unwrap();
    let locks = store.collection("locks");
    let later = doc! { "$toDate": { "$add": [{ "$toLong": "$until" }, 7000] } };
    store.admin(async { locks.update_one(doc! { "_id": "k" }, vec![doc! { "$set": { "until": later } }]).await });
    let until = || *store.documents("locks").remove(0).get_datetime("until").unwrap();
    let before = until();
    processor.extend(&claim(1), LONG).unwrap();
    assert_eq!(until(), before);
    polled(&processor);
    assert_eq!(until(), before);
    processor.release(&claim(1), LONG).unwrap();
}

/// A release that has waited in the server since before the last poll of the waiter to which it gives the key.
///
/// Shows: G1, S1.
#[test]
fn a_lease_begins_no_earlier_than_the_last_poll_of_its_waiter() {
    use mongodb::bson::doc;
    let store = Fresh::start();
    let processor = store.processor();
    processor.acquire(&claim(1), LONG).unwrap();
    processor.join(&claim(2), LONG).unwrap();
    let locks = store.collection("locks");
    let later = doc! { "$toDate": { "$add": [{ "$toLong": "$$NOW" }, 7000] } };
    let seen = doc! { "$map": { "input": "$queue", "in": { "$mergeObjects": ["$$this", { "seen": later }] } } };
    store.admin(async { locks.update_one(doc! { "_id": "k" }, vec![doc! { "$set": { "queue": seen } }]).await });
    processor.release(&claim(1), LONG).unwrap();
    let document = store.documents("locks").remove(0);
    let time = |field| document.get_datetime(field).unwrap().timestamp_millis();
    let lease = i64::try_from(LONG.as_millis()).unwrap();
    assert!(time("until") > time("when") + lease + 5000, "{document}");
    processor.release(&claim(2), LONG).unwrap();
}

/// Shows: G8.
#[test]
fn without_change_streams_a_holder_learns_that_others_wait() {
    for code in [40573, 115] {
        let Some(scene) = Scene::start() else { return };
        scene.proxy.set("aggregate", usize::MAX, Fault::Refused(code));
        // Polls of the waiter come too late to be what ends this.
        let settings = || DLockConfig::new("ORDER", "4711").with_lease(LONG * 30).with_linger(LONG * 30);
        let lock = || DLockGenerator::new(scene.processor()).unwrap().generate_with(settings()).unwrap();
        let (first, second) = (lock(), lock());
        let looking = scene.store.processor();
        eventually("it lingers", || {
            first.lock().unwrap().unlock().unwrap();
            looking.inspect(first.key(), LONG).unwrap().holder.is_some()
        });
        spawn(move || second.lock().unwrap().unlock().unwrap()).join();
    }
}

/// Nobody sweeps by hand.
#[test]
fn indexes_sweep_what_nobody_uses() {
    let store = Fresh::start();
    let processor = store.processor();
    processor.acquire(&claim(1), LONG).unwrap();
    for (collection, field) in [("locks", "forget"), ("lockpings", "ping")] {
        let is_there = || {
            let collection = store.collection(collection);
            let indexes = store.admin(async { Ok(collection.list_index_names().await.unwrap_or_default()) });
            indexes.iter().any(|name| name.starts_with(field))
        };
        eventually("the index is there", is_there);
    }
    let document = store.documents("locks").remove(0);
    let until = document.get_datetime("until").unwrap().timestamp_millis();
    let forget = document.get_datetime("forget").unwrap().timestamp_millis();
    assert_eq!(forget - until, 24 * 3_600_000);
    processor.release(&claim(1), LONG).unwrap();
}
