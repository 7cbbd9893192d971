//! The client record: written again every thirty seconds of the client's clock, and kept for ninety of the store's. A client whose clock stands
//! still does what a dead one does: nothing.

use super::{settings, until};
use crate::support::RedisServer;
use crate::support::commands::Commands;
use redis_dlock::{DLockGenerator, LockProcessor, ManualClock, MemoryLockProcessor, RedisLockProcessor};
use std::sync::Arc;
use std::time::Duration;

/// After its first lock a client waits for so long.
const DELAY: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_secs(30);
const LIFE: Duration = Duration::from_secs(90);
const BIT: Duration = Duration::from_nanos(1);

/// A client with a clock of its own.
fn generator(processor: impl LockProcessor, clock: &Arc<ManualClock>) -> DLockGenerator {
    DLockGenerator::builder().clock(clock.clone()).build(processor).unwrap()
}

#[test]
fn a_record_ends_ninety_seconds_after_its_last_refresh_and_is_refreshed_after_thirty() {
    let [own, stores] = [(); 2].map(|()| Arc::new(ManualClock::new()));
    let store = MemoryLockProcessor::with_clock(stores.clone());
    let asker = DLockGenerator::new(store.clone()).unwrap();
    let has_record = || asker.describe("TEST", "x").unwrap().holder.expect("the holder").client.is_some();
    let lock = generator(store, &own).generate_with(settings()).unwrap();
    let _guard = lock.lock().unwrap();
    own.advance(DELAY - BIT);
    assert!(!has_record());
    own.advance(BIT);
    until("the record is written", has_record);
    for _ in 0..8 {
        stores.advance(LIFE - BIT);
        assert!(has_record());
        stores.advance(BIT);
        assert!(!has_record(), "a dead process has no record");
        own.advance(PAUSE - BIT);
        assert!(!has_record());
        own.advance(BIT);
        until("it is written again", has_record);
    }
}

#[test]
fn on_a_server_each_refresh_is_one_write() {
    let server = RedisServer::start();
    let clock = Arc::new(ManualClock::new());
    let generator = generator(RedisLockProcessor::connect(&server.url()).unwrap(), &clock);
    let lock = generator.generate_with(settings()).unwrap();
    let _guard = lock.lock().unwrap();
    Commands::forget(&server);
    let written = || Commands::of(&server).count("set");
    clock.advance(DELAY);
    until("the record is written", || written() == 1);
    let [record] = &server.run::<Vec<String>>(&["KEYS", "DLOCK:1:client:*"])[..] else { panic!("one record") };
    for n in 2..=6 {
        server.run::<()>(&["PEXPIRE", record, "1000"]);
        clock.advance(PAUSE);
        until("it is written again", || written() == n);
        until("it is kept for ninety seconds", || (1001..=90_000).contains(&server.run::<i64>(&["PTTL", record])));
        assert_eq!(written(), n, "once");
    }
}
