//! The store fails, comes back, and is another server.

use super::{next, next_acquired, told};
use crate::support::RedisServer;
use crate::support::crew::{HANG, eventually, wait_for};
use crate::support::lab::config;
use crate::support::sentinels::Service;
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
fn a_call_with_a_short_limit_tells_no_outage() {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryLockProcessor::with_clock(clock.clone());
    let (builder, events) = told();
    let generator = builder.clock(clock.clone()).build(store.clone()).unwrap();
    let lock = generator.generate_with(config("x", 60_000)).unwrap();
    store.set_reachable(false);
    // So short that the thread which asks for those that wait is not due. A clock that stands still does not keep the call.
    assert!(lock.try_lock_for(Duration::from_micros(1)).is_err());
    store.set_reachable(true);
    lock.lock().unwrap().unlock().unwrap();
    next_acquired(&events, How::Free);
}

#[test]
fn a_slow_wait_says_why_a_server_that_refuses_writes_grants_nothing() {
    let server = RedisServer::start();
    let (builder, events) = told();
    let builder = builder.slow_wait_after(Duration::from_millis(50));
    let generator = builder.build(RedisLockProcessor::connect(&server.url()).unwrap()).unwrap();
    let lock = generator.generate_with(config("x", 30_000)).unwrap();
    let guard = lock.lock().unwrap();
    let next_wait = || match up_to(&events, |event| matches!(event, Event::SlowWait(_))).pop() {
        Some(Event::SlowWait(wait)) => wait,
        _ => unreachable!(),
    };
    let waiter = wait_for(&lock);
    assert!(next_wait().error.is_none(), "somebody has the lock");
    guard.unlock().unwrap();
    waiter.join();
    server.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let waiter = wait_for(&lock);
    let Some(Error::Backend { failure: BackendFailure::Refused, message, .. }) = next_wait().error else {
        panic!("it does not say why")
    };
    assert!(message.contains("OOM"), "{message}");
    server.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    waiter.join();
}

/// Shows: G6.
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

/// The hold survives, because the replicas have it.
#[test]
fn a_failover_is_seen() {
    let mut service = Service::start();
    let (builder, events) = told();
    let generator = builder.build(RedisLockProcessor::connect(&service.url()).unwrap()).unwrap();
    let lock = generator.generate_with(config("x", 3_600_000)).unwrap();
    let guard = lock.lock().unwrap();
    next_acquired(&events, How::Free);
    let old = service.named_by(0);
    service.wait_for_replicas(old);
    service.on(old).kill();
    service.wait_for_another_master(old);
    let seen = up_to(&events, |event| matches!(event, Event::NewServer(_)));
    assert!(!seen.iter().any(|event| matches!(event, Event::Lost(_))), "{seen:?}");
    eventually("it is answered", || guard.ensure_valid().is_ok() && lock.inspect().is_ok());
    guard.unlock().unwrap();
    drop((lock, generator));
    let mut seen = seen;
    seen.extend(events.iter());
    let of = |is_so: fn(&Event) -> bool| seen.iter().filter(|event| is_so(event)).count();
    assert_eq!(of(|event| matches!(event, Event::Lost(_))), 0, "{seen:?}");
    let failing = of(|event| matches!(event, Event::StoreFailing(_)));
    assert_eq!(failing, of(|event| matches!(event, Event::StoreBack(_))), "each outage ends: {seen:?}");
}
