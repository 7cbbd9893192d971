//! The store fails, comes back, and is another server.

use super::{next, next_acquired, told};
use crate::support::RedisServer;
use crate::support::crew::HANG;
use crate::support::lab::config;
use crossbeam_channel::Receiver;
use redis_dlock::event::How;
use redis_dlock::{BackendFailure, Error, Event, ManualClock, MemoryLockProcessor, RedisLockProcessor};
use std::sync::Arc;
use std::time::Duration;

/// Returns the events up to one of a kind.
fn up_to(events: &Receiver<Event>, is_wanted: impl Fn(&Event) -> bool) -> Vec<Event> {
    let mut seen = Vec::new();
    while !seen.last().is_some_and(&is_wanted) {
        seen.push(next(events));
    }
    seen
}

#[test]
fn an_outage_is_told_once_when_it_begins_and_when_it_ends() {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryLockProcessor::with_clock(clock.clone());
    let (builder, events) = told();
    let generator = builder.clock(clock.clone()).build(store.clone()).unwrap();
    let lock = generator.generate_with(config("x", 1_000_000)).unwrap();
    for _ in 0..2 {
        store.set_reachable(false);
        for _ in 0..3 {
            assert!(lock.try_lock().is_err());
        }
        clock.advance(Duration::from_secs(5));
        store.set_reachable(true);
        lock.try_lock().unwrap().unwrap().unlock().unwrap();
        let Event::StoreFailing(failing) = next(&events) else { panic!("it does not fail") };
        assert!(matches!(failing.error, Error::Backend { failure: BackendFailure::NotExecuted, .. }), "{failing:?}");
        let Event::StoreBack(back) = next(&events) else { panic!("it is not back") };
        assert_eq!(back.after, Duration::from_secs(5));
        next_acquired(&events, How::Free);
        next(&events);
    }
}

/// A call that gives the store too little time says nothing of the store.
#[test]
fn a_server_that_is_killed_and_started_again_fails_is_back_and_is_another_one() {
    let mut server = RedisServer::start();
    let (builder, events) = told();
    let generator = builder.build(RedisLockProcessor::connect(&server.url()).unwrap()).unwrap();
    let lock = generator.generate_with(config("x", 300)).unwrap();
    let guard = lock.lock().unwrap();
    next_acquired(&events, How::Free);
    server.kill();
    let before = up_to(&events, |event| matches!(event, Event::StoreFailing(_)));
    assert_eq!(before.len(), 1, "{before:?}");
    // The lease is lost meanwhile.
    up_to(&events, |event| matches!(event, Event::Lost(_)));
    assert!(guard.unlock().is_err());
    server.restart();
    lock.lock().unwrap().unlock().unwrap();
    let (mut back, mut number) = (0, 0);
    drop((lock, generator));
    while let Ok(event) = events.recv_timeout(HANG) {
        match event {
            Event::StoreBack(_) => back += 1,
            Event::NewServer(server) => number = server.number,
            Event::StoreFailing(_) => panic!("it has not stopped failing"),
            _ => {}
        }
    }
    assert!(back == 1 && number > 0, "{back} {number}");
}
