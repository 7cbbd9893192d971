//! What the manual of `redis-dlock`, and that of this crate, say of this store.

use crate::fresh::Fresh;
use crate::stores_page::tells_limits;
use crate::support::crew::{eventually, spawn};
use dlock_conformance::Store;
use dlock_mongodb::MongoLockProcessor;
use mongodb::bson::Document;
use redis_dlock::{DLockConfig, DLockGenerator};
use std::time::Duration;

const MANUAL: &str = include_str!("../../src/manual.md");

#[test]
fn the_figures_of_the_page_are_the_limits_of_the_store() {
    tells_limits("MongoDB", &MongoLockProcessor::new("mongodb://127.0.0.1:1/").unwrap());
}

/// The fields of a lock that the manual names.
fn fields() -> Vec<&'static str> {
    let rows = MANUAL.lines().skip_while(|line| *line != "| field of `locks` | contains |").skip(2);
    let names = rows.take_while(|line| line.starts_with('|')).map(|row| row.split('|').nth(1).unwrap());
    names.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn whoever_knows_the_locks_of_mongodb_can_read_these() {
    let store = Fresh::start();
    let lock = || {
        let config = DLockConfig::new("EXPORT", "nightly").with_lease(Duration::from_secs(60));
        let generator = DLockGenerator::new(store.processor()).unwrap();
        generator.generate_with(config.with_reason("the nightly export")).unwrap()
    };
    let document = || store.documents("locks").pop().unwrap();
    let (held, waits) = (lock(), lock());
    let guard = held.lock().unwrap();
    let waiter = spawn(move || waits.lock().unwrap().unlock().unwrap());
    let is_waited_for = |document: &Document| !document.get_array("queue").unwrap().is_empty();
    eventually("it is waited for", || is_waited_for(&document()));
    let locked = document();
    assert_eq!(fields().len(), 9, "the table is read");
    assert!(fields().iter().all(|field| locked.contains_key(field)), "{locked}");
    let text = |name: &str| locked.get_str(name).unwrap().to_owned();
    let time = |name: &str| *locked.get_datetime(name).unwrap();
    assert_eq!((text("_id"), text("why")), (held.key().to_owned(), "the nightly export".to_owned()));
    assert_eq!(text("who").rsplit_once('-').unwrap().0, text("process"));
    assert!(time("when") <= time("at") && time("at") < time("until"), "{locked}");
    let number = u64::try_from(locked.get_i64("ts").unwrap()).unwrap();
    assert_eq!((locked.get_i32("state").unwrap(), number), (2, guard.fencing_token() / 1024));
    let first = locked.get_array("queue").unwrap()[0].as_document().unwrap();
    assert_ne!(first.get_str("process").unwrap(), text("process"));
    assert!(first.get_str("who").unwrap().starts_with(first.get_str("process").unwrap()), "{first}");
    assert!(first.get_datetime("since").unwrap() <= first.get_datetime("seen").unwrap(), "{first}");
    let ping = || store.documents("lockpings").into_iter().find(|ping| ping.get_str("_id").unwrap() == text("process"));
    eventually("it tells of itself", || ping().is_some());
    let ping = ping().unwrap();
    assert!(ping.get_datetime("ping").unwrap() <= ping.get_datetime("at").unwrap(), "{ping}");
    assert!(!ping.get_str("record").unwrap().is_empty(), "{ping}");
    guard.unlock().unwrap();
    waiter.join();
    let free = document();
    assert_eq!((free.get_i32("state").unwrap(), free.get_str("who").unwrap()), (0, first.get_str("who").unwrap()));
    assert!(free.get_array("queue").unwrap().is_empty(), "{free}");
}
