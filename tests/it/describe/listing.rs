//! The locks of a server, page by page.

use super::{config, connect};
use crate::support::commands::Commands;
use crate::support::crew::{HANG, eventually};
use crate::support::proxy::{Lot, Sent};
use crate::support::{Proxy, RedisServer};
use redis_dlock::{DLockGenerator, ListedLock, RedisLockProcessor};
use std::collections::BTreeMap;
use std::time::Duration;

#[test]
fn ten_thousand_locks_are_listed_page_by_page_without_keys() {
    let server = RedisServer::start();
    let mut admin = server.connection();
    let mut fill = redis::pipe();
    for n in 0..10_000 {
        fill.cmd("SET").arg(format!("DLOCK_LIST_{n}")).arg("10.0.0.1-17").arg("PX").arg(600_000).ignore();
        fill.cmd("SET").arg(format!("other {n}")).arg("x").ignore();
    }
    // Of another type, and another lock type.
    fill.cmd("RPUSH").arg("DLOCK_LIST_foreign").arg("x").ignore();
    fill.cmd("SET").arg("DLOCK_OTHER_1").arg("x").ignore();
    fill.exec(&mut admin).unwrap();
    Commands::forget(&server);
    let generator = connect(&server);
    let mut locks = generator.list("LIST_*");
    let first = locks.next().unwrap().unwrap();
    assert_eq!((first.locker.as_deref(), first.waiting), (Some("10.0.0.1-17"), 0));
    assert!(first.remaining.is_some());
    let calls = Commands::of(&server);
    assert!(calls.count("scan") < 10, "the rest is not asked for yet: {calls:?}");
    let mut found: BTreeMap<String, ListedLock> =
        locks.map(|lock| lock.unwrap()).map(|lock| (lock.key.clone(), lock)).collect();
    found.insert(first.key.clone(), first);
    assert_eq!(found.len(), 10_000);
    let calls = Commands::of(&server);
    assert_eq!(calls.count("keys"), 0, "{calls:?}");
    assert!(calls.count("scan") >= 10, "{calls:?}");
    assert_eq!(generator.list("LIST_99?9").count(), 10);
    assert_eq!(generator.list("NOBODY_*").count(), 0);
}

#[test]
fn a_lock_that_is_only_waited_for_is_listed_once() {
    let server = RedisServer::start();
    let (one, two) = (connect(&server), connect(&server));
    let [first, second] = [&one, &two].map(|generator| generator.generate_with(config("x:queue:y", "r")).unwrap());
    let guard = first.lock().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(second.lock().unwrap()));
        let list = || one.list("*").collect::<Result<Vec<_>, _>>().unwrap();
        eventually("the other waits", || list().iter().any(|lock| lock.waiting == 1));
        let found = list();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].key, first.key());
        assert!(found[0].locker.is_some());
        guard.unlock().unwrap();
    });
    assert_eq!(one.list("*").count(), 0);
}

/// The server names the key and the queue one after the other, and is asked about the lock only then.
#[test]
fn a_lock_that_is_held_and_then_only_waited_for_is_listed_and_so_is_the_reverse() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let patient = RedisLockProcessor::builder(&proxy.url()).unwrap().io_timeout(HANG).build().unwrap();
    let generator = DLockGenerator::new(patient).unwrap();
    let (one, two) = (connect(&server), connect(&server));
    let [first, second] = [&one, &two].map(|generator| generator.generate_with(config("x", "r")).unwrap());
    let guard = first.lock().unwrap();
    let queue = std::thread::scope(|scope| {
        scope.spawn(|| second.lock().unwrap().unlock().unwrap());
        eventually("the other waits", || server.queue_of(first.key()).is_some());
        let queue = server.queue_of(first.key()).unwrap();
        guard.unlock().unwrap();
        queue
    });
    let held = ["SET", first.key(), "a-1"];
    let waited_for = ["RPUSH", &queue, "30000 b-1"];
    for [before, after] in [[held, waited_for], [waited_for, held]] {
        server.run::<()>(&before);
        let fired = proxy.trap(Sent::Inspect, 0, Lot::StopRequest);
        std::thread::scope(|scope| {
            let listed = scope.spawn(|| generator.list("*").collect::<Result<Vec<_>, _>>().unwrap());
            eventually("the server has named the lock", || fired.is_fired());
            server.run::<()>(&["DEL", before[1]]);
            server.run::<()>(&after);
            proxy.let_requests_through();
            let listed = listed.join().unwrap();
            assert_eq!(listed.len(), 1, "{before:?}");
            assert_eq!(listed[0].locker.is_some(), after == held);
        });
        server.run::<()>(&["DEL", after[1]]);
    }
}

#[test]
fn a_closed_generator_lists_nothing() {
    let server = RedisServer::start();
    let generator = connect(&server);
    let mut locks = generator.list("*");
    generator.close();
    assert!(matches!(locks.next(), Some(Err(redis_dlock::Error::ShutDown))));
    assert!(locks.next().is_none());
    assert!(matches!(generator.describe("A", "b"), Err(redis_dlock::Error::ShutDown)));
}
